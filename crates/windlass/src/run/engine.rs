//! An API server in this process, and those who act on what is created there.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_apiserver::{Accounts, Server};

use crate::manifest::Object;
use crate::parts::{Parts, Setup};

/// Why the API server did not take an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it said.
    pub message: String,
    /// The fields that are wrong, each with what is wrong.
    pub causes: Vec<(String, String)>,
}

/// An object that was created.
#[derive(Clone, Debug)]
pub struct Created {
    /// As it is stored.
    pub json: Value,
    /// What the API server told its client.
    pub warnings: Vec<String>,
}

/// The server and the rest. Dropping it kills all pods.
pub struct Engine {
    server: Server,
    client: kube::Client,
    parts: Option<Parts>,
}

impl Engine {
    /// An API server with nothing in it, and nobody who acts on what comes.
    pub fn new(gates: Gates) -> Self {
        let server = Server::new(windlass_apiserver::Config {
            gates,
            accounts: Accounts::Ignored,
            ..windlass_apiserver::Config::default()
        });
        let client = kube::Client::new(server.own_service_without_figures(), "default");
        Self { server, client, parts: None }
    }

    /// The client of the API server.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Creates an object, and its namespace if there is none.
    pub async fn create(&self, object: &Object) -> Result<Created, Refused> {
        let namespace = object.namespace();
        if !namespace.is_empty() {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.post("/api/v1/namespaces", &body).await.or_else(|(code, refused)| {
                if code == StatusCode::CONFLICT {
                    Ok(Created { json: body, warnings: Vec::new() })
                } else {
                    Err(refused)
                }
            })?;
        }
        let path = object.kind.collection(namespace);
        self.post(&path, &object.json).await.map_err(|(_, refused)| refused)
    }

    async fn post(&self, path: &str, object: &Value) -> Result<Created, (StatusCode, Refused)> {
        let lost = |error: &dyn std::fmt::Display| {
            (StatusCode::INTERNAL_SERVER_ERROR, Refused { message: error.to_string(), causes: Vec::new() })
        };
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(object.to_string().into_bytes()))
            .map_err(|error| lost(&error))?;
        let response = self.client.send(request).await.map_err(|error| lost(&error))?;
        let (head, body) = response.into_parts();
        let bytes = body.collect_bytes().await.map_err(|error| lost(&error))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|error| lost(&error))?;
        if !head.status.is_success() {
            return Err((head.status, refused(&json)));
        }
        let warnings = head.headers.get_all(http::header::WARNING).into_iter();
        Ok(Created {
            json,
            warnings: warnings.filter_map(|value| warning_text(value.to_str().ok()?)).collect(),
        })
    }

    /// Starts everybody who acts: from now on pods run.
    pub async fn start(&mut self, setup: Setup) -> Result<(), windlass_node::Error> {
        let parts = self.parts.insert(Parts::start(&self.client, setup).await?);
        self.server.place_pods(parts.placing());
        Ok(())
    }

    /// Makes no more pods, and ends those that run: SIGTERM, their grace period up to `grace_max`, SIGKILL.
    pub async fn stop(&mut self, grace_max: Duration) {
        if let Some(parts) = self.parts.take() {
            parts.stop(grace_max).await;
        }
    }
}

/// Reads a `Status`.
fn refused(status: &Value) -> Refused {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    Refused {
        message: text(status, "message"),
        causes: causes.map(|cause| (text(cause, "field"), text(cause, "message"))).collect(),
    }
}

/// The text of `299 - "text"`.
fn warning_text(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.strip_suffix('"')?;
    Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_warning_is_found_between_its_quotes() {
        assert_eq!(warning_text("299 - \"a \\\"b\\\" c\""), Some("a \"b\" c".to_owned()));
        assert_eq!(warning_text("299 - text"), None);
    }

    #[test]
    fn a_status_is_read_with_all_its_causes() {
        let status = json!({
            "message": "m", "details": {"causes": [{"field": "spec.a", "message": "Required value", "reason": "x"}]},
        });
        let causes = vec![("spec.a".to_owned(), "Required value".to_owned())];
        assert_eq!(refused(&status), Refused { message: "m".to_owned(), causes });
    }
}
