//! upstream: admission plugin TaintNodesByCondition. A new node gets no pods before the node lifecycle controller has seen
//! that it is ready.

use serde_json::{Value, json};
use windlass_api::names::NOT_READY_TAINT;

use crate::object::Object;

const EFFECT: &str = "NoSchedule";

/// Taints a new node, unless it has that taint already.
pub(super) fn admit(object: &mut Object) {
    let taints = object.section_mut("spec").entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    // What is no list is refused by validation.
    let Some(taints) = taints.as_array_mut() else { return };
    let is_it = |taint: &Value| taint["key"] == NOT_READY_TAINT && taint["effect"] == EFFECT;
    if !taints.iter().any(is_it) {
        taints.push(json!({"key": NOT_READY_TAINT, "effect": EFFECT}));
    }
}
