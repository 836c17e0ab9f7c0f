//! The connections that a node opens to its server, so that logs, exec and attach reach it. The node listens nowhere.

use std::io;
use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use windlass_streams::{PodStreams, wire};

/// How to open them.
pub struct Dial {
    client: kube::Client,
    path: String,
}

impl Dial {
    /// To the server of a config, for a node. The server is known by its certificate, the node by its credential.
    pub fn new(config: &kube::Config, node: &str) -> kube::Result<Self> {
        // Whoever follows a log may read nothing of it for as long as they like.
        let mut config = config.clone();
        (config.read_timeout, config.write_timeout) = (None, None);
        // kube's own client speaks HTTP/1.1, which is what can be upgraded.
        Ok(Self { client: kube::Client::try_from(config)?, path: wire::path(node) })
    }

    /// Offers what a node has, for ever.
    pub async fn offer(self, streams: Arc<dyn PodStreams>) {
        windlass_streams::offer(|| self.connect(), streams).await;
    }

    async fn connect(&self) -> io::Result<wire::Socket> {
        let key = generate_key();
        let request = Request::get(&self.path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, wire::PROTOCOL)
            .body(Body::empty())
            .map_err(io::Error::other)?;
        let response = self.client.send(request).await.map_err(io::Error::other)?;
        if !is_upgraded(response.status(), response.headers(), &key) {
            return Err(io::Error::other(format!("the server answered {}", response.status())));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        Ok(wire::socket(TokioIo::new(upgraded), Role::Client).await)
    }
}

fn is_upgraded(status: StatusCode, headers: &HeaderMap, key: &str) -> bool {
    let is = |name, value: &str| headers.get(name).is_some_and(|given| given.as_bytes() == value.as_bytes());
    status == StatusCode::SWITCHING_PROTOCOLS
        && is(header::SEC_WEBSOCKET_PROTOCOL, wire::PROTOCOL)
        && is(header::SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()))
}
