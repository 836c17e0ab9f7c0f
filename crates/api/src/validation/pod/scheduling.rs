//! Rules for where a pod may run: gates, tolerations, affinity, spreading.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{list, member_of, text_of, unique};
use crate::field::{Error, Errors, Path};
use crate::selector::validate_label_selector;
use crate::validation::meta::{dns1123_label, dns1123_subdomain, each, label_value, qualified_name};

const NOT_POSITIVE: &str = "must be greater than zero";

/// Checks `readinessGates` and `schedulingGates`.
pub(super) fn validate_gates(spec: &PodSpec, path: &Path) -> Errors {
    let (mut errors, mut names) = (Errors::new(), BTreeSet::new());
    let at = path.child("readinessGates");
    for (i, gate) in list(&spec.readiness_gates).iter().enumerate() {
        let kind = gate.condition_type.as_str();
        errors.extend(each(&at.index(i).child("conditionType"), kind, qualified_name(kind)));
    }
    let at = path.child("schedulingGates");
    for (i, gate) in list(&spec.scheduling_gates).iter().enumerate() {
        errors.extend(each(&at.index(i), &gate.name, qualified_name(&gate.name)));
        errors.extend(unique(&mut names, &gate.name, &at.index(i)));
    }
    errors
}

/// Checks tolerations.
pub(super) fn validate_tolerations(tolerations: &[Toleration], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, toleration) in tolerations.iter().enumerate() {
        errors.extend(validate_toleration(toleration, &path.index(i)));
    }
    errors
}

fn validate_toleration(toleration: &Toleration, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (key, effect) = (text_of(&toleration.key), text_of(&toleration.effect));
    let (operator, value) = (text_of(&toleration.operator), text_of(&toleration.value));
    let (operator_at, effect_at) = (path.child("operator"), path.child("effect"));
    if !key.is_empty() {
        errors.extend(each(&path.child("key"), key, qualified_name(key)));
    }
    if key.is_empty() && operator != "Exists" {
        let text =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(Error::invalid(&operator_at, operator, text));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(Error::invalid(&effect_at, effect, text));
    }
    match operator {
        "" | "Equal" => {
            let wrong = label_value(value);
            if !wrong.is_empty() {
                errors.push(Error::invalid(&operator_at, value, wrong.join(";")));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let text = "value must be empty when `operator` is 'Exists'";
            errors.push(Error::invalid(&operator_at, value, text));
        }
        // Comparisons are an alpha feature of v1.36, and off.
        "Lt" | "Gt" => {
            errors.push(Error::not_supported(&operator_at, operator, &["Equal", "Exists", "Lt", "Gt"]));
        }
        _ => errors.push(Error::not_supported(&operator_at, operator, &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        errors.extend(member_of(&effect_at, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]));
    }
    errors
}

/// Checks `affinity`.
pub(super) fn validate_affinity(spec: &PodSpec, path: &Path) -> Errors {
    let Some(affinity) = &spec.affinity else { return Errors::new() };
    let mut errors = Errors::new();
    if let Some(affinity) = &affinity.node_affinity {
        errors.extend(validate_node_affinity(affinity, &path.child("nodeAffinity")));
    }
    if let Some(affinity) = &affinity.pod_affinity {
        errors.extend(validate_pod_affinity(
            list(&affinity.required_during_scheduling_ignored_during_execution),
            list(&affinity.preferred_during_scheduling_ignored_during_execution),
            &path.child("podAffinity"),
        ));
    }
    if let Some(affinity) = &affinity.pod_anti_affinity {
        errors.extend(validate_pod_affinity(
            list(&affinity.required_during_scheduling_ignored_during_execution),
            list(&affinity.preferred_during_scheduling_ignored_during_execution),
            &path.child("podAntiAffinity"),
        ));
    }
    errors
}

fn validate_node_affinity(affinity: &NodeAffinity, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let at = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            errors.push(Error::required(&at, "must have at least one node selector term"));
        }
        for (i, term) in required.node_selector_terms.iter().enumerate() {
            errors.extend(validate_node_term(term, true, &at.index(i)));
        }
    }
    let at = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in list(&affinity.preferred_during_scheduling_ignored_during_execution).iter().enumerate() {
        errors.extend(validate_weight(term.weight, &at.index(i)));
        // A preference for a value that no node can have does no harm.
        errors.extend(validate_node_term(&term.preference, false, &at.index(i).child("preference")));
    }
    errors
}

fn validate_weight(weight: i32, path: &Path) -> Errors {
    if (1..=100).contains(&weight) {
        return Errors::new();
    }
    vec![Error::invalid(&path.child("weight"), weight, "must be in the range 1-100")]
}

fn validate_node_term(term: &NodeSelectorTerm, checks_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, requirement) in list(&term.match_expressions).iter().enumerate() {
        let at = path.child("matchExpressions").index(i);
        errors.extend(validate_node_requirement(requirement, checks_values, &at));
    }
    for (i, requirement) in list(&term.match_fields).iter().enumerate() {
        errors.extend(validate_node_field(requirement, &path.child("matchFields").index(i)));
    }
    errors
}

