//! Watch: a stream of events, one JSON object a line. A component of this process gets them as they are stored instead
//! ([`handed`]).
//!
//! ```text
//!  Initial ──► Mark ──► Live ──► Done
//!  (ADDED for   (the      (events, bookmarks,   (deadline, too slow, too old)
//!   each match)  bookmark)  until the deadline)
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Response, header};
use tokio::time::Instant;
use windlass_api::field;
use windlass_store::{Change, Ended, Error, Event, Record, Watch};
use windlass_streams::handed::{self, Handed, Kind, Said};

use crate::Shared;
use crate::form::Form;
use crate::object::{self, Attributes};
use crate::read::{Selection, parse_version};
use crate::request::{Query, Target};
use crate::resources::Resource;
use crate::status::{Result, Status};

/// upstream: a bookmark about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// upstream: a watch without a timeout lasts between once and twice this long.
const TIMEOUT_MIN_SECONDS: u64 = 1800;
/// Events are put together up to this size, to hand few large pieces to the transport.
const CHUNK_BYTES: usize = 64 << 10;
/// So many at a time are handed over within the process.
const EVENTS_MAX: usize = 64;

/// Opens a watch. Errors found before the stream begins are plain answers; later ones are ERROR events.
pub(crate) fn open(
    shared: &Arc<Shared>,
    target: &Target,
    query: &Query,
    head: &Parts,
    form: Form,
) -> Result<Response<Body>> {
    let selection = Selection::parse(target, query)?;
    let initial = query.flag("sendInitialEvents");
    check_initial(initial, query.text("resourceVersionMatch"))?;
    let asked = parse_version(query.text("resourceVersion"))?;
    let seconds = query.number("timeoutSeconds")?.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
    let seconds = seconds.unwrap_or_else(|| {
        let spread = shared.watches.fetch_add(1, Ordering::Relaxed).wrapping_mul(677) % TIMEOUT_MIN_SECONDS;
        TIMEOUT_MIN_SECONDS + spread
    });

    let prefix = target.prefix();
    let wants_objects = initial.unwrap_or(asked == 0);
    let (from, objects) = if wants_objects {
        let list = shared.store.list(&prefix);
        (list.revision, list.records.into_iter().filter(|record| selection.matches(record)).collect())
    } else if initial == Some(false) && asked == 0 {
        (shared.store.revision(), VecDeque::new())
    } else {
        (asked, VecDeque::new())
    };
    let (watch, error) = match shared.store.watch(prefix, from) {
        Ok(watch) => (Some(watch), None),
        Err(Error::TooOld { asked, oldest }) => (None, Some(Status::too_old(asked, oldest))),
        Err(Error::Future { asked, current }) => return Err(Status::too_new(asked, current)),
        Err(error @ (Error::Exists(_) | Error::NotFound(_) | Error::Conflict(_))) => {
            return Err(Status::internal(&error.to_string()));
        }
    };
    let with_bookmarks = query.flag("allowWatchBookmarks").unwrap_or(false);
    let now = Instant::now();
    let state = Stream {
        shown: Shown { resource: target.resource, form, is_first: true, shared: Arc::clone(shared) },
        selection,
        watch,
        objects,
        // upstream: the end of the initial events is a bookmark like others, for those who allow them
        mark_at: (initial == Some(true) && with_bookmarks).then_some(from),
        error,
        with_bookmarks,
        next_bookmark: now + BOOKMARK_EVERY,
        deadline: now + Duration::from_secs(seconds),
    };
    let mut response = if head.extensions.get::<handed::Wanted>().is_some() {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Handed::new(state.events()));
        response
    } else {
        Response::new(Body::from_stream(state.chunks()))
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Where events go.
trait Out: Default + Send {
    fn say(&mut self, kind: Kind, object: &Bytes);
    fn is_empty(&self) -> bool;
    /// There is enough for one piece.
    fn is_full(&self) -> bool;
}

/// Lines of JSON.
impl Out for BytesMut {
    fn say(&mut self, kind: Kind, object: &Bytes) {
        let kind = kind.text();
        self.reserve(kind.len() + object.len() + 24);
        self.put_slice(b"{\"type\":\"");
        self.put_slice(kind.as_bytes());
        self.put_slice(b"\",\"object\":");
        self.put_slice(object);
        self.put_slice(b"}\n");
    }

    fn is_empty(&self) -> bool {
        BytesMut::is_empty(self)
    }

    fn is_full(&self) -> bool {
        self.len() >= CHUNK_BYTES
    }
}

/// The events themselves. They hold what is stored, and no copies of it.
impl Out for VecDeque<Said> {
    fn say(&mut self, kind: Kind, object: &Bytes) {
        self.push_back(Said { kind, object: object.clone() });
    }

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn is_full(&self) -> bool {
        self.len() >= EVENTS_MAX
    }
}

/// `sendInitialEvents` and `resourceVersionMatch=NotOlderThan` come together or not at all.
fn check_initial(initial: Option<bool>, matching: &str) -> Result<()> {
    let path = field::Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    match (initial, matching) {
        (None, "") | (Some(_), "NotOlderThan") => return Ok(()),
        (None, _) => errors.push(field::Error::forbidden(
            &path,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), other) => {
            errors.push(field::Error::forbidden(
                &path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
            if !other.is_empty() {
                errors.push(field::Error::not_supported(&path, other, &["NotOlderThan"]));
            }
        }
    }
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors))
}

/// How objects are shown in this watch.
struct Shown {
    resource: &'static Resource,
    form: Form,
    /// Whether nothing has been shown yet: only the first table has columns.
    is_first: bool,
    shared: Arc<Shared>,
}

impl Shown {
    fn say(&mut self, out: &mut impl Out, kind: Kind, object: &Bytes) {
        if self.form.is_object() {
            return out.say(kind, object);
        }
        let now = self.shared.config.clock.now();
        match self.form.event(self.resource, object, std::mem::take(&mut self.is_first), now) {
            Ok(object) => out.say(kind, &object),
            Err(status) => say_error(out, &status),
        }
    }

    fn bookmark(&mut self, out: &mut impl Out, revision: u64, ends_initial: bool) {
        let object = bookmark(self.resource, revision, ends_initial);
        self.say(out, Kind::Bookmark, &object);
    }
}

struct Stream {
    shown: Shown,
    selection: Selection,
    /// Gone once the stream is to end after what is left to say.
    watch: Option<Watch<Attributes>>,
    /// What is there already and has still to be sent as ADDED.
    objects: VecDeque<Arc<Record<Attributes>>>,
    /// The revision of the bookmark that ends the initial events, while it is due.
    mark_at: Option<u64>,
    /// Why there is nothing to watch.
    error: Option<Status>,
    with_bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
}

impl Stream {
    /// As the pieces of a body.
    fn chunks(self) -> impl futures::Stream<Item = std::result::Result<Bytes, Infallible>> + Send {
        futures::stream::unfold(self, |mut state| async move {
            let chunk: BytesMut = state.next().await?;
            Some((Ok(chunk.freeze()), state))
        })
    }

    /// One by one.
    fn events(self) -> impl futures::Stream<Item = Said> + Send {
        futures::stream::unfold((Box::new(self), VecDeque::new()), |(mut state, mut said)| async move {
            if said.is_empty() {
                said = state.next().await?;
            }
            Some((said.pop_front()?, (state, said)))
        })
    }

    /// What comes next, or the end.
    async fn next<O: Out>(&mut self) -> Option<O> {
        let mut out = O::default();
        if let Some(status) = self.error.take() {
            say_error(&mut out, &status);
            return Some(out);
        }
        while !out.is_full() {
            let Some(record) = self.objects.pop_front() else { break };
            self.shown.say(&mut out, Kind::Added, &record.bytes);
        }
        if self.objects.is_empty()
            && let Some(revision) = self.mark_at.take()
        {
            self.shown.bookmark(&mut out, revision, true);
        }
        while out.is_empty() {
            self.live(&mut out).await?;
        }
        Some(out)
    }

    /// Waits for something to happen; `None` at the end of the stream.
    async fn live(&mut self, out: &mut impl Out) -> Option<()> {
        let watch = self.watch.as_mut()?;
        let until = if self.with_bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
        let ended = match tokio::time::timeout_at(until, watch.next()).await {
            Ok(Ok(events)) => {
                events.iter().for_each(|event| say_event(out, &mut self.shown, &self.selection, event));
                self.drain(out).err()
            }
            Ok(Err(ended)) => Some(ended),
            Err(_) => {
                // A revision is only safe to resume from when everything before it was sent: the position is.
                let position = watch.position();
                self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                if Instant::now() >= self.deadline {
                    self.watch = None;
                }
                if self.with_bookmarks {
                    self.shown.bookmark(out, position, false);
                }
                None
            }
        };
        if let Some(ended) = ended {
            self.end(out, ended);
        }
        Some(())
    }

    /// Takes what else is there already, up to one piece.
    fn drain(&mut self, out: &mut impl Out) -> std::result::Result<(), Ended> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        while !out.is_full() {
            let events = watch.poll()?;
            if events.is_empty() {
                break;
            }
            events.iter().for_each(|event| say_event(out, &mut self.shown, &self.selection, event));
        }
        Ok(())
    }

    /// The last words: where to resume, or that there is nothing to resume from.
    fn end(&mut self, out: &mut impl Out, ended: Ended) {
        self.watch = None;
        match ended {
            Ended::Slow { resume, .. } if self.with_bookmarks => {
                self.shown.bookmark(out, resume, false);
            }
            Ended::Slow { .. } => {}
            Ended::TooOld { asked, oldest } => say_error(out, &Status::too_old(asked, oldest)),
        }
    }
}

