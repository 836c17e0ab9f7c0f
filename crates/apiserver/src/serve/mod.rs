//! The network: TLS connections to a [`Guard`], HTTP/1.1 and HTTP/2.

pub mod files;
pub mod pki;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::auth::certificate::ClientCertificates;
use crate::auth::{Guard, Peer};
use pki::Pki;

/// upstream: and what keeps one connection from taking the whole server.
const STREAMS_MAX: u32 = 100;
/// A handshake and the head of a request come at once, or not at all.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIME_MAX: Duration = Duration::from_secs(20);
/// What is under way when the server stops has this long to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
const CONNECTIONS_MAX: usize = 4096;
/// After an `accept` that failed for want of something, such as file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a server can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its certificates are of no use.
    #[error("set up TLS: {0}")]
    Tls(String),
    /// Its address can't be had.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A server that listens, and will answer once it runs.
pub struct Listener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    clients: ClientCertificates,
    address: SocketAddr,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on an address with these certificates.
    pub async fn bind(address: SocketAddr, pki: &Pki) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let ca = CertificateDer::from_pem_slice(pki.ca_certificate().as_bytes())
            .map_err(|error| Error::Tls(error.to_string()))?;
        let clients = ClientCertificates::new(ca, Arc::clone(&provider))
            .map_err(|error| Error::Tls(error.to_string()))?;
        let config = config(pki, &clients, provider)?;
        let bind_error = |source| Error::Bind { address, source };
        let tcp = TcpListener::bind(address).await.map_err(bind_error)?;
        let address = tcp.local_addr().map_err(bind_error)?;
        Ok(Self { tcp, tls: TlsAcceptor::from(Arc::new(config)), clients, address })
    }

    /// Where it listens: the port that was found when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop; then lets what is under way end, for a moment.
    pub async fn run(self, guard: Arc<Guard>, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let http = Arc::new(builder());
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stop.cancelled() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                continue;
            };
            let connection = Connection {
                tls: self.tls.clone(),
                clients: self.clients.clone(),
                guard: Arc::clone(&guard),
                http: Arc::clone(&http),
                stop: stop.clone(),
            };
            connections.spawn(async move {
                connection.serve(stream).await;
                drop(place);
            });
        }
        drop(self.tcp);
        let _ =
            tokio::time::timeout(STOP_TIME_MAX, async { while connections.join_next().await.is_some() {} })
                .await;
        // Watches never end by themselves.
        connections.shutdown().await;
    }
}

fn config(
    pki: &Pki,
    clients: &ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, Error> {
    let (certificate, key) = pki.serving.der().map_err(Error::Tls)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_client_cert_verifier(clients.asking())
        .with_single_cert(vec![certificate], key)
        .map_err(|error| Error::Tls(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME_MAX);
    builder
}

/// What one connection needs.
struct Connection {
    tls: TlsAcceptor,
    clients: ClientCertificates,
    guard: Arc<Guard>,
    http: Arc<auto::Builder<TokioExecutor>>,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let address = stream.peer_addr().ok().map(|address| address.ip());
        // Small answers must not wait for more to send.
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE_TIME_MAX, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("TLS handshake: {error}"),
            Err(_) => return tracing::debug!("TLS handshake: took too long"),
        };
        let peer = Arc::new(self.peer(&stream, address));
        let guard = Arc::clone(&self.guard);
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (guard, peer) = (Arc::clone(&guard), Arc::clone(&peer));
            async move {
                let response = guard.answer(&peer, request.map(Body::new)).await;
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("connection: {error}");
        }
    }

    fn peer(&self, stream: &TlsStream<TcpStream>, address: Option<IpAddr>) -> Peer {
        match stream.get_ref().1.peer_certificates() {
            Some(chain) => {
                let certified = self.clients.check(chain, UnixTime::now());
                Peer { certified, has_certificate: true, address }
            }
            None => Peer { address, ..Peer::default() },
        }
    }
}
