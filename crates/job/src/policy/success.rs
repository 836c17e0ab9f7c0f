//! Which rule of a success policy is met by the completed indexes.

use k8s_openapi::api::batch::v1::SuccessPolicyRule;
use windlass_api::indexes::IndexSet;

/// One rule of `spec.successPolicy`.
#[derive(Clone, Debug)]
pub struct SuccessRule {
    /// The indexes that matter; `None` is all of them.
    indexes: Option<IndexSet>,
    /// How many of them suffice; `None` is all of them.
    count: Option<u64>,
}

impl SuccessRule {
    /// The rule of a Job with `completions` indexes; indexes beyond them are dropped.
    pub fn new(rule: &SuccessPolicyRule, completions: Option<u32>) -> Self {
        let limit = completions.and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
        Self {
            indexes: rule.succeeded_indexes.as_deref().map(|text| IndexSet::parse_lenient(text, limit)),
            count: rule.succeeded_count.map(|count| u64::try_from(count).unwrap_or(0)),
        }
    }

    fn is_met(&self, completed: &IndexSet) -> bool {
        let Some(indexes) = &self.indexes else {
            return self.count.is_some_and(|count| completed.len() >= count);
        };
        if indexes.is_empty() {
            return false;
        }
        let overlap = indexes.intersection_len(completed);
        overlap == indexes.len() || self.count.is_some_and(|count| overlap >= count)
    }
}

/// The first rule that is met. Without any completed index none is.
pub fn first_met(rules: &[SuccessRule], completed: &IndexSet) -> Option<usize> {
    if completed.is_empty() {
        return None;
    }
    rules.iter().position(|rule| rule.is_met(completed))
}
