//! Events for people: `core/v1` Events about an object, few enough to be read.
//!
//! They are published on the side and never hold up the work: what does not fit the channel is dropped. The rules are
//! those of the recorder that Kubernetes' own controllers use: the same event again counts up the one that is there; many
//! similar ones become one; an object that causes too many is heard only now and then. What comes while others are being
//! written is written together: an event that is counted up ten times meanwhile, once.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use windlass_job::Uid;

use crate::Clock;
use crate::calls::{Call, Calls};
use crate::metrics::Metrics;

/// Events that wait to be published.
const CHANNEL: usize = 1000;
/// So many different messages of one kind about one object; then they are combined.
const SIMILAR_MAX: usize = 10;
/// Similar events further apart than this are not.
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// An object's events in a row, and how long it takes until there may be one more.
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_secs(300);
/// Entries of each memory. Forgetting costs an event too many.
const REMEMBERED: usize = 4096;

/// What there is to say about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The object.
    pub about: ObjectReference,
    /// `Warning`, or `Normal`.
    pub is_warning: bool,
    /// `reason`.
    pub reason: String,
    /// `message`.
    pub message: String,
}

/// Publishes events. Clones publish through the same channel.
#[derive(Clone, Debug)]
pub struct Recorder(mpsc::Sender<(Report, Class)>);

/// Events of one class take nothing from the budget of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    /// What Kubernetes' own controllers say too.
    Upstream,
    /// What only we say.
    Ours,
}

impl Recorder {
    /// A recorder in the name of `component`, and the task that publishes; it ends when the last recorder is dropped.
    pub fn new(
        client: Client,
        component: &'static str,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send) {
        Self::through(Calls::new(client, 1, Metrics::default()), component, clock)
    }

    /// A recorder that shares the way to the API server.
    pub(crate) fn through(
        calls: Calls,
        component: &'static str,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        (Self(sender), publish(receiver, calls, component, clock))
    }

    /// Publishes an event, sooner or later, or never if there are too many.
    pub fn publish(&self, report: Report) {
        // A full channel means that there are more events than anybody can read.
        _ = self.0.try_send((report, Class::Upstream));
    }

    /// Publishes an event that Kubernetes' own controllers do not have, beside theirs.
    pub(crate) fn publish_ours(&self, report: Report) {
        _ = self.0.try_send((report, Class::Ours));
    }
}

async fn publish(
    mut reports: mpsc::Receiver<(Report, Class)>,
    calls: Calls,
    component: &'static str,
    clock: Clock,
) {
    let mut memory = Memory::default();
    let lane = Uid::new("events");
    while let Some(first) = reports.recv().await {
        let mut entries = Vec::new();
        let mut next = Some(first);
        while let Some((report, class)) = next {
            if let Some(entry) = memory.correlate(report, class, clock()) {
                merge(&mut entries, entry);
            }
            next = reports.try_recv().ok();
        }
        for entry in entries {
            if let Err(error) = write(&calls, &lane, &entry, component).await {
                tracing::debug!(reason = entry.report.reason, %error, "event not published");
            }
        }
    }
}

/// The later state of an event takes the place of the earlier one, which nobody has seen.
fn merge(entries: &mut Vec<Entry>, entry: Entry) {
    match entries.iter_mut().find(|earlier| earlier.name == entry.name) {
        Some(earlier) => *earlier = Entry { is_new: earlier.is_new, ..entry },
        None => entries.push(entry),
    }
}

async fn write(calls: &Calls, lane: &Uid, entry: &Entry, component: &str) -> kube::Result<()> {
    let requests = Request::new(Event::url_path(&(), Some(namespace_of(&entry.report.about))));
    if !entry.is_new {
        let patch =
            json!({"count": entry.count, "lastTimestamp": Time(entry.last), "message": entry.report.message});
        let request = requests.patch(&entry.name, &PatchParams::default(), &Patch::Merge(patch));
        match calls.send::<()>(lane, PATCH_EVENT, request).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => return other,
        }
    }
    let body = serde_json::to_vec(&event(entry, component)).map_err(kube::Error::SerdeError)?;
    let request = requests.create(&PostParams::default(), body);
    calls.send(lane, CREATE_EVENT, request).await
}

const CREATE_EVENT: Call = Call { verb: "create", resource: "events" };
const PATCH_EVENT: Call = Call { verb: "patch", resource: "events" };