/// What an event means to those who only see what they selected.
fn say_event(out: &mut impl Out, shown: &mut Shown, selection: &Selection, event: &Event<Attributes>) {
    let was = event.previous.as_ref().filter(|previous| selection.matches(previous));
    let is = event.change != Change::Deleted && selection.matches(&event.record);
    match (was, is, event.change) {
        (None, true, Change::Created | Change::Updated | Change::Deleted) => {
            shown.say(out, Kind::Added, &event.record.bytes);
        }
        (Some(_), true, Change::Created | Change::Updated | Change::Deleted) => {
            shown.say(out, Kind::Modified, &event.record.bytes);
        }
        (Some(_), false, Change::Deleted) => shown.say(out, Kind::Deleted, &event.record.bytes),
        // upstream: an object that stops matching is shown as it last matched, at the revision of the change
        (Some(was), false, Change::Created | Change::Updated) => {
            let last = object::restamp(shown.resource, &was.bytes, event.revision());
            shown.say(out, Kind::Deleted, &last);
        }
        (None, false, Change::Created | Change::Updated | Change::Deleted) => {}
    }
}

fn bookmark(resource: &Resource, revision: u64, ends_initial: bool) -> Bytes {
    let annotations =
        if ends_initial { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
    Bytes::from(format!("{}{revision}\"{annotations}}}}}", resource.version_prefix))
}

fn say_error(out: &mut impl Out, status: &Status) {
    out.say(Kind::Error, &Bytes::from(status.to_json().to_string()));
}
