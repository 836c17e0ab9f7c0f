//! What must differ in printed text: ages, times, UIDs and revisions. The width of columns follows from them.

use serde_json::{Value, json};
use windlass_conformance::normal::{Names, is_age};

/// The lines of a text, without what must differ.
pub fn lines(text: &str) -> Value {
    let mut names = Names::default();
    let told = text.lines().filter(|line| !is_farewell(line));
    told.map(|text| json!(line(&names.uids_replaced(text)))).collect()
}

/// What kubectl may or may not log when it ends a watch of its own, whatever the server says.
fn is_farewell(line: &str) -> bool {
    line.starts_with('E')
        && line.contains(" reflector.go:")
        && line.contains(": context canceled\" reflector=")
}

fn line(text: &str) -> String {
    let indent = &text[..text.len() - text.trim_start().len()];
    let mut out = indent.to_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    while at < words.len() {
        if at > 0 {
            out.push(' ');
        }
        // Mon, 16 Nov 2026 00:00:00 +0000
        if words.len() >= at + 6 && words[at].ends_with(',') && words[at + 5] == "+0000" {
            out.push_str("<date>");
            at += 6;
        } else {
            out.push_str(&word(words[at], at.checked_sub(1).map(|before| words[before])));
            at += 1;
        }
    }
    out
}

fn word(text: &str, before: Option<&str>) -> String {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '(' | ')' | ',' | ';' | '[' | ']');
    let bare = text.trim_matches(is_quote);
    let name = if is_age(bare) || (bare == "<invalid>" || bare == "<unknown>") {
        "<age>"
    } else if is_time(bare) {
        "<time>"
    } else if before.is_some_and(|before| before.trim_matches('"') == "resourceVersion:") {
        "<version>"
    } else {
        return text.to_owned();
    };
    text.replace(bare, name)
}

fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with("0000-00-00T00:00:00") && shape.ends_with('Z')
}
