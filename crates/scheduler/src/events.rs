//! Events for people, as kube-scheduler writes them: `events.k8s.io/v1`, an event that comes again is a series.
//!
//! They are published on the side and never hold up the work: what does not fit the channel is dropped.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::pod::PodFacts;
use crate::{Clock, NAME};

/// upstream: maxQueuedEvents.
const CHANNEL: usize = 1000;
/// upstream: finishTime. The same again after that is a new event.
const SERIES_ENDS: SignedDuration = SignedDuration::from_mins(6);
/// upstream: refreshTime. So often the count of a series is written.
const SERIES_REFRESHED: SignedDuration = SignedDuration::from_mins(30);
/// Series that are remembered. Forgetting one costs an event too many.
const SERIES_MAX: usize = 4096;
/// Pods that are bound faster than that are not all reported: nobody reads so many, and each costs a write. Events of
/// pods that are not bound are reported all.
const BOUND_BURST: f64 = 500.0;
const BOUND_PER_SECOND: f64 = 50.0;

/// An event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub about: Value,
    pub reason: Reason,
    pub note: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Scheduled,
    FailedScheduling,
    Preempted,
}

impl Reason {
    /// Its name, the action, and the type of the event.
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scheduled => ("Scheduled", "Binding", "Normal"),
            Self::FailedScheduling => ("FailedScheduling", "Scheduling", "Warning"),
            Self::Preempted => ("Preempted", "Preempting", "Normal"),
        }
    }
}

/// How an event refers to a pod.
pub(crate) fn reference(pod: &PodFacts) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": *pod.namespace, "uid": *pod.uid})
}

/// Publishes events.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Option<mpsc::Sender<Report>>);

impl Recorder {
    /// A recorder that publishes nothing.
    pub(crate) fn silent() -> Self {
        Self(None)
    }

    /// A recorder, and the task that publishes; it ends when the last recorder is dropped.
    pub(crate) fn new(client: Client, clock: Clock) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        (Self(Some(sender)), publish(receiver, client, clock))
    }

    /// Publishes an event, sooner or later, or never if there are too many.
    pub(crate) fn report(&self, make: impl FnOnce() -> Report) {
        if let Some(sender) = &self.0
            && let Ok(permit) = sender.try_reserve()
        {
            permit.send(make());
        }
    }
}

