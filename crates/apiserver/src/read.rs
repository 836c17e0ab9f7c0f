//! GET of an object, and of a collection: selectors, pages, and the revision a list shows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use windlass_api::field;
use windlass_api::selector::{FieldSelector, Selector};
use windlass_store::{Error, Key, List, Prefix, Record};

use crate::form::Form;
use crate::object::Attributes;
use crate::request::{Query, Target};
use crate::status::{Result, Status, no_number};
use crate::{Shared, answer};

/// upstream: how long a list waits for a revision that has not been reached.
const FUTURE_WAIT: Duration = Duration::from_secs(3);
const FUTURE_POLL: Duration = Duration::from_millis(10);

impl Target {
    /// Where the object is kept.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.resource.plural, &self.namespace, &self.name)
    }

    /// Where the collection is kept.
    pub(crate) fn prefix(&self) -> Prefix {
        Prefix::namespaced(self.resource.plural, &self.namespace)
    }
}

/// One object.
pub(crate) fn get(shared: &Shared, target: &Target, query: &Query, form: Form) -> Result<Response<Body>> {
    parse_version(query.text("resourceVersion"))?;
    let record =
        shared.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, &target.name))?;
    let bytes = form.one(target.resource, &record.bytes, shared.config.clock.now())?;
    Ok(answer::object(StatusCode::OK, bytes, &[]))
}

/// Which objects of a collection a request is about.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: Selector,
    fields: FieldSelector,
    has_fields: bool,
}