fn event(entry: &Entry, component: &str) -> Event {
    let report = &entry.report;
    Event {
        metadata: ObjectMeta {
            name: Some(entry.name.clone()),
            namespace: Some(namespace_of(&report.about).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: report.about.clone(),
        type_: Some(if report.is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(report.reason.clone()),
        message: Some(report.message.clone()),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        first_timestamp: Some(Time(entry.first)),
        last_timestamp: Some(Time(entry.last)),
        count: Some(entry.count),
        ..Event::default()
    }
}

/// Where an event is kept: beside its object, or in `default` if that is in no namespace.
fn namespace_of(about: &ObjectReference) -> &str {
    about.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

/// What tells objects apart: some events are about a name, with no UID.
fn identity(about: &ObjectReference) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    [text(&about.kind), text(&about.namespace), text(&about.name), text(&about.uid)].join("/")
}

/// An event as it is to be written.
#[derive(Clone, Debug)]
struct Entry {
    report: Report,
    name: String,
    /// It was not published before.
    is_new: bool,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// Everything about an event but its message; and the message, unless it is a combined one.
type Key = (String, bool, String, Option<String>);

/// What was published before.
#[derive(Debug, Default)]
struct Memory {
    similar: HashMap<Key, (BTreeSet<String>, Timestamp)>,
    published: HashMap<Key, (String, i32, Timestamp)>,
    budgets: HashMap<(String, Class), (f64, Timestamp)>,
}

impl Memory {
    /// The event to write for `report`, if any.
    fn correlate(&mut self, report: Report, class: Class, now: Timestamp) -> Option<Entry> {
        let (report, key) = self.combine(report, now);
        let entry = self.count(report, key, now);
        self.has_budget(&entry.report.about, class, now).then_some(entry)
    }

    fn combine(&mut self, mut report: Report, now: Timestamp) -> (Report, Key) {
        let object = identity(&report.about);
        let kind: Key = (object, report.is_warning, report.reason.clone(), None);
        let (messages, last) = remembered(&mut self.similar, kind.clone(), || (BTreeSet::new(), now));
        if now.duration_since(*last) > SIMILAR_WITHIN {
            messages.clear();
        }
        *last = now;
        messages.insert(report.message.clone());
        if messages.len() < SIMILAR_MAX {
            let key = (kind.0, kind.1, kind.2, Some(report.message.clone()));
            return (report, key);
        }
        messages.pop_first();
        report.message = format!("(combined from similar events): {}", report.message);
        (report, kind)
    }

    fn count(&mut self, report: Report, key: Key, now: Timestamp) -> Entry {
        let about = report.about.name.clone().unwrap_or_default();
        let name = || (format!("{about}.{:x}", now.as_nanosecond()), 0, now);
        let (name, count, first) = remembered(&mut self.published, key, name);
        *count = count.saturating_add(1);
        Entry { name: name.clone(), is_new: *count == 1, count: *count, first: *first, last: now, report }
    }

    fn has_budget(&mut self, about: &ObjectReference, class: Class, now: Timestamp) -> bool {
        let object = identity(about);
        let (left, since) = remembered(&mut self.budgets, (object, class), || (BURST, now));
        let refilled = now.duration_since(*since).as_secs_f64() / REFILL.as_secs_f64();
        (*left, *since) = ((*left + refilled.max(0.0)).min(BURST), now);
        let has_budget = *left >= 1.0;
        if has_budget {
            *left -= 1.0;
        }
        has_budget
    }
}

/// The entry of `key`, made if it is not there. A memory that is full starts anew.
fn remembered<K: Eq + Hash, V>(memory: &mut HashMap<K, V>, key: K, make: impl FnOnce() -> V) -> &mut V {
    if memory.len() >= REMEMBERED && !memory.contains_key(&key) {
        memory.clear();
    }
    memory.entry(key).or_insert_with(make)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(object: &str, message: &str) -> Report {
        Report {
            about: ObjectReference {
                uid: Some(object.to_owned()),
                name: Some("job".to_owned()),
                ..ObjectReference::default()
            },
            is_warning: false,
            reason: "SuccessfulCreate".to_owned(),
            message: message.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn said(memory: &mut Memory, message: &str, second: i64) -> Option<(String, i32)> {
        memory
            .correlate(report("a", message), Class::Upstream, at(second))
            .map(|entry| (entry.report.message, entry.count))
    }

    #[test]
    fn the_same_event_again_counts_up() {
        let mut memory = Memory::default();
        assert_eq!(said(&mut memory, "x", 0), Some(("x".to_owned(), 1)));
        let first = memory.published.values().next().cloned();
        assert_eq!(said(&mut memory, "x", 5), Some(("x".to_owned(), 2)));
        assert_eq!(memory.published.len(), 1);
        assert_eq!(
            memory.published.values().next().map(|(name, ..)| name),
            first.as_ref().map(|(name, ..)| name)
        );
    }

    #[test]
    fn the_tenth_similar_event_is_combined_and_later_ones_count_it_up() {
        let mut memory = Memory::default();
        let mut said_last = None;
        for n in 1..=11 {
            said_last = said(&mut memory, &n.to_string(), n);
            if n == 9 {
                assert_eq!(said_last, Some(("9".to_owned(), 1)));
            }
            if n == 10 {
                assert_eq!(said_last, Some(("(combined from similar events): 10".to_owned(), 1)));
            }
        }
        assert_eq!(said_last, Some(("(combined from similar events): 11".to_owned(), 2)));
        assert_eq!(said(&mut memory, "12", 12 + 601), Some(("12".to_owned(), 1)), "ten minutes later");
    }

    #[test]
    fn events_that_wait_together_are_written_once_each() {
        let mut memory = Memory::default();
        let mut waiting = |messages: std::ops::Range<i64>| {
            let mut entries = Vec::new();
            for n in messages {
                let entry = memory.correlate(report("a", &n.to_string()), Class::Upstream, at(n));
                merge(&mut entries, entry.expect("within the budget"));
            }
            let written = |entry: Entry| (entry.report.message, entry.count, entry.is_new);
            entries.into_iter().map(written).collect::<Vec<_>>()
        };
        let combined = |n: i64| format!("(combined from similar events): {n}");
        let written = waiting(0..14);
        assert_eq!(written.len(), 10);
        assert_eq!(written.last(), Some(&(combined(13), 5, true)));
        assert_eq!(waiting(14..17), [(combined(16), 8, false)]);
    }

    #[test]
    fn an_object_has_25_events_and_then_one_in_five_minutes() {
        let mut memory = Memory::default();
        let heard = (0..100).filter(|n| said(&mut memory, &n.to_string(), 0).is_some()).count();
        assert_eq!(heard, 25);
        assert!(memory.correlate(report("b", "x"), Class::Upstream, at(0)).is_some(), "another object");
        assert!(memory.correlate(report("a", "x"), Class::Ours, at(0)).is_some(), "another class");
        assert_eq!(said(&mut memory, "x", 299), None);
        assert!(said(&mut memory, "x", 301).is_some());
        assert_eq!(said(&mut memory, "x", 302), None);
    }
}
