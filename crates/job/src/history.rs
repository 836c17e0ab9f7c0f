//! What became of failed pods, kept with the Job after the pods are gone.
//!
//! The history is a small text in an annotation of the Job, written with the status that counts the pods: it costs no
//! write of its own, any Kubernetes keeps it, and no other controller looks at it. It groups verdicts that are alike, and
//! has bounds: a Job of a million failures has a history of a few kilobytes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use windlass_api::indexes::IndexSet;

use crate::policy::failure::RuleMatch;
use crate::trace::PodOutcome;

/// Where the history stands.
pub const ANNOTATION: &str = "windlass.dev/verdicts";

/// Groups kept; what comes after them is counted together. A policy has at most 20 rules.
const GROUPS_MAX: usize = 24;
/// Nodes named in a group.
const NODES_MAX: usize = 4;
/// Longer messages are cut.
const MESSAGE_CHARS_MAX: usize = 160;
/// A longer list of indexes becomes the range around them.
const INDEXES_CHARS_MAX: usize = 200;

/// What a failed pod shows, taken while it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `container main: exit code 3`, or the reason that the pod was given.
    pub what: String,
    /// The last words of the container, or of the pod.
    pub message: Option<String>,
    /// Where it ran.
    pub node: Option<String>,
}

impl Evidence {
    /// Takes it from a pod that has ended.
    pub fn of_pod(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let mains = status.and_then(|status| status.container_statuses.as_ref());
        let inits = status.and_then(|status| status.init_container_statuses.as_ref());
        let mut containers = mains.into_iter().flatten().chain(inits.into_iter().flatten());
        let failed = containers.find_map(|container| {
            let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
            Some((&container.name, ended))
        });
        let reason = status.and_then(|status| status.reason.as_ref());
        let what = match (&failed, &reason) {
            (Some((name, ended)), _) => format!("container {name}: exit code {}", ended.exit_code),
            (None, Some(reason)) => format!("reason {reason}"),
            (None, None) => String::new(),
        };
        let said = failed.and_then(|(_, ended)| ended.message.as_ref());
        let said = said.filter(|message| !message.trim().is_empty());
        let message = said.or_else(|| status.and_then(|status| status.message.as_ref()));
        Self {
            what,
            message: message.map(|message| cut(message.trim())),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        }
    }
}

fn cut(text: &str) -> String {
    let last: String = text.lines().next_back().unwrap_or_default().to_owned();
    match last.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &last[..at]),
        None => last,
    }
}

/// What a verdict meant for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Meaning {
    /// It counts.
    Counted,
    /// It does not.
    Ignored,
    /// It had not stopped when the Job failed, and counts.
    EndedWithJob,
}

/// Verdicts that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// What they meant.
    pub meaning: Meaning,
    /// The rule, as in `rule 0 (Ignore) matches condition DisruptionTarget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the pods showed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// How many pods.
    pub pods: u32,
    /// Their indexes, as in `0-3,7`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub indexes: String,
    /// Where they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Failures of the Job before the first and after the last of them.
    pub failed: (u32, u32),
    /// When the first was counted, in seconds since 1970.
    pub first: i64,
    /// When the last was.
    pub last: i64,
    /// The last pod.
    pub pod: String,
    /// The last words of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A pod that was counted, or is not to be.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub pod: &'a str,
    /// Its index.
    pub index: Option<u32>,
    /// What it meant.
    pub outcome: &'a PodOutcome,
    /// What it showed.
    pub evidence: &'a Evidence,
    /// Failures of the Job before and after.
    pub failed: (u32, u32),
    /// When.
    pub at: Timestamp,
}

/// All verdicts about the failed pods of a Job, in the order of the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What is known.
    pub groups: Vec<Group>,
}

impl History {
    /// Reads what was written. A text that can't be read is no history.
    pub fn parse(text: &str) -> Self {
        Self { groups: serde_json::from_str(text).unwrap_or_default() }
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(&self.groups).unwrap_or_default()
    }

    /// Adds a pod. A success is no news.
    pub fn note(&mut self, entry: &Entry<'_>) {
        let (meaning, rule) = match entry.outcome {
            PodOutcome::Succeeded => return,
            PodOutcome::Counted(rule) => (Meaning::Counted, rule.as_ref()),
            PodOutcome::Ignored(rule) => (Meaning::Ignored, Some(rule)),
            PodOutcome::EndedWithJob => (Meaning::EndedWithJob, None),
        };
        let rule = rule.map(RuleMatch::to_string);
        let what = if meaning == Meaning::EndedWithJob { "" } else { entry.evidence.what.as_str() };
        let is_alike =
            |group: &&mut Group| group.meaning == meaning && group.rule == rule && group.what == what;
        if let Some(group) = self.groups.iter_mut().find(is_alike) {
            return group.add(entry);
        }
        if self.groups.len() >= GROUPS_MAX {
            // The last group takes in everything for which there is no room.
            if let Some(group) = self.groups.last_mut() {
                (group.rule, group.what) = (None, "others".to_owned());
                group.add(entry);
            }
            return;
        }
        let second = entry.at.as_second();
        let mut group = Group {
            meaning,
            rule,
            what: what.to_owned(),
            pods: 0,
            indexes: String::new(),
            nodes: Vec::new(),
            failed: entry.failed,
            first: second,
            last: second,
            pod: String::new(),
            message: None,
        };
        group.add(entry);
        self.groups.push(group);
    }
}

impl Group {
    fn add(&mut self, entry: &Entry<'_>) {
        self.pods = self.pods.saturating_add(1);
        self.failed.1 = entry.failed.1;
        self.last = entry.at.as_second();
        self.pod = entry.pod.to_owned();
        if entry.evidence.message.is_some() {
            self.message.clone_from(&entry.evidence.message);
        }
        if let Some(node) = entry.evidence.node.as_ref().filter(|node| !self.nodes.contains(node)) {
            match self.nodes.len() {
                NODES_MAX => self.nodes.push("…".to_owned()),
                count if count < NODES_MAX => self.nodes.push(node.clone()),
                _ => {}
            }
        }
        if let Some(index) = entry.index {
            self.indexes = with_index(&self.indexes, index);
        }
    }
}

fn with_index(indexes: &str, index: u32) -> String {
    let mut set = IndexSet::parse_lenient(indexes, i32::MAX);
    set.extend([index]);
    let text = set.to_string();
    if text.len() <= INDEXES_CHARS_MAX {
        return text;
    }
    match (set.first(), set.last()) {
        (Some(first), Some(last)) => format!("{first}-{last}"),
        (None, _) | (_, None) => text,
    }
}
