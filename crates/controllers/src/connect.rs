//! Connections to a real API server: HTTP/2, kept alive, and silent once the lease is lost.
//!
//! kube's own client speaks HTTP/1.1 only, so that every write under way has a TLS connection of its own, and sends a
//! POST again after a 503 or 504, which may make a second object. Watches and writes have one connection each: on a
//! shared one, events wait behind answers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceBuilder};

use crate::lease::{Fence, Fenced};

/// A connection that is silent for so long is asked whether it is there, and given up: client-go's numbers.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIME_MAX: Duration = Duration::from_secs(15);

/// What may be on its way to us unasked. Fixed: finding out takes a ping with every other frame, as long as anything comes.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// What audit logs and metrics of the API server know us by.
const USER_AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

/// A client with a connection of its own, that sends each request once. With a fence, it sends nothing after that is
/// closed.
pub fn client(config: &Config, fence: Option<Fence>) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // Says which proxies it can't speak to.
        return Client::try_from(config.clone());
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut config = config.clone();
    config.headers.push((http::header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name =
                ServerName::try_from(name.clone()).map_err(|error| kube::Error::Service(error.into()))?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connector = tls.enable_all_versions().wrap_connector(Connector { tcp, fence });
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIME_MAX)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Connects, and puts the fence between us and the network.
#[derive(Clone, Debug)]
struct Connector {
    tcp: HttpConnector,
    fence: Option<Fence>,
}

impl Service<Uri> for Connector {
    type Response = Fenced<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Pin::new(&mut self.tcp).poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, fence) = (self.tcp.call(uri), self.fence.clone());
        Box::pin(async move { Ok(Fenced { inner: connecting.await?, fence }) })
    }
}
