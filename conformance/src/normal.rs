//! What must differ between two servers is replaced by names that say what it was.
//!
//! UIDs, revisions and generated names become `<uid 1>`, `<version 2>`, ... in the order in which a conversation first
//! shows them: that an object has the same UID as before, or a new revision, is still compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// The names that one conversation has given so far.
#[derive(Debug, Default)]
pub struct Names {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    generated: BTreeMap<String, String>,
    /// What random ends follow to, besides names of objects that say so.
    prefixes: Vec<&'static str>,
}

impl Names {
    /// Says after which text five random characters come.
    pub fn expect_suffix(&mut self, prefix: &'static str) {
        self.prefixes.push(prefix);
    }

    /// Replaces everything in a value that must differ.
    pub fn normalise(&mut self, value: &mut Value) {
        self.learn(value, false);
        self.replace(value, "");
    }

    /// Looks for revisions and generated names, which can be told by their place only.
    fn learn(&mut self, value: &Value, is_list: bool) {
        match value {
            Value::Object(map) => {
                if let Some(Value::Object(meta)) = map.get("metadata") {
                    self.learn_meta(meta, is_list || map.contains_key("items") || map.contains_key("rows"));
                }
                map.values().for_each(|value| self.learn(value, false));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn learn_meta(&mut self, meta: &serde_json::Map<String, Value>, is_list: bool) {
        let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("resourceVersion");
        // A list is as new as the store, and others write to it too.
        if !version.is_empty() && version != "0" && !is_list && !self.versions.contains_key(version) {
            let number = self.versions.len() + 1;
            self.versions.insert(version.to_owned(), number);
        }
        let (base, name) = (text("generateName"), text("name"));
        // A base that is too long is cut.
        let base = &base[..base.len().min(58)];
        if !base.is_empty() && name.len() == base.len() + 5 && name.starts_with(base) {
            self.generated.insert(name.to_owned(), format!("{base}<5>"));
        }
    }

    fn replace(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::Object(map) => {
                let is_list = map.contains_key("items") || map.contains_key("rows");
                for (key, value) in map.iter_mut() {
                    if is_list && key == "metadata" {
                        self.replace_list_meta(value);
                    } else {
                        self.replace(value, key);
                    }
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.replace(item, key));
                // They stand in the order of their times, and two servers need not have the same second.
                if key == "managedFields" {
                    items.sort_by_key(owner);
                }
            }
            Value::String(text) => *text = self.replaced(text, key),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn replace_list_meta(&mut self, meta: &mut Value) {
        for (field, name) in [("resourceVersion", "<version of the list>"), ("continue", "<token>")] {
            if meta.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
                meta[field] = Value::from(name);
            }
        }
    }

    fn replaced(&mut self, text: &str, key: &str) -> String {
        match key {
            "resourceVersion" => return self.version(text),
            "continue" if !text.is_empty() => return "<token>".to_owned(),
            // A column of a table.
            "cells" if is_age(text) => return "<age>".to_owned(),
            _ => {}
        }
        if let Some(name) = time_name(text) {
            return name.to_owned();
        }
        let mut text = self.uids_replaced(text);
        for (generated, name) in &self.generated {
            text = text.replace(generated, name);
        }
        for prefix in self.prefixes.iter().chain(&["kube-api-access-"]) {
            text = without_suffix(&text, prefix);
        }
        if matches!(key, "message" | "body") { self.versions_replaced(&text) } else { text }
    }

    fn version(&self, text: &str) -> String {
        match self.versions.get(text) {
            Some(number) => format!("<version {number}>"),
            None if matches!(text, "" | "0") => text.to_owned(),
            None => "<version>".to_owned(),
        }
    }

    /// All UIDs in a text by their names.
    pub fn uids_replaced(&mut self, text: &str) -> String {
        let bytes = text.as_bytes();
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            if bytes.get(at..at + 36).is_some_and(is_uid) {
                let next = self.uids.len() + 1;
                let number = *self.uids.entry(text[at..at + 36].to_owned()).or_insert(next);
                out.push_str(&format!("<uid {number}>"));
                at += 36;
            } else {
                let c = text[at..].chars().next().unwrap_or_default();
                out.push(c);
                at += c.len_utf8();
            }
        }
        out
    }

    /// Numbers in a message that are known to be revisions.
    fn versions_replaced(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut digits = String::new();
        for c in text.chars().chain(std::iter::once('\0')) {
            if c.is_ascii_digit() {
                digits.push(c);
                continue;
            }
            // The 64 of base64 is none.
            let is_word = out.ends_with(|before: char| before.is_ascii_alphabetic());
            match self.versions.get(&digits).filter(|_| !is_word) {
                Some(number) => out.push_str(&format!("<version {number}>")),
                None => out.push_str(&digits),
            }
            digits.clear();
            if c != '\0' {
                out.push(c);
            }
        }
        out
    }
}

/// Whose entry it is.
fn owner(entry: &Value) -> String {
    ["manager", "operation", "subresource", "apiVersion"].map(|field| entry[field].to_string()).join(" ")
}

fn is_uid(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    })
}

/// Whether a text is a span of time, as tables show it: `5s`, `2m3s`, `1h`.
pub fn is_age(text: &str) -> bool {
    let mut number = false;
    let mut units = 0;
    for c in text.chars() {
        match c {
            '0'..='9' => number = true,
            's' | 'm' | 'h' | 'd' if number => {
                number = false;
                units += 1;
            }
            _ => return false,
        }
    }
    units > 0 && !number
}

/// What a time is called: with and without fractions is a difference.
fn time_name(text: &str) -> Option<&'static str> {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    match shape.as_str() {
        "0000-00-00T00:00:00Z" => Some("<time>"),
        "0000-00-00T00:00:00.000000Z" => Some("<time in microseconds>"),
        _ => None,
    }
}

/// Five random characters after each place where the prefix stands.
fn without_suffix(text: &str, prefix: &str) -> String {
    let mut parts = text.split(prefix);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(prefix);
        let is_suffix = part.len() >= 5 && part.as_bytes()[..5].iter().all(u8::is_ascii_alphanumeric);
        out.push_str(if is_suffix { "<5>" } else { "" });
        out.push_str(if is_suffix { &part[5..] } else { part });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_must_differ_is_named_and_identity_is_kept() {
        let mut names = Names::default();
        let uid = "6b1f3e34-0f0e-4b7e-9b0a-3f6a4f0c8f11";
        let mut value = json!({"body": {
            "metadata": {"name": "a-x2x4z", "generateName": "a-", "uid": uid, "resourceVersion": "17",
                "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"renewTime": "2026-01-02T03:04:05.000001Z", "owner": uid},
            "message": format!("a-x2x4z {uid} at 17, not 18"),
        }});
        names.normalise(&mut value);
        let want = json!({"body": {
            "metadata": {"name": "a-<5>", "generateName": "a-", "uid": "<uid 1>", "resourceVersion": "<version 1>",
                "creationTimestamp": "<time>"},
            "spec": {"renewTime": "<time in microseconds>", "owner": "<uid 1>"},
            "message": "a-<5> <uid 1> at <version 1>, not 18",
        }});
        assert_eq!(value, want);
        let mut again = json!({"metadata": {"uid": uid, "resourceVersion": "19"}});
        names.normalise(&mut again);
        assert_eq!(again, json!({"metadata": {"uid": "<uid 1>", "resourceVersion": "<version 2>"}}));
    }
}
