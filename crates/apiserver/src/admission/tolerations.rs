//! upstream: admission plugin DefaultTolerationSeconds. A node may be gone for five minutes before its pods are.

use serde_json::{Value, json};
use windlass_api::names::{NOT_READY_TAINT, UNREACHABLE_TAINT};

use crate::object::Object;

const TAINTS: [&str; 2] = [NOT_READY_TAINT, UNREACHABLE_TAINT];
const SECONDS: i64 = 300;

/// Adds a toleration for each of the two taints that a pod says nothing about.
pub(super) fn admit(object: &mut Object) {
    let missing: Vec<&str> = {
        let list = object.get("spec").and_then(|spec| spec.get("tolerations")).and_then(Value::as_array);
        let is_missing = |taint: &&str| !list.into_iter().flatten().any(|one| tolerates(one, taint));
        TAINTS.into_iter().filter(is_missing).collect()
    };
    if missing.is_empty() {
        return;
    }
    let list = object.section_mut("spec").entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    list.extend(missing.into_iter().map(|taint| {
        json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS})
    }));
}

/// upstream: nothing stands for every key and every effect.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    (text("key").is_empty() || text("key") == taint) && matches!(text("effect"), "" | "NoExecute")
}
