//! The messages of Kubernetes: `schema.txt`, read when the first protobuf body comes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// All messages and what can be the body of a request.
#[derive(Debug, Default)]
pub(super) struct Schema {
    messages: Vec<Message>,
    /// (apiVersion, kind) to the index of a message.
    kinds: BTreeMap<(String, String), usize>,
}

/// The fields of a message, in the order of their JSON.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) name: String,
    /// Whether it is left out of the JSON when it is empty.
    pub(super) is_optional: bool,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One, which is zero when it is not given.
    One,
    /// One or none.
    Pointer,
    List,
    /// By text.
    Map,
    /// A message whose fields stand among those of this one.
    Inline,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
    Bool,
    Int32,
    Int64,
    /// By its index.
    Message(usize),
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message with a list of texts, which is just the list in JSON.
    Strings,
    /// A message with the bytes of a JSON value.
    Json,
}

/// The table of this server.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::parse(include_str!("schema.txt")).expect("a test reads the table"));
    &SCHEMA
}

impl Schema {
    /// The message of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let key = |version: &str| (version.to_owned(), kind.to_owned());
        let index = self.kinds.get(&key(api_version)).or_else(|| self.kinds.get(&key("*")))?;
        Some(&self.messages[*index])
    }

    pub(super) fn message(&self, index: usize) -> &Message {
        &self.messages[index]
    }

    /// Reads a table; the form is described at its beginning.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let names = lines().filter_map(|line| line.strip_prefix("message "));
        let indexes: BTreeMap<&str, usize> = names.enumerate().map(|(index, name)| (name, index)).collect();
        let mut schema = Self::default();
        for line in lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let bad = || format!("the line {line:?} of the table cannot be read");
            match words.as_slice() {
                ["kind", api_version, kind, message] => {
                    let index = indexes.get(message).ok_or_else(bad)?;
                    schema.kinds.insert(((*api_version).to_owned(), (*kind).to_owned()), *index);
                }
                ["message", _] => schema.messages.push(Message::default()),
                [number, name, value] => {
                    let field = field(number, name, value, &indexes).ok_or_else(bad)?;
                    schema.messages.last_mut().ok_or_else(bad)?.fields.push(field);
                }
                _ => return Err(bad()),
            }
        }
        if schema.messages.len() != indexes.len() {
            return Err("a message stands twice in the table".to_owned());
        }
        Ok(schema)
    }
}

fn field(number: &str, name: &str, value: &str, messages: &BTreeMap<&str, usize>) -> Option<Field> {
    let (shape, kind) = match value {
        inner if name == "." => (Shape::Inline, inner),
        pointer if pointer.starts_with('*') => (Shape::Pointer, &pointer[1..]),
        list if list.starts_with("[]") => (Shape::List, &list[2..]),
        value => value.strip_prefix("map[string]").map_or((Shape::One, value), |inner| (Shape::Map, inner)),
    };
    Some(Field {
        number: number.parse().ok()?,
        name: name.trim_end_matches('?').to_owned(),
        is_optional: name.ends_with('?'),
        shape,
        kind: kind_of(kind, messages)?,
    })
}

fn kind_of(name: &str, messages: &BTreeMap<&str, usize>) -> Option<Kind> {
    Some(match name {
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "Time" => Kind::Time,
        "MicroTime" => Kind::MicroTime,
        "Quantity" => Kind::Quantity,
        "IntOrString" => Kind::IntOrString,
        "Strings" => Kind::Strings,
        "JSON" => Kind::Json,
        message => Kind::Message(*messages.get(message)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    #[test]
    fn the_table_can_be_read() {
        Schema::parse(include_str!("schema.txt")).expect("the table can be read");
    }

    #[test]
    fn every_kind_that_is_served_is_in_the_table() {
        let missing: Vec<_> = resources::all()
            .iter()
            .filter(|resource| schema().kind(resource.api_version, resource.kind).is_none())
            .map(|resource| (resource.api_version, resource.kind))
            .collect();
        assert_eq!(missing, []);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_told() {
        let cases = [
            "kind v1 A A",
            "1 a string",
            "message A\n1 a strings",
            "message A\nx a string",
            "message A\n1 . string?",
            "message A\n1 a",
            "message A\nmessage A",
        ];
        for text in cases {
            assert!(Schema::parse(text).is_err(), "{text}");
        }
    }
}
