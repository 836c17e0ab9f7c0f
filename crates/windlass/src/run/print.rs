//! The Jobs on standard output, as `-o` asks for them.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::engine::Engine;
use super::{JobName, Output};
use crate::manifest::Kind;

/// Prints the Jobs as they are now: one as it is, several as a List.
pub async fn jobs(engine: &Engine, names: &[JobName], output: Option<Output>) {
    let Some(output) = output else { return };
    let mut jobs = Vec::new();
    for JobName { namespace, name } in names {
        let request =
            http::Request::get(format!("{}/{name}", Kind::Job.collection(namespace))).body(Vec::new());
        match engine.client().request::<Value>(request.expect("a valid path")).await {
            Ok(job) => jobs.push(job),
            Err(error) => tracing::error!(%error, "read job/{name}"),
        }
    }
    let document = match jobs.len() {
        1 => jobs.remove(0),
        _ => json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs}),
    };
    let text = match output {
        Output::Json => pretty(&document),
        Output::Yaml => serde_saphyr::to_string(&document).unwrap_or_default(),
    };
    // A closed pipe is the reader's decision.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// As kubectl prints it.
fn pretty(document: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(document, &mut serializer).expect("a JSON value can be written to memory");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}
