//! The subresources of pods that a node has to answer: `log`, `exec` and `attach`.
//!
//! Here is who is asked and for what, in upstream's words; [`windlass_streams::PodStreams`] is who answers.

mod logs;
mod session;
mod upgrade;

use std::any::Any;
use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{Method, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use tokio_tungstenite::tungstenite::protocol::Role;
use windlass_store::Key;
use windlass_streams::{Container, Error, Exec, PodStreams, Remote, Streams, wire};

use crate::request::{Query, Target};
use crate::resources;
use crate::status::{Result, Status};
use crate::{Shared, body};

/// Something that is held as long as a stream is open: its place among those that may be.
#[derive(Clone)]
pub(crate) struct Held {
    _place: Arc<dyn Any + Send + Sync>,
}

impl Held {
    pub(crate) fn new(place: impl Any + Send + Sync) -> Self {
        Self { _place: Arc::new(place) }
    }
}

/// Whether a target is one of these subresources.
pub(crate) fn concerns(target: &Target) -> bool {
    target.resource.plural == "pods"
        && target.resource.group.is_empty()
        && !target.name.is_empty()
        && matches!(target.subresource.as_str(), "log" | "exec" | "attach")
}

/// Answers a request about one of these subresources.
pub(crate) async fn serve(
    shared: &Shared,
    mut head: Parts,
    target: &Target,
    query: &Query,
) -> Result<Response<Body>> {
    match (target.subresource.as_str(), &head.method) {
        ("log", &Method::GET) => logs::serve(shared, target, query).await,
        ("log", _) => Err(Status::method_not_allowed()),
        (_, &Method::GET | &Method::POST) => {
            let (pod, container) = find(shared, target, query)?;
            if pod.node.is_empty() {
                return Err(Status::bad_request(format!(
                    "pod {} does not have a host assigned",
                    target.name
                )));
            }
            let place = pod.container(target, container);
            check_node(shared, &place.node)?;
            let streams = asked(query)?;
            let job = match target.subresource.as_str() {
                "exec" => Job::Exec(Exec { command: query.all("command"), streams }),
                _ => Job::Attach(streams),
            };
            session::open(node(shared, &place.node).await?, &mut head, place, job)
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// What a client wants with a container.
enum Job {
    Exec(Exec),
    Attach(Streams),
}

/// What is needed of a pod.
struct Found {
    pod: Pod,
    node: String,
}

impl Found {
    fn container(&self, target: &Target, name: String) -> Container {
        Container {
            node: self.node.clone(),
            namespace: target.namespace.clone(),
            pod: target.name.clone(),
            uid: self.pod.metadata.uid.clone().unwrap_or_default(),
            name,
        }
    }
}

/// The pod, and the name of the container that is meant.
fn find(shared: &Shared, target: &Target, query: &Query) -> Result<(Found, String)> {
    let record =
        shared.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, &target.name))?;
    let pod: Pod = serde_json::from_slice(&record.bytes)
        .map_err(|error| body::unreadable(target.resource, &error.to_string()))?;
    let container = container_name(&pod, query.text("container"))?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    Ok((Found { pod, node }, container))
}

/// upstream: validateContainer
fn container_name(pod: &Pod, asked: &str) -> Result<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = &pod.spec else { return Err(Status::bad_request(format!("pod {name} has no spec"))) };
    let inits = spec.init_containers.iter().flatten().map(|container| container.name.as_str());
    let mains = spec.containers.iter().map(|container| container.name.as_str());
    let others = spec.ephemeral_containers.iter().flatten().map(|container| container.name.as_str());
    let names: Vec<&str> = inits.chain(mains).chain(others).collect();
    match (asked, spec.containers.as_slice()) {
        ("", [one]) => Ok(one.name.clone()),
        ("", []) => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        ("", _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
        (asked, _) if names.contains(&asked) => Ok(asked.to_owned()),
        (asked, _) => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

/// upstream: a node that does not exist can't be asked.
fn check_node(shared: &Shared, node: &str) -> Result<()> {
    let resource = resources::find("", "v1", "nodes").ok_or_else(Status::no_such_path)?;
    match shared.store.get(&Key::new(resource.plural, "", node)) {
        Some(_) => Ok(()),
        None => Err(Status::not_found(resource, node)),
    }
}

/// Who answers for a node: this process, or the connections that the node has opened.
async fn node(shared: &Shared, node: &str) -> Result<Arc<dyn PodStreams>> {
    if let Some(own) = shared.streams.get().filter(|own| own.has(node)) {
        return Ok(Arc::clone(own));
    }
    match shared.remote.arrival(node).await {
        Ok(()) => Ok(Arc::new(Arc::clone(&shared.remote))),
        Err(error) => Err(refusal(&error)),
    }
}

/// Keeps a connection that a node has opened, to ask over it.
pub(crate) fn accept(shared: &Shared, head: &mut Parts, node: &str) -> Result<Response<Body>> {
    if head.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let held = head.extensions.remove::<Held>();
    let place = shared.remote.enter(node, held).ok_or_else(|| Status::too_many_requests(1))?;
    upgrade::open(head, &[wire::PROTOCOL], move |upgraded| async move {
        let socket = wire::socket(TokioIo::new(upgraded), Role::Server).await;
        Remote::keep(place, socket).await;
    })
}

/// The streams that a query asks for.
fn asked(query: &Query) -> Result<Streams> {
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    let tty = flag("tty");
    // upstream: a terminal has no errors of its own
    let streams =
        Streams { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr") && !tty, tty };
    if !streams.stdin && !streams.stdout && !streams.stderr {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(streams)
}

/// What a node said no to.
fn refusal(error: &Error) -> Status {
    match error {
        Error::NoNode(_) => Status::unavailable(&error.to_string()),
        Error::NotRunning(_) => Status::internal(&format!("unable to upgrade connection: {error}")),
        Error::Failed(_) => Status::internal(&error.to_string()),
    }
}
