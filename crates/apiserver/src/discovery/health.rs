//! `/healthz`, `/livez` and `/readyz`: a server that answers is one that works; its store is inside of it.

use axum::body::Body;
use http::Response;
use http::request::Parts;

use super::text;
use crate::request::Query;
use crate::status::{Result, Status};

/// The checks by name. Each may be asked for on its own, or left out.
const CHECKS: [&str; 1] = ["ping"];

/// `/healthz`, `/healthz/{check}`, and the same for the others.
pub(super) fn serve(head: &Parts, parts: &[&str]) -> Result<Response<Body>> {
    let query = Query::parse(&head.uri)?;
    match parts {
        [_, check] if CHECKS.contains(check) => Ok(text("ok".to_owned())),
        [endpoint] if query.flag("verbose").is_some() => Ok(text(verbose(endpoint, &query))),
        [_] => Ok(text("ok".to_owned())),
        _ => Err(Status::no_such_path()),
    }
}

fn verbose(endpoint: &str, query: &Query) -> String {
    let mut out = String::new();
    for check in CHECKS {
        let end = if query.has("exclude", check) { "excluded: ok" } else { "ok" };
        out.push_str(&format!("[+]{check} {end}\n"));
    }
    format!("{out}{endpoint} check passed\n")
}
