//! What stands between a controller and the API server: it writes down every write, and can lose some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use parking_lot::Mutex;
use tower::{BoxError, Service};

use crate::world::{NAMESPACE, World};

/// One write that reached the tap. Events are not writes.
#[derive(Clone, Debug)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub body: String,
    /// `None` when the answer, or the request, was lost.
    pub code: Option<u16>,
}

/// What to do with a write.
#[derive(Clone)]
pub enum Verdict {
    Pass,
    /// It never arrives.
    LoseRequest,
    /// It is done, and nobody hears of it.
    LoseAnswer,
    /// The server says no.
    Refuse(u16),
    /// This is done first.
    After(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>),
}

type Judge = dyn Fn(usize, &Write) -> Verdict + Send + Sync;

/// The tap. Clones are the same tap.
#[derive(Clone)]
pub struct Tap {
    server: Router,
    log: Arc<Mutex<Vec<Write>>>,
    judge: Arc<Judge>,
    is_dead: Arc<AtomicBool>,
}

impl Tap {
    /// A tap that asks `judge` about the k-th write.
    pub fn new(world: &World, judge: impl Fn(usize, &Write) -> Verdict + Send + Sync + 'static) -> Self {
        Self { server: world.server.router(), log: Arc::default(), judge: Arc::new(judge), is_dead: Arc::default() }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), NAMESPACE)
    }

    pub fn writes(&self) -> Vec<Write> {
        self.log.lock().clone()
    }

    /// From now on nothing gets through: the controller is as good as dead.
    pub fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }
}

impl Service<Request<kube::client::Body>> for Tap {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let tap = self.clone();
        Box::pin(async move { tap.pass(request).await })
    }
}

impl Tap {
    async fn pass(mut self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        if self.is_dead.load(Ordering::SeqCst) {
            return Err("the connection is cut".into());
        }
        let path = request.uri().path().to_owned();
        if request.method() == Method::GET || path.ends_with("/events") || path.contains("/events/") {
            return Ok(self.server.call(request).await?);
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let body = String::from_utf8_lossy(&bytes).into_owned();
        let write = Write { method: head.method.clone(), path, body, code: None };
        let k = {
            let mut log = self.log.lock();
            log.push(write.clone());
            log.len() - 1
        };
        let request = Request::from_parts(head, kube::client::Body::from(bytes.to_vec()));
        match (self.judge)(k, &write) {
            Verdict::Pass => {}
            Verdict::LoseRequest => return Err("the request is lost".into()),
            Verdict::LoseAnswer => {
                _ = self.server.call(request).await?;
                return Err("the answer is lost".into());
            }
            Verdict::Refuse(code) => {
                self.log.lock()[k].code = Some(code);
                let status = serde_json::json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": "InternalError", "message": "out of order",
                });
                return Ok(Response::builder().status(code).body(Body::from(status.to_string()))?);
            }
            Verdict::After(deed) => deed().await,
        }
        let answer = self.server.call(request).await?;
        self.log.lock()[k].code = Some(answer.status().as_u16());
        Ok(answer)
    }
}
