//! HTTP answers of requests that succeeded.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

/// An answer with the JSON of an object.
pub(crate) fn object(code: StatusCode, bytes: Bytes, warnings: &[String]) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&warning_text(warning)) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

/// An answer with a JSON value.
pub(crate) fn json(code: StatusCode, value: &Value, warnings: &[String]) -> Response<Body> {
    object(code, Bytes::from(value.to_string()), warnings)
}

/// `299 - "text"`, without control characters, with quotes and backslashes escaped.
fn warning_text(text: &str) -> String {
    let mut out = String::from("299 - \"");
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}