async fn publish(mut reports: mpsc::Receiver<Report>, client: Client, clock: Clock) {
    let instance = format!("{NAME}-{}", hostname());
    let mut memory = Memory::default();
    let mut budget = Budget { left: BOUND_BURST, at: Instant::now() };
    while let Some(report) = reports.recv().await {
        if report.reason == Reason::Scheduled && !budget.takes_one(Instant::now()) {
            continue;
        }
        let write = memory.correlate(&report, clock());
        if let Err(error) = send(&client, &report, write, &instance).await {
            tracing::debug!(%error, reason = ?report.reason, "event not published");
        }
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// How many events there may still be.
struct Budget {
    left: f64,
    at: Instant,
}

impl Budget {
    fn takes_one(&mut self, now: Instant) -> bool {
        let passed: Duration = now.duration_since(self.at);
        self.left = BOUND_BURST.min(self.left + passed.as_secs_f64() * BOUND_PER_SECOND);
        self.at = now;
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Create { name: String, at: Timestamp },
    Count { name: String, at: Timestamp, count: i32 },
    Nothing,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    count: i32,
    last: Timestamp,
    written: Timestamp,
}

/// Events that may come again.
#[derive(Debug, Default)]
struct Memory(HashMap<(String, Reason), Series>);

impl Memory {
    fn correlate(&mut self, report: &Report, now: Timestamp) -> Write {
        let create = || {
            let about = report.about["name"].as_str().unwrap_or_default();
            Write::Create { name: format!("{about}.{:x}", now.as_nanosecond()), at: now }
        };
        // Nothing else comes again.
        if report.reason != Reason::FailedScheduling {
            return create();
        }
        let key = (report.about["uid"].as_str().unwrap_or_default().to_owned(), report.reason);
        if let Some(series) = self.0.get_mut(&key).filter(|one| now.duration_since(one.last) < SERIES_ENDS) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if series.count > 2 && now.duration_since(series.written) < SERIES_REFRESHED {
                return Write::Nothing;
            }
            series.written = now;
            return Write::Count { name: series.name.clone(), at: now, count: series.count };
        }
        let write = create();
        if let Write::Create { name, .. } = &write {
            if self.0.len() >= SERIES_MAX {
                self.0.retain(|_, one| now.duration_since(one.last) < SERIES_ENDS);
            }
            if self.0.len() >= SERIES_MAX {
                self.0.clear();
            }
            self.0.insert(key, Series { name: name.clone(), count: 1, last: now, written: now });
        }
        write
    }
}

async fn send(client: &Client, report: &Report, write: Write, instance: &str) -> kube::Result<()> {
    let namespace = report.about["namespace"].as_str().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match write {
        Write::Nothing => Ok(()),
        Write::Count { name, at, count } => {
            let patch = json!({"series": {"count": count, "lastObservedTime": micro(at)}});
            events.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
        }
        Write::Create { name, at } => {
            let event = event(report, &name, at, instance);
            let event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
            events.create(&PostParams::default(), &event).await.map(drop)
        }
    }
}

fn event(report: &Report, name: &str, at: Timestamp, instance: &str) -> Value {
    let (reason, action, kind) = report.reason.texts();
    json!({
        "metadata": {"name": name, "namespace": report.about["namespace"]},
        "eventTime": micro(at),
        "reportingController": NAME,
        "reportingInstance": instance,
        "action": action,
        "reason": reason,
        "regarding": report.about,
        "note": report.note,
        "type": kind,
    })
}

fn micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn report(reason: Reason) -> Report {
        let about = reference(&pod(json!({})));
        Report { about, reason, note: "why".to_owned() }
    }

    #[test]
    fn the_same_failure_again_is_a_series_and_after_a_while_a_new_event() {
        let mut memory = Memory::default();
        let at = |seconds: i64| Timestamp::from_second(seconds).expect("a time");
        let failed = report(Reason::FailedScheduling);
        let Write::Create { name, .. } = memory.correlate(&failed, at(1000)) else { panic!("the first") };
        assert_eq!(name, "p.e8d4a51000");
        let count = |at, count| Write::Count { name: name.clone(), at, count };
        assert_eq!(memory.correlate(&failed, at(1010)), count(at(1010), 2));
        assert_eq!(memory.correlate(&failed, at(1020)), Write::Nothing);
        for second in (1100..2900).step_by(300) {
            memory.correlate(&failed, at(second));
        }
        assert_eq!(memory.correlate(&failed, at(2900)), count(at(2900), 10), "refreshed");
        assert!(matches!(memory.correlate(&failed, at(4000)), Write::Create { .. }));
        assert!(matches!(memory.correlate(&report(Reason::Scheduled), at(4000)), Write::Create { .. }));
    }

    #[test]
    fn an_event_has_upstreams_fields() {
        let at: Timestamp = "2026-01-02T03:04:05.678901Z".parse().expect("a time");
        let about =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "p"});
        let want = json!({
            "metadata": {"name": "p.1", "namespace": "default"}, "eventTime": "2026-01-02T03:04:05.678901Z",
            "reportingController": "default-scheduler", "reportingInstance": "i", "action": "Preempting",
            "reason": "Preempted", "regarding": about, "note": "why", "type": "Normal",
        });
        assert_eq!(event(&report(Reason::Preempted), "p.1", at, "i"), want);
    }

    #[test]
    fn of_very_many_bound_pods_not_all_are_reported() {
        let start = Instant::now();
        let mut budget = Budget { left: BOUND_BURST, at: start };
        let taken = (0..1000).filter(|_| budget.takes_one(start)).count();
        assert_eq!(taken, 500);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| budget.takes_one(later)).count(), 50);
    }
}