fn validate_node_requirement(
    requirement: &NodeSelectorRequirement,
    checks_values: bool,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let (operator, values) = (requirement.operator.as_str(), list(&requirement.values));
    let at = path.child("values");
    match operator {
        "In" | "NotIn" if !values.is_empty() => {}
        "In" | "NotIn" => {
            errors.push(Error::required(&at, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if values.is_empty() => {}
        "Exists" | "DoesNotExist" => {
            let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&at, text));
        }
        "Gt" | "Lt" if values.len() == 1 => {}
        "Gt" | "Lt" => {
            let text = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(Error::required(&at, text));
        }
        _ => errors.push(Error::invalid(&path.child("operator"), operator, "not a valid selector operator")),
    }
    errors.extend(each(&path.child("key"), &requirement.key, qualified_name(&requirement.key)));
    for (i, value) in values.iter().enumerate().filter(|_| checks_values) {
        errors.extend(each(&at.index(i), value, label_value(value)));
    }
    errors
}

fn validate_node_field(requirement: &NodeSelectorRequirement, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (operator, values) = (requirement.operator.as_str(), list(&requirement.values));
    let at = path.child("values");
    if !["In", "NotIn"].contains(&operator) {
        errors.push(Error::invalid(&path.child("operator"), operator, "not a valid selector operator"));
    } else if values.len() != 1 {
        let text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(Error::required(&at, text));
    }
    if requirement.key != "metadata.name" {
        let text = "not a valid field selector key";
        errors.push(Error::invalid(&path.child("key"), requirement.key.as_str(), text));
        return errors;
    }
    for (i, value) in values.iter().enumerate() {
        errors.extend(each(&at.index(i), value, dns1123_subdomain(value)));
    }
    errors
}

fn validate_pod_affinity(
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let at = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in required.iter().enumerate() {
        errors.extend(validate_pod_term(term, &at.index(i)));
    }
    let at = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in preferred.iter().enumerate() {
        errors.extend(validate_weight(term.weight, &at.index(i)));
        errors.extend(validate_pod_term(&term.pod_affinity_term, &at.index(i).child("podAffinityTerm")));
    }
    errors
}

fn validate_pod_term(term: &PodAffinityTerm, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let selectors =
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)];
    for (name, selector) in selectors {
        if let Some(selector) = selector {
            errors.extend(validate_label_selector(selector, &path.child(name), false));
        }
    }
    for namespace in list(&term.namespaces) {
        errors.extend(each(&path.child("namespace"), namespace, dns1123_label(namespace)));
    }
    let (matched, mismatched) = (list(&term.match_label_keys), list(&term.mismatch_label_keys));
    errors.extend(validate_label_keys(matched, mismatched, term.label_selector.as_ref(), path));
    let at = path.child("topologyKey");
    if term.topology_key.is_empty() {
        errors.push(Error::required(&at, "can not be empty"));
    }
    errors.extend(each(&at, &term.topology_key, qualified_name(&term.topology_key)));
    errors
}

// The keys whose values the pod's own labels give.
fn validate_label_keys(
    matched: &[String],
    mismatched: &[String],
    selector: Option<&LabelSelector>,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let matched_at = path.child("matchLabelKeys");
    for (keys, at) in [(matched, &matched_at), (mismatched, &path.child("mismatchLabelKeys"))] {
        if selector.is_none() && !keys.is_empty() {
            errors.push(Error::forbidden(at, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            errors.extend(each(&at.index(i), key, qualified_name(key)));
        }
    }
    // By now the selector holds an expression for each matched key: a second one came from the author.
    let mut seen: BTreeSet<&str> =
        selector.iter().flat_map(|s| s.match_labels.iter().flatten()).map(|(key, _)| key.as_str()).collect();
    for expression in selector.iter().flat_map(|s| s.match_expressions.iter().flatten()) {
        let key = expression.key.as_str();
        let index = matched.iter().rposition(|matched| matched == key);
        if let Some(index) = index.filter(|_| seen.contains(key)) {
            let text = "exists in both matchLabelKeys and labelSelector";
            errors.push(Error::invalid(&path.index(index), key, text));
        }
        seen.insert(key);
    }
    for (i, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let text = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(Error::invalid(&matched_at.index(i), key.as_str(), text));
    }
    errors
}

/// Checks `topologySpreadConstraints`.
pub(super) fn validate_spread(spec: &PodSpec, path: &Path) -> Errors {
    let constraints = list(&spec.topology_spread_constraints);
    let mut errors = Errors::new();
    for (i, constraint) in constraints.iter().enumerate() {
        errors.extend(validate_constraint(constraint, &constraints[i + 1..], &path.index(i)));
    }
    errors
}

fn validate_constraint(
    constraint: &TopologySpreadConstraint,
    later: &[TopologySpreadConstraint],
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let (key, action) = (constraint.topology_key.as_str(), constraint.when_unsatisfiable.as_str());
    if constraint.max_skew <= 0 {
        errors.push(Error::invalid(&path.child("maxSkew"), constraint.max_skew, NOT_POSITIVE));
    }
    if key.is_empty() {
        errors.push(Error::required(&path.child("topologyKey"), "can not be empty"));
    }
    errors.extend(member_of(&path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]));
    if later.iter().any(|other| other.topology_key == key && other.when_unsatisfiable == action) {
        let at = path.child("{topologyKey, whenUnsatisfiable}");
        errors.push(Error::duplicate(&at, format!("{{{key}, {action}}}")));
    }
    if let Some(domains) = constraint.min_domains {
        let at = path.child("minDomains");
        if domains <= 0 {
            errors.push(Error::invalid(&at, domains, NOT_POSITIVE));
        }
        if action != "DoNotSchedule" {
            let text = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.push(Error::invalid(&at, domains, text));
        }
    }
    let policies = [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ];
    for (name, policy) in policies {
        if let Some(policy) = policy {
            errors.extend(member_of(&path.child(name), policy, &["Honor", "Ignore"]));
        }
    }
    let selector = constraint.label_selector.as_ref();
    errors.extend(validate_label_keys(list(&constraint.match_label_keys), &[], selector, path));
    if let Some(selector) = selector {
        errors.extend(validate_label_selector(selector, &path.child("labelSelector"), false));
    }
    errors
}