impl Selection {
    pub(crate) fn parse(target: &Target, query: &Query) -> Result<Self> {
        let labels = match query.text("labelSelector") {
            "" => Selector::everything(),
            text => Selector::parse(text).map_err(Status::bad_request)?,
        };
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(Status::bad_request)?;
        fields
            .fields()
            .try_for_each(|field| target.resource.check_field(field))
            .map_err(Status::bad_request)?;
        let has_fields = fields.fields().next().is_some();
        Ok(Self { labels, fields, has_fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && !self.has_fields
    }

    pub(crate) fn matches(&self, record: &Record<Attributes>) -> bool {
        if !self.labels.is_empty() && !self.labels.matches(&record.attributes.labels) {
            return false;
        }
        if !self.has_fields {
            return true;
        }
        let mut fields: Vec<(&str, &str)> = Vec::with_capacity(record.attributes.fields.len() + 2);
        fields.push(("metadata.name", record.key.name()));
        fields.push(("metadata.namespace", record.key.namespace()));
        fields.extend(record.attributes.fields.iter().map(|(name, value)| (*name, value.as_str())));
        self.fields.matches(&fields)
    }
}

/// A collection.
pub(crate) async fn list(
    shared: &Shared,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<Body>> {
    let selection = Selection::parse(target, query)?;
    let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
    let page = page(shared, target, query, limit).await?;
    let is_selecting = !selection.is_everything();
    let after = page.after.as_deref().unwrap_or_default();
    let records = &page.list.records;
    let start = records.partition_point(|record| record.key.as_str() <= after);
    let mut matching = records[start..].iter().filter(|record| selection.matches(record)).peekable();

    let most = if limit == 0 { usize::MAX } else { limit };
    let shown: Vec<&Arc<Record<Attributes>>> = matching.by_ref().take(most).collect();
    let more = match (matching.peek(), shown.last()) {
        (Some(_), Some(last)) => {
            let token = continue_token(page.list.revision, &last.key);
            // upstream: with selectors nobody knows how many are left
            let remaining = if is_selecting {
                String::new()
            } else {
                format!(",\"remainingItemCount\":{}", matching.count())
            };
            format!(",\"continue\":\"{token}\"{remaining}")
        }
        _ => String::new(),
    };
    let head = form.list_head(target.resource, page.list.revision, &more)?;
    // Lists are long: this is the only copy that is made of them.
    let length = shown.iter().map(|record| record.bytes.len() + 1).sum::<usize>();
    let mut body = BytesMut::with_capacity(head.len() + 2 + if form.is_object() { length } else { 0 });
    body.put_slice(head.as_bytes());
    let now = shared.config.clock.now();
    for (n, record) in shown.into_iter().enumerate() {
        if n > 0 {
            body.put_u8(b',');
        }
        form.item(&mut body, target.resource, record, now)?;
    }
    body.put_slice(b"]}");
    Ok(answer::object(StatusCode::OK, body.freeze(), &[]))
}

/// The JSON of a list.
pub(crate) fn list_body(
    form: Form,
    target: &Target,
    revision: u64,
    more: &str,
    items: &[u8],
) -> Result<Bytes> {
    let head = form.list_head(target.resource, revision, more)?;
    let mut body = BytesMut::with_capacity(head.len() + items.len() + 2);
    body.put_slice(head.as_bytes());
    body.put_slice(items);
    body.put_slice(b"]}");
    Ok(body.freeze())
}

struct Page {
    list: List<Attributes>,
    /// The last key of the page before.
    after: Option<String>,
}

/// The snapshot that a list asks for.
async fn page(shared: &Shared, target: &Target, query: &Query, limit: usize) -> Result<Page> {
    let (version, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    let token = query.text("continue");
    check_match(query, version, matching, token)?;
    let prefix = target.prefix();
    if !token.is_empty() {
        if !matches!(version, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (revision, after) = parse_token(token).ok_or_else(|| {
            Status::bad_request(
                "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
            )
        })?;
        let list = shared.store.list_at(&prefix, revision).map_err(|_| Status::continue_expired())?;
        return Ok(Page { list, after: Some(after) });
    }
    let asked = parse_version(version)
        .map_err(|_| Status::bad_request(format!("invalid resource version: {}", bad_version(version))))?;
    wait_for(shared, asked).await?;
    // upstream: a limit with a version means exactly that version
    let is_exact = matching == "Exact" || (matching.is_empty() && limit > 0 && asked > 0);
    let list = if is_exact {
        shared.store.list_at(&prefix, asked).map_err(|error| match error {
            Error::Future { asked, current } => Status::too_new(asked, current),
            Error::TooOld { .. } | Error::Exists(_) | Error::NotFound(_) | Error::Conflict(_) => {
                Status::list_expired()
            }
        })?
    } else {
        shared.store.list(&prefix)
    };
    Ok(Page { list, after: None })
}

/// A revision in a query; nothing and 0 mean any.
pub(crate) fn parse_version(text: &str) -> Result<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    // upstream: the error of a field that is not of any object shows through
    text.parse().map_err(|_| Status::unexplained(&bad_version(text)))
}

fn bad_version(text: &str) -> String {
    let path = field::Path::new("resourceVersion");
    field::Error::invalid(&path, text, no_number(text)).to_string()
}

/// Waits a little for a revision that has not been reached.
async fn wait_for(shared: &Shared, asked: u64) -> Result<()> {
    let deadline = tokio::time::Instant::now() + FUTURE_WAIT;
    while shared.store.revision() < asked {
        if tokio::time::Instant::now() >= deadline {
            return Err(Status::too_new(asked, shared.store.revision()));
        }
        tokio::time::sleep(FUTURE_POLL).await;
    }
    Ok(())
}

/// The rules of `resourceVersionMatch` and `sendInitialEvents` on a list.
fn check_match(query: &Query, version: &str, matching: &str, token: &str) -> Result<()> {
    let path = field::Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    if query.flag("sendInitialEvents").is_some() {
        let path = field::Path::new("sendInitialEvents");
        errors.push(field::Error::forbidden(&path, "sendInitialEvents is forbidden for list"));
    }
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(field::Error::forbidden(&path, why));
        }
        if !token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(field::Error::forbidden(&path, why));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(field::Error::not_supported(&path, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(field::Error::forbidden(&path, why));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

/// `revision:key` in hexadecimal: opaque to clients, and safe in a query.
fn continue_token(revision: u64, last: &Key) -> String {
    format!("{revision}:{last}").bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_token(token: &str) -> Option<(u64, String)> {
    let bytes: Option<Vec<u8>> = token
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let text = String::from_utf8(bytes?).ok()?;
    let (revision, key) = text.split_once(':')?;
    Some((revision.parse().ok()?, key.to_owned()))
}
