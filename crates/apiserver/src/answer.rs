//! HTTP answers of requests that succeeded.

use std::collections::HashSet;
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
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    warn(&mut response, warnings);
    response
}

/// Adds warnings to an answer.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in bounded(warnings) {
        if let Ok(value) = HeaderValue::from_bytes(warning_text(&warning).as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// upstream: the length of all warnings together, in characters.
const WARNINGS_MAX: usize = 4096;
/// upstream: the length of one warning when there are too many.
const WARNING_MAX: usize = 256;

/// Each warning once, and no more of them than fit into the head of an answer.
fn bounded(warnings: &[String]) -> Vec<String> {
    let length = |text: &String| text.chars().count();
    let mut seen = HashSet::new();
    let texts: Vec<&String> = warnings.iter().filter(|text| seen.insert(*text)).collect();
    if texts.iter().map(|text| length(text)).sum::<usize>() <= WARNINGS_MAX {
        return texts.into_iter().cloned().collect();
    }
    let mut written = 0;
    let mut kept = Vec::new();
    for text in texts {
        if written >= WARNINGS_MAX {
            break;
        }
        let short: String = text.chars().take(WARNING_MAX).collect();
        written += length(&short);
        kept.push(short);
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_said_once_and_cut_when_there_are_too_many() {
        let few = ["a".to_owned(), "b".repeat(300), "a".to_owned()];
        assert_eq!(bounded(&few), ["a".to_owned(), "b".repeat(300)]);
        let many: Vec<String> = (0..40).map(|i| format!("{i:02}{}", "ü".repeat(300))).collect();
        let want: Vec<String> = (0..16).map(|i| format!("{i:02}{}", "ü".repeat(254))).collect();
        assert_eq!(bounded(&many), want);
    }

    #[test]
    fn a_warning_is_escaped_and_keeps_its_letters() {
        let response = object(StatusCode::OK, Bytes::new(), &["say \"ü\"\n\\".to_owned()]);
        assert_eq!(response.headers()[header::WARNING].as_bytes(), "299 - \"say \\\"ü\\\"\\\\\"".as_bytes());
    }
}
