//! What a pod that does not fit is told, in upstream's words.

use std::collections::BTreeMap;

use crate::cycle::Rejection;
use crate::preempt::Preemption;

/// What there is to say in a cluster without nodes.
pub const NO_NODES: &str = "no nodes available to schedule pods";
/// What comes before the answer of preemption. upstream: DynamicResources is asked before it, and has none either.
const PREEMPTION: &str = " no new claims to deallocate, preemption: ";
/// upstream: NoteLengthLimit of events.
const NOTE_MAX: usize = 1024;

/// Why a pod is not scheduled, and why nobody makes room for it.
pub fn refusal(rejection: &Rejection, preemption: &Preemption) -> String {
    if rejection.nodes_count == 0 {
        return NO_NODES.to_owned();
    }
    let mut text = match rejection.before_nodes {
        Some(reason) => format!("0/{} nodes are available: {reason}.", rejection.nodes_count),
        None => {
            let reasons = rejection.misfits.iter().flat_map(|(_, misfit)| &misfit.reasons);
            let mut counts = counted(reasons.map(|reason| &**reason));
            if rejection.others_count > 0 {
                *counts.entry("node(s) didn't satisfy plugin(s) [NodeAffinity]").or_default() +=
                    rejection.others_count;
            }
            histogram(rejection.nodes_count, &counts)
        }
    };
    match preemption {
        Preemption::Chosen(_) => {}
        // upstream: what DynamicResources says when it has seen nothing of the pod.
        Preemption::NotAsked => text.push_str(" not found"),
        Preemption::NotEligible(reason) => text.extend([PREEMPTION, *reason]),
        Preemption::NoCandidate(misfits) => {
            let mut counts = counted(misfits.iter().flat_map(|misfit| misfit.iter().map(|reason| &**reason)));
            let unasked = rejection.nodes_count - misfits.len();
            if unasked > 0 {
                *counts.entry("Preemption is not helpful for scheduling").or_default() += unasked;
            }
            text.push_str(PREEMPTION);
            text.push_str(&histogram(rejection.nodes_count, &counts));
        }
    }
    text
}

fn counted<'a>(reasons: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
    counts
}

/// `0/N nodes are available: <count> <reason>, …`, sorted as text.
fn histogram(nodes: usize, counts: &BTreeMap<&str, usize>) -> String {
    let mut texts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    if texts.is_empty() {
        return format!("0/{nodes} nodes are available:");
    }
    format!("0/{nodes} nodes are available: {}.", texts.join(", "))
}

/// A text as the note of an event, cut as upstream cuts it.
pub fn note(text: &str) -> String {
    const REST: &str = " ...";
    if text.len() <= NOTE_MAX {
        return text.to_owned();
    }
    let end = (0..=NOTE_MAX - REST.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{REST}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{Filter, Misfit};

    fn misfit(reasons: &[&'static str]) -> Misfit {
        let reasons = reasons.iter().map(|reason| (*reason).into()).collect();
        Misfit { filter: Filter::NodeResourcesFit, reasons, is_resolvable: true }
    }

    fn rejection(reasons: &[&[&'static str]], others_count: usize) -> Rejection {
        let misfits: Vec<_> =
            reasons.iter().enumerate().map(|(i, reasons)| (format!("n{i}"), misfit(reasons))).collect();
        Rejection { nodes_count: misfits.len() + others_count, misfits, others_count, ..Rejection::default() }
    }

    #[test]
    fn refusals_have_upstreams_words() {
        let none = || Preemption::NoCandidate(Vec::new());
        let conflict = Rejection {
            nodes_count: 2,
            before_nodes: Some("pod affinity terms conflict"),
            ..Rejection::default()
        };
        for (rejection, preemption, want) in [
            (Rejection::default(), none(), "no nodes available to schedule pods"),
            (
                rejection(
                    &[
                        &["Insufficient cpu"],
                        &["Too many pods", "Insufficient cpu"],
                        &["node(s) were unschedulable"],
                    ],
                    0,
                ),
                Preemption::NoCandidate(vec![vec!["No preemption victims found for incoming pod".into()]; 2]),
                "0/3 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to \
                 deallocate, preemption: \
                 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for \
                 incoming pod.",
            ),
            (
                rejection(&[&["Insufficient cpu"]], 2),
                Preemption::NotEligible("not eligible due to preemptionPolicy=Never."),
                "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
                 no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
            ),
            (
                conflict,
                Preemption::NotAsked,
                "0/2 nodes are available: pod affinity terms conflict. not found",
            ),
            (
                rejection(&[&["Insufficient cpu"]], 0),
                Preemption::Chosen(crate::preempt::Candidate::default()),
                "0/1 nodes are available: 1 Insufficient cpu.",
            ),
        ] {
            assert_eq!(refusal(&rejection, &preemption), want);
        }
    }

    #[test]
    fn long_notes_are_cut() {
        assert_eq!(note("short"), "short");
        let cut = note(&"x".repeat(2000));
        assert_eq!((cut.len(), cut.ends_with("x ...")), (1024, true));
        assert_eq!(note(&"é".repeat(1000)).len(), 1024);
    }
}
