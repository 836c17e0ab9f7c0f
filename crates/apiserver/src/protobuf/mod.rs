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

use schema::Schema;
use windlass_api::protobuf::{self as wire, Envelope};

use crate::request::BODY_BYTES_MAX;

/// Why a body cannot be read. The texts are upstream's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each text says it")]
pub enum Error {
    #[error(transparent)]
    Wire(#[from] wire::Error),
    #[error("Object 'Kind' is missing in '{api_version}'")]
    NoKind { api_version: String },
    #[error("Object 'apiVersion' is missing in '{kind}'")]
    NoVersion { kind: String },
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
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
    json_of(&Envelope::open(body)?, BODY_BYTES_MAX)
}

/// The object in an envelope as JSON, which may become so long.
pub(crate) fn json_of(envelope: &Envelope<'_>, bytes_max: usize) -> Result<Vec<u8>, Error> {
    json_by(schema::schema(), envelope, bytes_max)
}

fn json_by(schema: &Schema, envelope: &Envelope<'_>, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let Envelope { api_version, kind, raw } = envelope;
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

#[cfg(test)]
mod tests;
