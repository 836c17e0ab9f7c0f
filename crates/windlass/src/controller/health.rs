//! Health and metrics over HTTP: `/livez`, `/readyz`, `/metrics`.
//!
//! Live: not a leader that has lost its lease long ago and did not notice. Ready: all Jobs and pods are known and worked
//! on, or this replica waits for the lease and the API server answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use windlass_controllers::lease::Fence;
use windlass_controllers::metrics::Metrics;

use super::Error;

/// A leader whose lease expired longer ago than this hangs: client-go's tolerance.
const EXPIRED_MAX: Duration = Duration::from_secs(20);
/// Nobody needs more connections to ask for health.
const CONNECTIONS_MAX: usize = 64;
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How the controller is. Clones are the same.
#[derive(Clone)]
pub(super) struct Health(Arc<State>);

struct State {
    address: SocketAddr,
    metrics: Metrics,
    is_ready: AtomicBool,
    fence: std::sync::Mutex<Option<Fence>>,
}

impl Health {
    /// Listens, and answers from now on.
    pub(super) async fn bind(address: SocketAddr, metrics: Metrics) -> Result<Self, Error> {
        let wrong = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let state = State { address, metrics, is_ready: AtomicBool::new(false), fence: Default::default() };
        let health = Self(Arc::new(state));
        tokio::spawn(health.clone().serve(listener));
        Ok(health)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(super) fn set_ready(&self, is_ready: bool) {
        self.0.is_ready.store(is_ready, Ordering::SeqCst);
    }

    /// This replica leads as long as the fence is open, or does not lead.
    pub(super) fn leads(&self, fence: Option<Fence>) {
        *self.0.fence.lock().expect("nothing panics with the lock held") = fence;
    }

    async fn serve(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let health = self.clone();
            tokio::spawn(async move {
                health.talk(stream).await;
                drop(place);
            });
        }
    }

    async fn talk(self, stream: TcpStream) {
        let answer = service_fn(move |request: Request<Incoming>| {
            let answer = self.answer(request.method(), request.uri().path());
            async move { answer }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
        // A client that goes away is no news.
        _ = server.serve_connection(TokioIo::new(stream), answer).await;
    }

    fn answer(&self, method: &Method, path: &str) -> http::Result<Response<Full<Bytes>>> {
        let plain = "text/plain; charset=utf-8";
        let (code, kind, text) = match (method == Method::GET || method == Method::HEAD, path) {
            (false, _) => (StatusCode::METHOD_NOT_ALLOWED, plain, "only GET\n".to_owned()),
            (true, "/livez" | "/healthz") => said(self.is_live(), "the lease expired long ago"),
            (true, "/readyz") => said(self.0.is_ready.load(Ordering::SeqCst), "not ready"),
            (true, "/metrics") => (StatusCode::OK, Metrics::CONTENT_TYPE, self.0.metrics.text()),
            (true, _) => {
                (StatusCode::NOT_FOUND, plain, "there are /livez, /readyz and /metrics\n".to_owned())
            }
        };
        Response::builder().status(code).header(header::CONTENT_TYPE, kind).body(Full::from(text))
    }

    fn is_live(&self) -> bool {
        let fence = self.0.fence.lock().expect("nothing panics with the lock held");
        fence.as_ref().is_none_or(|fence| fence.expired_for() < EXPIRED_MAX)
    }
}

fn said(is_well: bool, otherwise: &str) -> (StatusCode, &'static str, String) {
    let plain = "text/plain; charset=utf-8";
    if is_well {
        (StatusCode::OK, plain, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, plain, format!("{otherwise}\n"))
    }
}
