//! How long a pod may stay on a tainted node. Pure.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Taint, Toleration};

/// What the taints of its node mean for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is one that it does not tolerate.
    Untolerated,
    /// It tolerates them all for so long.
    For(SignedDuration),
    /// It tolerates them all for ever.
    Forever,
}

/// The taints that end pods.
pub(crate) fn ending(taints: Option<&Vec<Taint>>) -> Vec<Taint> {
    taints.into_iter().flatten().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// Judges taints that end pods. Of the tolerations that match a taint the first one counts.
pub(crate) fn verdict(taints: &[Taint], tolerations: &[Toleration]) -> Verdict {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Verdict::Untolerated;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest {
        None => Verdict::Forever,
        Some(seconds) => Verdict::For(SignedDuration::from_secs(seconds.max(0))),
    }
}

/// upstream: Toleration.ToleratesTaint. Comparisons are behind a gate that is off.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any_or = |wanted: &Option<String>, is: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == is)
    };
    if !is_any_or(&toleration.effect, &taint.effect) || !is_any_or(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(taints: &Value, tolerations: &Value) -> Verdict {
        let taints: Vec<Taint> = serde_json::from_value(taints.clone()).expect("taints");
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
        verdict(&ending(Some(&taints)), &tolerations)
    }

    #[test]
    fn a_pod_stays_as_long_as_its_least_patient_toleration_says() {
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoExecute"});
        let exists = |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let seconds = |seconds| Verdict::For(SignedDuration::from_secs(seconds));
        let (a, b) = (taint("a", "1"), taint("b", ""));
        let cases = [
            (json!([a]), json!([]), Verdict::Untolerated),
            (json!([a]), json!([exists("a", json!(null))]), Verdict::Forever),
            (json!([a]), json!([exists("a", json!(300))]), seconds(300)),
            (json!([a]), json!([exists("a", json!(0))]), seconds(0)),
            (json!([a]), json!([exists("a", json!(-7))]), seconds(0)),
            (json!([a, b]), json!([exists("a", json!(300))]), Verdict::Untolerated),
            (json!([a, b]), json!([exists("a", json!(300)), exists("b", json!(20))]), seconds(20)),
            (json!([a, b]), json!([exists("a", json!(null)), exists("b", json!(20))]), seconds(20)),
            (json!([a, b]), json!([{"operator": "Exists"}]), Verdict::Forever),
            // The first that matches counts, not the one that would keep the pod longest.
            (json!([a]), json!([exists("a", json!(5)), exists("a", json!(null))]), seconds(5)),
            // One that matches no taint does not count.
            (json!([a]), json!([exists("a", json!(300)), exists("b", json!(1))]), seconds(300)),
            (json!([a]), json!([{"key": "a", "value": "1"}]), Verdict::Forever),
            (json!([a]), json!([{"key": "a", "operator": "Equal", "value": "2"}]), Verdict::Untolerated),
            (json!([a]), json!([{"key": "a", "operator": "Gt", "value": "0"}]), Verdict::Untolerated),
            (
                json!([a]),
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
                Verdict::Untolerated,
            ),
            (json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), Verdict::Forever),
        ];
        for (taints, tolerations, expected) in cases {
            assert_eq!(judged(&taints, &tolerations), expected, "{taints} {tolerations}");
        }
    }
}
