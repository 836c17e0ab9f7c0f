//! What a namespace says about its own end. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What was found while a namespace was emptied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Objects that are left, by resource and group: `pods.`, `jobs.batch`.
    pub(crate) remaining: BTreeMap<String, usize>,
    /// Objects that are held, by finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
    /// What went wrong.
    pub(crate) errors: Vec<String>,
}

impl Findings {
    /// Nothing is left, and nothing went wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.remaining.is_empty() && self.errors.is_empty()
    }
}

/// The conditions that the controller keeps: type, reason and message when all is well.
const WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The conditions after a look, or none if they are as before. Times change only with the status.
pub(crate) fn conditions(
    old: &[NamespaceCondition],
    findings: &Findings,
    now: Timestamp,
) -> Option<Vec<NamespaceCondition>> {
    let mut new = old.to_vec();
    for (type_, reason, message) in WELL {
        let (status, reason, message) = match trouble(type_, findings) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let fresh = NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match new.iter_mut().find(|one| one.type_ == type_) {
            None => new.push(fresh),
            Some(one) if one.status == fresh.status => {
                (one.reason, one.message) = (fresh.reason, fresh.message)
            }
            Some(one) => *one = fresh,
        }
    }
    (new != old).then_some(new)
}

fn trouble(type_: &str, findings: &Findings) -> Option<(&'static str, String)> {
    match type_ {
        "NamespaceDeletionContentFailure" if !findings.errors.is_empty() => {
            let mut errors = findings.errors.clone();
            errors.sort();
            let all = errors.join(", ");
            let message = format!("Failed to delete all resource types, {} remaining: {all}", errors.len());
            Some(("ContentDeletionFailed", message))
        }
        "NamespaceContentRemaining" if !findings.remaining.is_empty() => {
            let each = findings
                .remaining
                .iter()
                .map(|(what, count)| format!("{what} has {count} resource instances"));
            let all = each.collect::<Vec<_>>().join(", ");
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {all}")))
        }
        "NamespaceFinalizersRemaining" if !findings.finalizers.is_empty() => {
            let each = findings
                .finalizers
                .iter()
                .map(|(what, count)| format!("{what} in {count} resource instances"));
            let all = each.collect::<Vec<_>>().join(", ");
            let message = format!("Some content in the namespace has finalizers remaining: {all}");
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn shown(conditions: &[NamespaceCondition]) -> Vec<String> {
        let text = |one: &NamespaceCondition| {
            let (reason, message) =
                (one.reason.as_deref().unwrap_or(""), one.message.as_deref().unwrap_or(""));
            let time = one.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
            format!("{time} {}={} {reason}: {message}", one.type_, one.status)
        };
        conditions.iter().map(text).collect()
    }

    #[test]
    fn a_namespace_says_what_is_left_in_it_and_when_that_changed() {
        let findings = Findings {
            remaining: BTreeMap::from([("pods.".to_owned(), 2), ("jobs.batch".to_owned(), 1)]),
            finalizers: BTreeMap::from([("batch.kubernetes.io/job-tracking".to_owned(), 2)]),
            errors: Vec::new(),
        };
        let held = conditions(&[], &findings, at(1)).expect("they are new");
        assert_eq!(
            shown(&held),
            [
                "1 NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
                "1 NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: \
                 All legacy kube types successfully parsed",
                "1 NamespaceDeletionContentFailure=False ContentDeleted: \
                 All content successfully deleted, may be waiting on finalization",
                "1 NamespaceContentRemaining=True SomeResourcesRemain: \
                 Some resources are remaining: jobs.batch has 1 resource instances, pods. has 2 resource instances",
                "1 NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has \
                 finalizers remaining: batch.kubernetes.io/job-tracking in 2 resource instances",
            ]
        );
        assert_eq!(conditions(&held, &findings, at(2)), None, "nothing changed");
        let empty = conditions(&held, &Findings::default(), at(3)).expect("they changed");
        assert_eq!(
            shown(&empty)[3..],
            [
                "3 NamespaceContentRemaining=False ContentRemoved: All content successfully removed",
                "3 NamespaceFinalizersRemaining=False ContentHasNoFinalizers: \
                 All content-preserving finalizers finished",
            ]
        );
        assert!(shown(&empty)[0].starts_with("1 "), "its status did not change");
    }

    #[test]
    fn what_could_not_be_deleted_is_told_in_order() {
        let findings = Findings { errors: vec!["z".to_owned(), "a".to_owned()], ..Findings::default() };
        let told = conditions(&[], &findings, at(1)).expect("they are new");
        assert_eq!(
            shown(&told)[2],
            "1 NamespaceDeletionContentFailure=True ContentDeletionFailed: \
             Failed to delete all resource types, 2 remaining: a, z"
        );
    }
}
