//! HTTP answers of requests that succeeded.

use std::io::Write;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::status::Status;

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

/// upstream: smaller answers are sent as they are.
const GZIP_BYTES_MIN: u64 = 128 << 10;

/// The answer with its body compressed, when it is large and not a stream.
pub(crate) async fn compressed(response: Response<Body>) -> Response<Body> {
    if response.body().size_hint().exact().is_none_or(|size| size <= GZIP_BYTES_MIN) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Status::internal(&error.to_string()).into_response(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    match encoder.write_all(&body).and_then(|()| encoder.finish()) {
        Ok(small) => {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            Response::from_parts(head, Body::from(small))
        }
        Err(_) => Response::from_parts(head, Body::from(body)),
    }
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
