//! One HTTP/2 connection over TLS, with as little around it as there can be: the machine is for the server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Lists and watches must not wait for the client to grant room.
const WINDOW_BYTES: u32 = 16 << 20;

/// Where a server is, and how to be let in.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    tls: TlsConnector,
    token: Option<HeaderValue>,
}

impl Endpoint {
    /// Of a server whose certificate is by this authority, given as PEM.
    pub fn new(address: SocketAddr, authority: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).context("read the authority")?;
        roots.add(authority).context("trust the authority")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("choose TLS versions")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)), token: None })
    }

    /// Whom to be from now on.
    pub fn set_token(&mut self, token: &str) -> Result<()> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).context("use the token")?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(())
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Client> {
        let tcp = TcpStream::connect(self.address).await.context("connect")?;
        tcp.set_nodelay(true).context("set no delay")?;
        let name = ServerName::from(self.address.ip());
        let tls = self.tls.connect(name, tcp).await.context("TLS handshake")?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(tls))
            .await
            .context("HTTP/2 handshake")?;
        tokio::spawn(connection);
        Ok(Client { sender, endpoint: self.clone() })
    }
}

/// A connection.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    endpoint: Endpoint,
}

impl Client {
    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<http::Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.endpoint.address))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .context("build a request")?;
        if let Some(token) = &self.endpoint.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        self.sender.ready().await.context("wait for the connection")?;
        self.sender.send_request(request).await.with_context(|| format!("send a request for {path}"))
    }

    /// Sends a body, and reads the answer to its end.
    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<StatusCode> {
        let response = self.send(Method::POST, path, body).await?;
        let status = response.status();
        let answer = response.into_body().collect().await.context("read an answer")?.to_bytes();
        if status.is_server_error() || status == StatusCode::UNPROCESSABLE_ENTITY {
            bail!("POST {path}: {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(status)
    }

    /// Reads an answer to its end, and says how long it is.
    pub async fn get(&mut self, path: &str) -> Result<u64> {
        let mut body = self.stream(path).await?;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.context("read an answer")?;
            length += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(length)
    }

    /// The body of an answer, as it comes.
    pub async fn stream(&mut self, path: &str) -> Result<Incoming> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        if response.status() != StatusCode::OK {
            bail!("GET {path}: {}", response.status());
        }
        Ok(response.into_body())
    }
}
