//! Protobuf request bodies, turned into the JSON that the same client would have sent.
//!
//! ```text
//!  "k8s\0" + Unknown{TypeMeta, raw} ──► kind ──► schema.txt (which fields, how) ──► json (writer) ──► bytes of JSON
//! ```
//!
//! Nothing behind this module knows that a body was protobuf. Answers are always JSON: every client that sends protobuf
//! takes it.

mod json;
mod schema;
mod values;
mod wire;

use schema::Schema;
use wire::Reader;

use crate::request::BODY_BYTES_MAX;

/// The media type of such bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What such a body begins with.
const PREFIX: &[u8] = b"k8s\0";

/// Why a body cannot be read. The texts are upstream's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each text says it")]
pub enum Error {
    #[error("empty data")]
    NoData,
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [{}]",
        PREFIX.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
    )]
    NoPrefix,
    #[error("empty body")]
    NoBody,
    #[error("Object 'Kind' is missing in '{api_version}'")]
    NoKind { api_version: String },
    #[error("Object 'apiVersion' is missing in '{kind}'")]
    NoVersion { kind: String },
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("unexpected EOF")]
    UnexpectedEnd,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    #[error("proto: illegal wireType {wire}")]
    IllegalWireType { wire: u8 },
    #[error("proto: illegal tag {number} (wire type {wire})")]
    IllegalTag { number: u64, wire: u8 },
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongType { wire: u8, field: String },
    #[error("proto: field {field} is not UTF-8")]
    NotText { field: String },
    #[error("proto: field {field} is not a time from the year 1 to 9999")]
    NotATime { field: String },
    #[error("impossible IntOrString.Type of field {field}")]
    NeitherIntNorString { field: String },
    #[error("proto: field {field} does not hold JSON")]
    NotJson { field: String },
    #[error("proto: messages are nested more than {limit} deep")]
    TooDeep { limit: usize },
    #[error("the JSON of the object is longer than {limit} bytes")]
    TooLarge { limit: usize },
}

/// The JSON of a body. It may become as long as a body in JSON may be.
pub fn to_json(body: &[u8]) -> Result<Vec<u8>, Error> {
    Envelope::open(body)?.to_json(BODY_BYTES_MAX)
}

/// A body whose kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads what stands around an object.
    pub(crate) fn open(body: &'a [u8]) -> Result<Self, Error> {
        if body.is_empty() {
            return Err(Error::NoData);
        }
        let rest = body.strip_prefix(PREFIX).ok_or(Error::NoPrefix)?;
        if rest.is_empty() {
            return Err(Error::NoBody);
        }
        let mut envelope = Self { api_version: "", kind: "", raw: &[] };
        let mut reader = Reader::new(rest);
        while let Some((number, payload)) = reader.next()? {
            match number {
                1 => envelope.read_type(payload.bytes("typeMeta")?)?,
                2 => envelope.raw = payload.bytes("raw")?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            match number {
                1 => self.api_version = payload.text("apiVersion")?,
                2 => self.kind = payload.text("kind")?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The object as JSON, which may become so long.
    pub(crate) fn to_json(&self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        self.to_json_of(schema::schema(), bytes_max)
    }

    fn to_json_of(&self, schema: &Schema, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let Self { api_version, kind, raw } = self;
        if kind.is_empty() {
            return Err(Error::NoKind { api_version: (*api_version).to_owned() });
        }
        if api_version.is_empty() {
            return Err(Error::NoVersion { kind: (*kind).to_owned() });
        }
        let message = schema.kind(api_version, kind).ok_or_else(|| Error::UnknownKind {
            api_version: (*api_version).to_owned(),
            kind: (*kind).to_owned(),
        })?;
        json::Writer::new(schema, bytes_max).object(api_version, kind, message, raw)
    }
}

#[cfg(test)]
mod tests;
