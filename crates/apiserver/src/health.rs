//! `/healthz`, `/livez` and `/readyz`: whether the server answers, and whether its store takes writes.

use std::sync::atomic::Ordering;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};

use crate::request::Query;
use crate::status::{Result, Status};
use crate::{Shared, answer};

/// The paths of this module.
pub(crate) fn is_path(path: &str) -> bool {
    matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz"))
}

/// upstream's names: the store is what etcd is there. Only readiness ends before the server does.
fn checks(endpoint: &str) -> &'static [&'static str] {
    if endpoint == "readyz" { &["ping", "log", "etcd", "shutdown"] } else { &["ping", "log", "etcd"] }
}

/// Why a check fails.
fn failure(shared: &Shared, check: &str) -> Option<String> {
    match check {
        "etcd" => shared.store.check_writable().err().map(|error| error.to_string()),
        "shutdown" => {
            shared.is_stopping.load(Ordering::Acquire).then(|| "process is shutting down".to_owned())
        }
        _ => None,
    }
}

/// `/healthz`, `/healthz/{check}`, and the same for the others.
pub(crate) fn serve(shared: &Shared, head: &Parts) -> Result<Response<Body>> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let query = Query::parse(&head.uri)?;
    let parts: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    match parts[..] {
        [endpoint] => Ok(all(shared, endpoint, &query)),
        [endpoint, check] if checks(endpoint).contains(&check) => Ok(match failure(shared, check) {
            None => text(StatusCode::OK, "ok".to_owned()),
            Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
        }),
        _ => Err(Status::no_such_path()),
    }
}

fn all(shared: &Shared, endpoint: &str, query: &Query) -> Response<Body> {
    let mut out = String::new();
    let mut has_failed = false;
    for check in checks(endpoint) {
        if query.has("exclude", check) {
            out.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if let Some(why) = failure(shared, check) {
            // upstream: who is not logged in may ask too
            out.push_str(&format!("[-]{check} failed: reason withheld\n"));
            tracing::warn!("{endpoint} check {check} failed: {why}");
            has_failed = true;
        } else {
            out.push_str(&format!("[+]{check} ok\n"));
        }
    }
    if has_failed {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{out}{endpoint} check failed\n"));
    }
    match query.flag("verbose") {
        Some(_) => text(StatusCode::OK, format!("{out}{endpoint} check passed\n")),
        None => text(StatusCode::OK, "ok".to_owned()),
    }
}

fn text(code: StatusCode, body: String) -> Response<Body> {
    let mut response = answer::object(code, Bytes::from(body), &[]);
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
