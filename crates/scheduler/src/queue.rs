//! Pods that wait for a node, grouped so that a pod that does not fit costs nothing until something changes.
//!
//! Pods with equal demands fit on the same nodes. So only the first pod of each group is tried, and when it
//! does not fit, the whole group rests until capacity appears. Ten thousand equal pods in front of a full
//! node cost one try a change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::fit::Demand;

/// The order of the queue: priority, the highest first, then age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: std::cmp::Reverse<i32>,
    created: Timestamp,
    /// Pods of one second come in the order in which they were seen.
    seen: u64,
}

/// A pod that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it asks for.
    pub demand: Arc<Demand>,
    /// The message of its `PodScheduled=False` condition with reason `Unschedulable`, if it has one.
    pub refused: Option<String>,
    /// Since when it has been refused.
    pub refused_since: Option<Timestamp>,
    turn: Turn,
    group: Arc<str>,
}

#[derive(Default)]
struct Group {
    pods: BTreeMap<Turn, Waiting>,
    /// The first pod did not fit, for this reason.
    blocked: Option<String>,
}

/// All pods that wait.
#[derive(Default)]
pub struct Queue {
    groups: HashMap<Arc<str>, Group>,
    /// The first pods of the groups that are not blocked.
    heads: BTreeSet<(Turn, Arc<str>)>,
    /// Where a pod stands, by UID.
    places: HashMap<String, (Arc<str>, Turn)>,
    seen: u64,
}

impl Queue {
    /// Puts a pod into the queue, or brings it up to date. Returns it if it has to be told why pods like it
    /// are not taken now.
    pub fn put(&mut self, pod: &Pod) -> Option<Waiting> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut waiting = waiting(pod, uid, self.seen + 1);
        match self.remove(&waiting.uid) {
            Some(before) => {
                waiting.turn.seen = before.turn.seen;
                // What it was told may not have reached the view that we are shown.
                waiting.refused = before.refused.or(waiting.refused);
            }
            None => self.seen += 1,
        }
        let blocked = self.groups.get(&waiting.group).and_then(|group| group.blocked.clone());
        let is_news = blocked.is_some() && waiting.refused.is_none();
        if is_news {
            waiting.refused = blocked;
        }
        self.put_back(waiting.clone());
        is_news.then_some(waiting)
    }

    /// Puts a pod back that was taken.
    pub fn put_back(&mut self, waiting: Waiting) {
        let (key, turn) = (waiting.group.clone(), waiting.turn.clone());
        self.places.insert(waiting.uid.clone(), (key.clone(), turn.clone()));
        self.unlist(&key);
        self.groups.entry(key.clone()).or_default().pods.insert(turn, waiting);
        self.list(&key);
    }

    /// Takes a pod out.
    pub fn remove(&mut self, uid: &str) -> Option<Waiting> {
        let (key, turn) = self.places.remove(uid)?;
        self.unlist(&key);
        let group = self.groups.get_mut(&key)?;
        let waiting = group.pods.remove(&turn);
        if group.pods.is_empty() {
            self.groups.remove(&key);
        }
        self.list(&key);
        waiting
    }

    /// The pod whose turn it is.
    pub fn first(&self) -> Option<&Waiting> {
        let (turn, key) = self.heads.first()?;
        self.groups.get(key)?.pods.get(turn)
    }

    /// The first pod does not fit: it and its like rest until [`Queue::wake`]. Returns those that were not
    /// told so yet, and the first one if it was told something else.
    pub fn block_first(&mut self, message: &str) -> Vec<Waiting> {
        let Some((turn, key)) = self.heads.pop_first() else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        group.blocked = Some(message.to_owned());
        let mut told = Vec::new();
        for (place, waiting) in &mut group.pods {
            let is_stale = *place == turn && waiting.refused.as_deref() != Some(message);
            if waiting.refused.is_none() || is_stale {
                waiting.refused = Some(message.to_owned());
                told.push(waiting.clone());
            }
        }
        told
    }

    /// Something has changed for the better: all groups are tried again.
    pub fn wake(&mut self) {
        let keys: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for key in keys {
            if let Some(group) = self.groups.get_mut(&key) {
                group.blocked = None;
            }
            self.list(&key);
        }
    }

    /// The UIDs of all pods that wait.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        self.places.keys()
    }

    fn unlist(&mut self, key: &Arc<str>) {
        if let Some((turn, _)) = self.groups.get(key).and_then(|group| group.pods.first_key_value()) {
            self.heads.remove(&(turn.clone(), key.clone()));
        }
    }

    fn list(&mut self, key: &Arc<str>) {
        let group = self.groups.get(key).filter(|group| group.blocked.is_none());
        if let Some((turn, _)) = group.and_then(|group| group.pods.first_key_value()) {
            self.heads.insert((turn.clone(), key.clone()));
        }
    }
}

