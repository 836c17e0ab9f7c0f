//! What the JSON decoder of upstream says of a body that is no JSON, or of another kind: its texts reach clients.

use serde_json::Value;

use crate::decode;

/// What is decoded first: which kind it is.
const TYPE: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// The JSON object in a body and whether it has a field twice, or why there is none.
pub(crate) fn parse(body: &[u8]) -> Result<(Value, bool), String> {
    let of_type = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let mut has_twice = false;
    let value = decode::value(body, &mut has_twice).map_err(|error| of_type(syntax(body, &error)))?;
    match name(&value) {
        // upstream: null leaves the struct as it is
        "object" | "null" => Ok((value, has_twice)),
        given => Err(of_type(format!("json: cannot unmarshal {given} into Go value of type {TYPE}"))),
    }
}

/// What the decoder calls a value.
fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The text for a value that is not what was expected.
pub(crate) fn cannot_unmarshal(value: &Value, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {expected}", name(value))
}

/// The text for bytes that are no JSON.
pub(crate) fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied().map(char::from);
    let (Some(found), "trailing characters") = (found, text_of(error).as_str()) else {
        return error.to_string();
    };
    format!("invalid character '{found}' after top-level value")
}

/// The text of an error without its place.
fn text_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// A kind that nobody has heard of. upstream: the registry is named after the line that makes it.
pub(crate) fn unregistered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_no_object_is_told_as_upstream_tells_it() {
        let cases: [(&str, &str); 3] = [
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (
                "{} {}",
                "couldn't get version/kind; json parse error: invalid character '{' after top-level value",
            ),
            (
                "[]",
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type \
                struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                \"json:\\\"kind,omitempty\\\"\" }",
            ),
        ];
        for (body, want) in cases {
            assert_eq!(parse(body.as_bytes()), Err(want.to_owned()), "{body}");
        }
        assert_eq!(parse(b"{}"), Ok((serde_json::json!({}), false)));
    }
}
