//! What stands between a controller and the API server: it writes down every write, and can lose some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
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
    /// The server has too much to do, and says for how many seconds.
    PushBack(u32),
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
    /// Reads get through. When they do not, watches break, and what was missed can't be watched again.
    is_open: Arc<watch::Sender<bool>>,
    /// Watches to be told that what they ask for is too old.
    expired: Arc<AtomicU32>,
}

impl Tap {
    /// A tap that asks `judge` about the k-th write.
    pub fn new(world: &World, judge: impl Fn(usize, &Write) -> Verdict + Send + Sync + 'static) -> Self {
        Self {
            server: world.server.router(),
            log: Arc::default(),
            judge: Arc::new(judge),
            is_dead: Arc::default(),
            is_open: Arc::new(watch::Sender::new(true)),
            expired: Arc::default(),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), NAMESPACE)
    }

    pub fn writes(&self) -> Vec<Write> {
        self.log.lock().clone()
    }

    /// Breaks the watches of Jobs and pods, and lets no read through.
    pub fn blind(&self) {
        self.expired.store(2, Ordering::SeqCst);
        self.is_open.send_replace(false);
    }

    /// Lets reads through again.
    pub fn see(&self) {
        self.is_open.send_replace(true);
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
        if path.ends_with("/events") || path.contains("/events/") {
            return Ok(self.server.call(request).await?);
        }
        if request.method() == Method::GET {
            return self.read(request).await;
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
                return refusal(code, "InternalError", "out of order");
            }
            Verdict::PushBack(seconds) => {
                self.log.lock()[k].code = Some(429);
                // As the priority and fairness filter of kube-apiserver answers: no Status, but a header.
                let answer = Response::builder().status(429).header("Retry-After", seconds.to_string());
                return Ok(answer.body(Body::from("Too many requests, please try again later."))?);
            }
            Verdict::After(deed) => deed().await,
        }
        let answer = self.server.call(request).await?;
        self.log.lock()[k].code = Some(answer.status().as_u16());
        Ok(answer)
    }

    async fn read(mut self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        let mut is_open = self.is_open.subscribe();
        is_open.wait_for(|is_open| *is_open).await?;
        if !request.uri().query().is_some_and(|query| query.contains("watch=")) {
            return Ok(self.server.call(request).await?);
        }
        let is_expired =
            self.expired.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if is_expired.is_ok() {
            return refusal(410, "Expired", "too old resource version");
        }
        let (head, body) = self.server.call(request).await?.into_parts();
        let closed = async move { _ = is_open.wait_for(|is_open| !*is_open).await };
        let body = Body::from_stream(body.into_data_stream().take_until(Box::pin(closed)));
        Ok(Response::from_parts(head, body))
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> Result<Response<Body>, BoxError> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message,
    });
    Ok(Response::builder().status(code).body(Body::from(status.to_string()))?)
}
