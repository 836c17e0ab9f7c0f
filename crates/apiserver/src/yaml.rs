//! YAML bodies: one document, as JSON, within the limits of what a client may ask a server to unfold.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;
use serde_saphyr::{Options, Spanned};

/// How deep a document may be.
const DEPTH_MAX: usize = 128;

/// Aliases are refused: with them a small body can become a large value (CVE-2019-11253).
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_depth: DEPTH_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // `0644` is 420, as for kubectl.
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// The document as JSON; null when there is none. The error is why it can't be read.
pub(crate) fn to_json(body: &[u8]) -> Result<Value, String> {
    // What most clients send is JSON, and not all of its escapes are YAML's.
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| format!("yaml: {}", one_line(&error.without_snippet().to_string())))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Texts about the keys that are given twice, as upstream says it.
pub(crate) fn duplicates(body: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    match serde_saphyr::from_str_with_options::<Twice>(text, options()) {
        Ok(Twice(texts)) => texts,
        Err(_) => Vec::new(),
    }
}

/// Walks over a document and notes keys that are there already.
struct Twice(Vec<String>);

impl<'de> Deserialize<'de> for Twice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Twice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Twice, A::Error> {
        let mut seen = HashSet::new();
        let mut texts = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = key.referenced.line();
            if !seen.insert(key.value.clone()) {
                texts.push(format!("line {line}: key {:?} already set in map", key.value));
            }
            texts.extend(map.next_value::<Twice>()?.0);
        }
        Ok(Twice(texts))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Twice, A::Error> {
        let mut texts = Vec::new();
        while let Some(Twice(more)) = seq.next_element()? {
            texts.extend(more);
        }
        Ok(Twice(texts))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_none<E>(self) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Twice, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Twice(Vec::new()))
    }
}
