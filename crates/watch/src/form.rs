//! In which form a server answers, and what is read from it.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api::protobuf::MEDIA_TYPE;
use windlass_streams::handed::Kind;

/// The form that an answer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text.
    Json,
    /// What costs a third of that to read, if somebody can.
    Protobuf,
}

impl Form {
    /// As the headers of the answer say.
    pub fn of(headers: &HeaderMap) -> Self {
        let type_ = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if type_.starts_with(MEDIA_TYPE) { Self::Protobuf } else { Self::Json }
    }

    /// Asks for protobuf, and takes JSON too.
    pub fn prefer_protobuf(headers: &mut HeaderMap) {
        headers
            .insert(ACCEPT, HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json"));
    }
}

/// A page of a list.
#[derive(Debug, PartialEq)]
pub struct Page<T> {
    /// Of the list.
    pub resource_version: String,
    /// What to ask for the next page with; empty after the last.
    pub next: String,
    /// What is on it.
    pub objects: Vec<T>,
}

/// What a watch says.
#[derive(Debug, PartialEq)]
pub enum Heard<T> {
    /// The object is there, as it is now.
    Applied(T),
    /// It was there, and was so.
    Deleted(T),
    /// All changes up to this version were told.
    Bookmark(String),
    /// The watch ends.
    Failed(Box<Status>),
}

/// An object that can be followed, read as far as somebody looks at it.
pub trait Object: Sized + Send + 'static {
    /// What it is called in a log.
    const KIND: &'static str;
    /// It can be read from protobuf too.
    const READS_PROTOBUF: bool = false;

    /// Reads it from its JSON.
    fn from_json(object: &Bytes) -> serde_json::Result<Self>;

    /// The same of one that is gone, of which less may be of interest.
    fn from_json_deleted(object: &Bytes) -> serde_json::Result<Self> {
        Self::from_json(object)
    }

    /// `metadata.resourceVersion`.
    fn version(&self) -> Option<&str>;

    /// Reads a page of a list.
    fn page(_form: Form, body: &Bytes) -> kube::Result<Page<Self>> {
        json_page(body).map_err(kube::Error::SerdeError)
    }

    /// Reads an event of a watch.
    fn event(_form: Form, frame: &Bytes) -> kube::Result<Heard<Self>> {
        json_event(frame).map_err(kube::Error::SerdeError)
    }

    /// What the server says of a request that failed, in its own words.
    fn refusal(_form: Form, code: StatusCode, body: &[u8]) -> kube::Error {
        json_refusal(code, body)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// A page of a list in JSON.
pub fn json_page<T: Object>(body: &Bytes) -> serde_json::Result<Page<T>> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: ListMeta,
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let List { metadata, items } = serde_json::from_slice(body)?;
    let objects = items.unwrap_or_default().into_iter().map(|item| T::from_json(&part_of(body, item)));
    let objects = objects.collect::<serde_json::Result<_>>()?;
    Ok(Page { resource_version: metadata.resource_version, next: metadata.next, objects })
}

/// An event of a watch in JSON.
pub fn json_event<T: Object>(frame: &Bytes) -> serde_json::Result<Heard<T>> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: Kind,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let Line { kind, object } = serde_json::from_slice(frame)?;
    Heard::read(kind, &part_of(frame, object))
}

/// What the server says of a request that failed; something in between may answer with a plain text.
pub fn json_refusal(code: StatusCode, body: &[u8]) -> kube::Error {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(body).trim(), "").with_code(code.as_u16())
    });
    kube::Error::Api(status.boxed())
}

/// The bytes of a part of what was read, which are not copied.
fn part_of(whole: &Bytes, part: &RawValue) -> Bytes {
    whole.slice_ref(part.get().as_bytes())
}

impl<T: Object> Heard<T> {
    /// What is said of an object that is there as JSON.
    pub(crate) fn of(kind: Kind, object: &Bytes) -> kube::Result<Self> {
        Self::read(kind, object).map_err(kube::Error::SerdeError)
    }

    fn read(kind: Kind, object: &Bytes) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Mark {
            metadata: ListMeta,
        }
        Ok(match kind {
            Kind::Added | Kind::Modified => Self::Applied(T::from_json(object)?),
            Kind::Deleted => Self::Deleted(T::from_json_deleted(object)?),
            Kind::Bookmark => {
                Self::Bookmark(serde_json::from_slice::<Mark>(object)?.metadata.resource_version)
            }
            Kind::Error => Self::Failed(Box::new(serde_json::from_slice(object)?)),
        })
    }
}
