//! What stands between our controller and the API server: it counts writes and can cut the connection at one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tower::{BoxError, Service};

/// Where the controller is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// Before this write, counted from 0, reaches the API server.
    Before(usize),
    /// After it was done, before the controller hears of it.
    After(usize),
}

/// The writes of all controllers of one run, and the one at which one of them is killed.
#[derive(Debug, Default)]
pub struct Writes {
    count: AtomicUsize,
    kill: Option<Kill>,
    /// Rung when the controller is to be killed.
    pub(super) killed: Notify,
}

impl Writes {
    /// Counts, and kills if it is time.
    pub fn new(kill: Option<Kill>) -> Arc<Self> {
        Arc::new(Self { kill, ..Self::default() })
    }

    /// Writes so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// The connection of one controller. Clones are the same connection.
#[derive(Clone)]
pub struct Tap {
    client: Client,
    writes: Arc<Writes>,
    is_cut: Arc<AtomicBool>,
}

impl Tap {
    /// A connection to the API server of `client`.
    pub fn new(client: Client, writes: Arc<Writes>) -> Self {
        Self { client, writes, is_cut: Arc::default() }
    }

    /// A client of it.
    pub fn client(&self, namespace: &str) -> Client {
        Client::new(self.clone(), namespace)
    }

    /// Nothing gets through any more.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    async fn pass(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err("the connection is cut".into());
        }
        let path = request.uri().path();
        if request.method() == Method::GET || path.ends_with("/events") || path.contains("/events/") {
            return Ok(self.client.send(request).await?);
        }
        let number = self.writes.count.fetch_add(1, Ordering::SeqCst);
        if self.writes.kill == Some(Kill::Before(number)) {
            return Err(self.kill());
        }
        let answer = self.client.send(request).await?;
        if self.writes.kill == Some(Kill::After(number)) {
            return Err(self.kill());
        }
        Ok(answer)
    }

    fn kill(&self) -> BoxError {
        self.cut();
        self.writes.killed.notify_one();
        "the controller is killed".into()
    }
}

impl Service<Request<Body>> for Tap {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
