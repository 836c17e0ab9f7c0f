//! One walk over the bytes of a document, in its order, that decodes nothing but names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::join;

/// upstream: more is not said.
pub(super) const TEXTS_MAX: usize = 100;

/// Texts about the fields that are given twice, and about those in `unknown`. Nothing for bytes that are not JSON.
pub(super) fn scan(body: &[u8], unknown: &[String]) -> Vec<String> {
    let unknown: HashSet<&str> = unknown.iter().map(String::as_str).collect();
    let mut texts = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let walk = Walk { path: &Place::Root, unknown: &unknown, texts: &mut texts };
    match walk.deserialize(&mut deserializer) {
        Ok(()) => texts,
        Err(_) => Vec::new(),
    }
}

/// Texts about the fields that are given twice.
pub(crate) fn duplicates(body: &[u8]) -> Vec<String> {
    scan(body, &[])
}

/// Where the walk is. Its text is only made when there is something to say.
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(parent, key) => join(&parent.text(), key),
            Self::Item(parent, index) => format!("{}[{index}]", parent.text()),
        }
    }
}

/// Every text is said once.
fn note(texts: &mut Vec<String>, text: String) {
    if texts.len() < TEXTS_MAX && !texts.contains(&text) {
        texts.push(text);
    }
}

struct Walk<'a> {
    path: &'a Place<'a>,
    unknown: &'a HashSet<&'a str>,
    texts: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A name, borrowed where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(name) = map.next_key_seed(Name)? {
            let path = Place::Field(self.path, &name);
            // upstream: a field that the type does not have is not looked into, and never a duplicate
            if !self.unknown.is_empty() && self.unknown.contains(path.text().as_str()) {
                note(self.texts, format!("unknown field {:?}", path.text()));
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if seen.contains(&name) {
                note(self.texts, format!("duplicate field {:?}", path.text()));
            }
            map.next_value_seed(Walk { path: &path, unknown: self.unknown, texts: &mut *self.texts })?;
            seen.insert(name);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let path = Place::Item(self.path, index);
            let walk = Walk { path: &path, unknown: self.unknown, texts: &mut *self.texts };
            if seq.next_element_seed(walk)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_twice_or_unknown_is_told_in_the_order_of_the_document() {
        let body = br#"{"a": 1, "b": {"c": [{"x": 1, "x": 2}, {"odd": {"y": 1, "y": 2}}], "c": 3}, "a": 2, "odd": 1, "odd": 2}"#;
        let unknown = ["b.c[1].odd".to_owned(), "odd".to_owned()];
        let want = [
            "duplicate field \"b.c[0].x\"",
            "unknown field \"b.c[1].odd\"",
            "duplicate field \"b.c\"",
            "duplicate field \"a\"",
            "unknown field \"odd\"",
        ];
        assert_eq!(scan(body, &unknown), want);
    }

    #[test]
    fn maps_and_numbers_of_every_kind_are_walked_over() {
        assert_eq!(
            duplicates(br#"{"l": {"k": "\u0041"}, "n": [1, -1, 1.5, true, null]}"#),
            Vec::<String>::new()
        );
        assert_eq!(duplicates(br#"{"l": {"\u006b": "", "k": ""}}"#), ["duplicate field \"l.k\""]);
    }
}
