//! JSON that is read once: the value, and whether it has any field twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value of a document. Of a field that is given twice the last counts, and `has_twice` turns true.
pub(crate) fn value(body: &[u8], has_twice: &mut bool) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Reader(has_twice).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Reader<'a>(&'a mut bool);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Reader(&mut *self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Reader(&mut *self.0))?;
            *self.0 |= map.insert(name, value).is_some();
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> serde_json::Result<(Value, bool)> {
        let mut has_twice = false;
        value(body.as_bytes(), &mut has_twice).map(|value| (value, has_twice))
    }

    #[test]
    fn documents_are_read_as_by_everybody_and_fields_given_twice_are_noticed() {
        let cases = [
            (r#"{"a": [1, -2, 1.5, 1e400, true, null, "\u0041"], "b": {"a": {}}}"#, false),
            (r#"{"a": [1, -2, 1.5, true, null, "\u0041\n", 18446744073709551615], "b": {"a": {}}}"#, false),
            (r#"{"a": 1, "a": 2}"#, true),
            (r#"[{"b": {"c": 1, "\u0063": 2}}]"#, true),
            ("5", false),
        ];
        for (body, has_twice) in cases {
            let plain = serde_json::from_str::<Value>(body).map_err(|error| error.to_string());
            let want = plain.map(|value| (value, has_twice));
            assert_eq!(read(body).map_err(|error| error.to_string()), want, "{body}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        for body in ["", "{", "{} {}", "{\"a\":}", "nul", "\"\u{1}\"", &"[".repeat(200)] {
            let plain = serde_json::from_str::<Value>(body).expect_err("no JSON").to_string();
            assert_eq!(read(body).expect_err("no JSON").to_string(), plain, "{body}");
        }
    }
}
