//! The handshake of a WebSocket, on a request that may become one.

use axum::body::Body;
use base64::Engine as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::status::{Result, Status};

/// Whether a client wants to go on in another protocol.
pub(super) fn is_wanted(head: &Parts, protocol: &str) -> bool {
    has_token(&head.headers, header::UPGRADE, protocol)
}

/// Answers with an upgrade to the first of the protocols that the client knows, and goes on with the connection that
/// comes of it.
pub(super) fn open<F>(
    head: &mut Parts,
    protocols: &[&'static str],
    go_on: impl FnOnce(Upgraded) -> F + Send + 'static,
) -> Result<Response<Body>>
where
    F: Future<Output = ()> + Send,
{
    let (protocol, accept) = handshake(head, protocols)?;
    let Some(upgrade) = head.extensions.remove::<OnUpgrade>() else {
        return Err(Status::bad_request("unable to upgrade: this connection can't become a WebSocket"));
    };
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => go_on(upgraded).await,
            Err(error) => tracing::debug!("upgrade to a WebSocket: {error}"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// The protocol to speak, and the answer to the key; or why this request is none that opens a WebSocket.
fn handshake(head: &Parts, protocols: &[&'static str]) -> Result<(&'static str, HeaderValue)> {
    let headers = &head.headers;
    let is_upgrade = head.version == Version::HTTP_11
        && has_token(headers, header::CONNECTION, "upgrade")
        && has_token(headers, header::UPGRADE, "websocket");
    if !is_upgrade {
        return Err(Status::bad_request("Upgrade request required"));
    }
    check_origin(headers)?;
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key));
    let (Some(b"13"), Some(key)) = (version, key) else {
        return Err(Status::bad_request("the request is not a handshake of WebSocket version 13"));
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|error| Status::internal(&error.to_string()))?;
    let protocol = protocols
        .iter()
        .find(|protocol| has_token(headers, header::SEC_WEBSOCKET_PROTOCOL, protocol))
        .ok_or_else(|| {
            Status::bad_request(format!("none of the requested protocols is one of {}", protocols.join(", ")))
        })?;
    Ok((protocol, accept))
}

fn is_key(key: &HeaderValue) -> bool {
    base64::engine::general_purpose::STANDARD.decode(key.as_bytes()).is_ok_and(|key| key.len() == 16)
}

/// Whether one of the comma-separated words of a header is this one, in any case.
fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// A page of another site must not open a shell with the certificate of its visitor.
fn check_origin(headers: &HeaderMap) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let own = origin.split_once("://").map(|(_, host)| host);
    if own.is_some() && own == text(header::HOST) {
        return Ok(());
    }
    Err(Status::denied("", "", "", &format!("origin {origin:?} is not this server")))
}
