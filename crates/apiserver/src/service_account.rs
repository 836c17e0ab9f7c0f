//! Tokens of ServiceAccounts: signed claims that say for whom, until when, and which object they end with.
//!
//! ```text
//!  POST serviceaccounts/{name}/token ─► request ─► Claims ─► Key::sign ─► eyJ…
//!  Authorization: Bearer eyJ…        ─► Key::verify ─► Claims ─► authenticate: is everything it names still there?
//! ```

mod authenticate;
mod claims;
mod key;
mod request;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::status::Result;
use crate::{Shared, answer};

pub(crate) use authenticate::{Refusal, authenticate};
pub use key::{Error as KeyError, Key};
pub(crate) use request::create;

/// upstream's default: whom tokens are issued by, and whom they are for when nobody is named.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// What a server signs and checks tokens with. One that was given no key has one of its own while it lives.
pub(crate) fn key_of(shared: &Shared) -> &Key {
    shared.token_key.get_or_init(Key::generate)
}

/// `/.well-known/openid-configuration`: how others can check tokens of this server.
pub(crate) fn discovery(head: &Parts) -> Response<Body> {
    let host = head.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
    let document = json!({
        "issuer": ISSUER,
        "jwks_uri": format!("https://{host}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    cached(answer::json(StatusCode::OK, &document, &[]))
}

/// `/openid/v1/jwks`: the public part of the key.
pub(crate) fn key_set(shared: &Shared) -> Result<Response<Body>> {
    let mut response = answer::json(StatusCode::OK, &json!({"keys": [key_of(shared).public()]}), &[]);
    let media = HeaderValue::from_static("application/jwk-set+json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(cached(response))
}

fn cached(mut response: Response<Body>) -> Response<Body> {
    let value = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}
