//! Writes the JSON of a message, as Go's encoder writes the struct that it stands for.
//!
//! Go writes every field that is not a pointer into the protobuf form, zero or not, and leaves zeros out of the JSON of
//! most. The table knows which, so that the JSON here is what the same client would have sent as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use windlass_api::protobuf::{Payload, Reader};

use super::schema::{Field, Kind, Message, Schema, Shape};
use super::{Error, values};

/// How deep messages can stand in each other. Those of the table come to 12; one that contains itself would have no end.
const DEPTH_MAX: usize = 32;

/// A JSON text in the making.
pub(super) struct Writer<'a> {
    schema: &'a Schema,
    out: Vec<u8>,
    /// How long the text may become.
    bytes_max: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(schema: &'a Schema, bytes_max: usize) -> Self {
        Self { schema, out: Vec::new(), bytes_max }
    }

    /// The JSON of an object: its type, and then its fields.
    pub(super) fn object(
        mut self,
        api_version: &str,
        kind: &str,
        message: &Message,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Error> {
        self.out.push(b'{');
        self.name("kind");
        values::text(&mut self.out, kind);
        self.name("apiVersion");
        values::text(&mut self.out, api_version);
        self.fields(message, bytes, 0)?;
        self.out.push(b'}');
        Ok(self.out)
    }

    fn fields(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::TooDeep { limit: DEPTH_MAX });
        }
        let mut found = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            // upstream: a field that the type does not have is skipped, whatever the client wants of unknown fields
            if let Some(index) = message.fields.iter().position(|field| field.number == number) {
                found.push((index, payload));
            }
        }
        found.sort_by_key(|(index, _)| *index);
        let mut found = found.into_iter().peekable();
        for (index, field) in message.fields.iter().enumerate() {
            let mut given = Vec::new();
            while let Some((_, payload)) = found.next_if(|(of, _)| *of == index) {
                given.push(payload);
            }
            self.field(field, &given, depth)?;
            if self.out.len() > self.bytes_max {
                return Err(Error::TooLarge { limit: self.bytes_max });
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, given: &[Payload<'_>], depth: usize) -> Result<(), Error> {
        let start = self.out.len();
        match field.shape {
            Shape::Inline => {
                if let Kind::Message(inner) = field.kind {
                    let bytes = merged(&field.name, given)?;
                    self.fields(self.schema.message(inner), &bytes, depth + 1)?;
                }
                return Ok(());
            }
            Shape::One => {
                self.name(&field.name);
                let value = self.out.len();
                self.value(field, given, depth)?;
                if field.is_optional && matches!(&self.out[value..], b"\"\"" | b"0" | b"false" | b"null") {
                    self.out.truncate(start);
                }
                return Ok(());
            }
            Shape::Pointer if given.is_empty() => {}
            Shape::Pointer => {
                self.name(&field.name);
                return self.value(field, given, depth);
            }
            Shape::List => {
                self.name(&field.name);
                if self.list(field, given, depth)? {
                    return Ok(());
                }
                self.out.truncate(start);
            }
            Shape::Map if given.is_empty() => {}
            Shape::Map => {
                self.name(&field.name);
                return self.map(field, given, depth);
            }
        }
        if !field.is_optional {
            self.name(&field.name);
            self.out.extend(b"null");
        }
        Ok(())
    }

    /// Whether there is anything in the list.
    fn list(&mut self, field: &Field, given: &[Payload<'_>], depth: usize) -> Result<bool, Error> {
        self.out.push(b'[');
        let start = self.out.len();
        let is_numeric = matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64);
        for payload in given {
            match payload {
                // Numbers can stand one after another in one field.
                Payload::Bytes(packed) if is_numeric => {
                    let mut reader = Reader::new(packed);
                    while !reader.is_at_end() {
                        self.item(field, Payload::Varint(reader.varint()?), depth)?;
                    }
                }
                payload => self.item(field, *payload, depth)?,
            }
        }
        if self.out.len() == start {
            return Ok(false);
        }
        // The comma after the last.
        self.out.pop();
        self.out.push(b']');
        Ok(true)
    }

    fn item(&mut self, field: &Field, payload: Payload<'_>, depth: usize) -> Result<(), Error> {
        self.value(field, &[payload], depth)?;
        self.out.push(b',');
        if self.out.len() > self.bytes_max {
            return Err(Error::TooLarge { limit: self.bytes_max });
        }
        Ok(())
    }

    fn map(&mut self, field: &Field, given: &[Payload<'_>], depth: usize) -> Result<(), Error> {
        let mut entries = BTreeMap::new();
        for payload in given {
            let mut reader = Reader::new(payload.bytes(&field.name)?);
            let (mut key, mut value) = ("", None);
            while let Some((number, payload)) = reader.field()? {
                match number {
                    1 => key = payload.text(&field.name)?,
                    2 => value = Some(payload),
                    _ => {}
                }
            }
            entries.insert(key, value);
        }
        self.out.push(b'{');
        for (key, value) in entries {
            self.name(key);
            self.value(field, value.as_slice(), depth)?;
            if self.out.len() > self.bytes_max {
                return Err(Error::TooLarge { limit: self.bytes_max });
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    /// One value. Of a message that is given more than once all parts count, of anything else the last.
    fn value(&mut self, field: &Field, given: &[Payload<'_>], depth: usize) -> Result<(), Error> {
        let name = &field.name;
        let last = given.last();
        let number = || last.map_or(Ok(0), |payload| payload.number(name));
        let out = &mut self.out;
        match field.kind {
            Kind::Text => values::text(out, last.map_or(Ok(""), |payload| payload.text(name))?),
            Kind::Bytes => values::base64(out, last.map_or(Ok(&[][..]), |payload| payload.bytes(name))?),
            Kind::Bool => out.extend(if number()? == 0 { &b"false"[..] } else { b"true" }),
            // upstream: bits beyond the 32nd are lost
            Kind::Int32 => values::number(out, i64::from(number()? as i32)),
            Kind::Int64 => values::number(out, number()? as i64),
            Kind::Time => values::time(out, &merged(name, given)?, name)?,
            Kind::MicroTime => values::micro_time(out, &merged(name, given)?, name)?,
            Kind::Quantity => values::quantity(out, &merged(name, given)?, name)?,
            Kind::IntOrString => values::int_or_string(out, &merged(name, given)?, name)?,
            Kind::Strings => values::strings(out, &merged(name, given)?, name)?,
            Kind::Json => values::json(out, &merged(name, given)?, name)?,
            Kind::Message(inner) => {
                out.push(b'{');
                self.fields(self.schema.message(inner), &merged(name, given)?, depth + 1)?;
                self.out.push(b'}');
            }
        }
        Ok(())
    }

    /// A name, and the comma before it unless it is the first of its object.
    fn name(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        values::text(&mut self.out, name);
        self.out.push(b':');
    }
}

/// The bytes of a message that is given in parts: one after another they are the message that has all of them.
fn merged<'a>(name: &str, given: &[Payload<'a>]) -> Result<Cow<'a, [u8]>, Error> {
    match given {
        [] => Ok(Cow::Borrowed(&[])),
        [one] => Ok(Cow::Borrowed(one.bytes(name)?)),
        many => {
            let parts = many.iter().map(|payload| payload.bytes(name)).collect::<Result<Vec<_>, _>>()?;
            Ok(Cow::Owned(parts.concat()))
        }
    }
}