fn waiting(pod: &Pod, uid: String, seen: u64) -> Waiting {
    let spec = pod.spec.as_ref();
    let demand = spec.map(Demand::of).unwrap_or_default();
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let refusal = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .find(|condition| condition.reason.as_deref() == Some("Unschedulable"));
    Waiting {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid,
        group: format!("{demand:?}").into(),
        demand: Arc::new(demand),
        refused: refusal.and_then(|condition| condition.message.clone()),
        refused_since: refusal.and_then(|c| c.last_transition_time.as_ref()).map(|time| time.0),
        turn: Turn {
            priority: std::cmp::Reverse(spec.and_then(|spec| spec.priority).unwrap_or(0)),
            created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0),
            seen,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, priority: i32, created: i64, cpu: &str) -> Pod {
        let created = Timestamp::from_second(created).expect("a time").to_string();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            },
        }))
        .expect("a pod")
    }

    fn drain(queue: &mut Queue) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(name) = queue.first().map(|waiting| waiting.name.clone()) {
            queue.remove(&name);
            names.push(name);
        }
        names
    }

    #[test]
    fn pods_come_by_priority_then_age_then_arrival_whatever_their_demands() {
        let mut queue = Queue::default();
        for (name, priority, created, cpu) in [
            ("late", 0, 9, "1"),
            ("old", 0, 1, "2"),
            ("high", 5, 9, "1"),
            ("same-a", 0, 5, "1"),
            ("same-b", 0, 5, "3"),
        ] {
            assert_eq!(queue.put(&pod(name, priority, created, cpu)), None);
        }
        assert_eq!(drain(&mut queue), ["high", "old", "same-a", "same-b", "late"]);
    }

    #[test]
    fn a_group_whose_first_pod_does_not_fit_rests_and_each_of_it_is_told_once() {
        let mut queue = Queue::default();
        for (name, cpu) in [("a", "1"), ("b", "1"), ("other", "2")] {
            queue.put(&pod(name, 0, 1, cpu));
        }
        let names = |told: Vec<Waiting>| told.into_iter().map(|waiting| waiting.name).collect::<Vec<_>>();
        assert_eq!(names(queue.block_first("full")), ["a", "b"]);
        assert_eq!(queue.first().map(|waiting| waiting.name.as_str()), Some("other"));
        // A newcomer of the group hears at once why it has to wait.
        let told = queue.put(&pod("c", 0, 2, "1")).expect("news");
        assert_eq!((told.name.as_str(), told.refused.as_deref()), ("c", Some("full")));
        assert_eq!(queue.put(&pod("c", 0, 2, "1")), None, "told once");
        queue.wake();
        assert_eq!(queue.first().map(|waiting| waiting.name.as_str()), Some("a"));
        assert_eq!(names(queue.block_first("full")), [""; 0]);
        queue.wake();
        assert_eq!(names(queue.block_first("fuller")), ["a"]);
        queue.wake();
        assert_eq!(drain(&mut queue), ["a", "b", "other", "c"]);
        assert_eq!((queue.groups.len(), queue.heads.len(), queue.places.len()), (0, 0, 0));
    }

    #[test]
    fn a_pod_that_changes_keeps_its_place() {
        let mut queue = Queue::default();
        queue.put(&pod("a", 0, 1, "1"));
        queue.put(&pod("b", 0, 1, "1"));
        queue.put(&pod("a", 0, 1, "2"));
        assert_eq!(drain(&mut queue), ["a", "b"]);
    }
}
