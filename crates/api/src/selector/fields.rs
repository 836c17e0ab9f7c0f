//! Field selectors: `status.phase=Running,spec.nodeName!=a`.

use std::fmt;

/// A condition on named fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    is_equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads the form that queries use; `\` takes the meaning from `,`, `=` and itself in a value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_at_commas(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, is_equal, value)) = split_at_operator(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            let value = unescape(value)?;
            // A term without field and value restricts nothing.
            if !field.is_empty() || !value.is_empty() {
                terms.push(Term { field: field.to_owned(), is_equal, value });
            }
        }
        Ok(Self(terms))
    }

    /// The fields it looks at.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| term.field.as_str())
    }

    /// The value that `field` must have, if there is just one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.is_equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether it matches an object with these (field, value) pairs; a field that is not listed is empty.
    pub fn matches(&self, fields: &[(&str, &str)]) -> bool {
        self.0.iter().all(|term| {
            let value = fields.iter().find(|(field, _)| *field == term.field).map_or("", |(_, value)| value);
            (value == term.value) == term.is_equal
        })
    }
}

/// The form that [`FieldSelector::parse`] reads.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.0.iter().enumerate() {
            let value = term.value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            let (comma, operator) = (if i == 0 { "" } else { "," }, if term.is_equal { "=" } else { "!=" });
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == ',' {
            parts.push(&text[start..i]);
            start = i + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_at_operator(part: &str) -> Option<(&str, bool, &str)> {
    let at = part
        .char_indices()
        .map(|(i, _)| i)
        .find(|i| part[*i..].starts_with("!=") || part[*i..].starts_with('='))?;
    let (field, rest) = part.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").unwrap_or(&rest[1..]);
    Some((field, true, value))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Upstream prints the number of the character. A comma never gets here: it ends the term.
            '=' => return Err(format!("invalid field selector: unescaped character in value: {}", c as u32)),
            c => plain.push(c),
        }
    }
    Ok(plain)
}
