//! Formats of texts that only pods use: ports, environment variables, keys, paths, addresses.

use core::net::IpAddr;

use crate::field::{Error, Errors, Path};
use crate::validation::meta::pattern_text;

const KEY_BYTES_MAX: usize = 253;
const PORT_NAME_BYTES_MAX: usize = 15;

/// What is wrong with the name of a port; empty when fine.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_wanted = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > PORT_NAME_BYTES_MAX {
        wrong.push(format!("must be no more than {PORT_NAME_BYTES_MAX} characters"));
    }
    if name.is_empty() || !name.chars().all(is_wanted) {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// What is wrong with the number of a port.
pub(super) fn port_number(port: i32, path: &Path) -> Errors {
    if (1..=65535).contains(&port) {
        return Errors::new();
    }
    vec![Error::invalid(path, port, "must be between 1 and 65535, inclusive")]
}

/// What is wrong with the name of an environment variable, or the start of one; empty when fine.
pub(super) fn env_name(name: &str) -> Vec<String> {
    if name.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// What is wrong with a key of a ConfigMap or a Secret; empty when fine.
pub fn config_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if key.len() > KEY_BYTES_MAX {
        wrong.push(format!("must be no more than {KEY_BYTES_MAX} characters"));
    }
    if !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        wrong.push(pattern_text(text, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match key {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// What is wrong with the name of an HTTP header; empty when fine.
pub(super) fn header_name(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![pattern_text(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A path without `..` steps.
pub(super) fn no_backsteps(value: &str, path: &Path) -> Errors {
    if value.split('/').any(|step| step == "..") {
        return vec![Error::invalid(path, value, "must not contain '..'")];
    }
    Errors::new()
}

/// A relative path that does not leave where it starts.
pub(super) fn descending_path(value: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if value.starts_with('/') {
        errors.push(Error::invalid(path, value, "must be a relative path"));
    }
    errors.extend(no_backsteps(value, path));
    errors
}

/// A descending path that volumes may use: names that start with `..` are for their own bookkeeping.
pub(super) fn unreserved_path(value: &str, path: &Path) -> Errors {
    let mut errors = descending_path(value, path);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(Error::invalid(path, value, "must not start with '..'"));
    }
    errors
}

/// An IP address in its usual form.
pub(super) fn ip(value: &str, path: &Path) -> Errors {
    let text = match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address"
        }
        Ok(_) => return Errors::new(),
        Err(_) if is_padded_ipv4(value) => "must not have leading 0s",
        Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    };
    vec![Error::invalid(path, value, text)]
}

fn is_padded_ipv4(value: &str) -> bool {
    let parts: Vec<&str> = value.split('.').collect();
    parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}
