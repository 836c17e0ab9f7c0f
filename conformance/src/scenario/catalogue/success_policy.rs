//! `successPolicy`: a Job that is done before all its indexes are.

use serde_json::{Value, json};

use super::super::{Deed, Scenario, Who, index, indexed, scenario};

fn rule(rule: Value) -> Value {
    json!({"successPolicy": {"rules": [rule]}})
}

pub(super) fn all() -> Vec<Scenario> {
    let test = "TestSuccessPolicy";
    vec![
        scenario("success-all-indexes", test, indexed(1, 1, rule(json!({"succeededIndexes": "0"}))))
            .pod(index(0), Deed::Exit(0))
            .ends("Complete(SuccessPolicy) succeeded=1 completedIndexes=0"),
        scenario("success-without-policy", test, indexed(1, 1, json!({})))
            .pod(index(0), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1 completedIndexes=0"),
        scenario("success-index-1", test, indexed(2, 2, rule(json!({"succeededIndexes": "1"}))))
            .pod(index(1), Deed::Exit(0))
            .ends("Complete(SuccessPolicy) succeeded=1 completedIndexes=1"),
        scenario("success-count-1", test, indexed(2, 2, rule(json!({"succeededCount": 1}))))
            .pod(index(0), Deed::Exit(0))
            .ends("Complete(SuccessPolicy) succeeded=1 completedIndexes=0"),
        scenario("success-loses-to-failed-index", test, {
            let mut spec = indexed(2, 2, rule(json!({"succeededIndexes": "1"})));
            spec["backoffLimitPerIndex"] = json!(0);
            spec
        })
        .pod(index(0), Deed::Exit(1))
        .pod(index(1), Deed::Exit(0))
        .ends("Failed(FailedIndexes) succeeded=1 failed=1 completedIndexes=1 failedIndexes=0"),
        scenario(
            "success-across-restarts",
            "TestSuccessPolicy_ReEnabling",
            indexed(5, 5, rule(json!({"succeededCount": 3}))),
        )
        .pod(index(0), Deed::Exit(0))
        .restart()
        .pod(index(1), Deed::Exit(0))
        .restart()
        .pod(index(2), Deed::Exit(0))
        .ends("Complete(SuccessPolicy) succeeded=3 completedIndexes=0-2"),
        scenario("success-waits-for-running", "#123775: SuccessCriteriaMet first", {
            indexed(2, 2, rule(json!({"succeededIndexes": "0"})))
        })
        .run(2)
        .pod(index(0), Deed::Exit(0))
        .expect("SuccessCriteriaMet(SuccessPolicy) succeeded=1 terminating=1 completedIndexes=0")
        .end_terminating()
        .ends("Complete(SuccessPolicy) succeeded=1 completedIndexes=0"),
        scenario("success-count-of-some", "both fields of a rule", {
            indexed(3, 3, rule(json!({"succeededIndexes": "0,2", "succeededCount": 1})))
        })
        .pod(index(1), Deed::Exit(0))
        .expect("active=2 succeeded=1 completedIndexes=1")
        .pod(index(2), Deed::Exit(0))
        .ends("Complete(SuccessPolicy) succeeded=2 completedIndexes=1,2"),
        scenario("success-late-success-counts-not", "5.2.2: what still runs is not counted", {
            indexed(3, 3, rule(json!({"succeededCount": 1})))
        })
        .run(3)
        .pod(index(2), Deed::Exit(0))
        .expect("SuccessCriteriaMet(SuccessPolicy) succeeded=1 terminating=2 completedIndexes=2")
        .pod(Who::Terminating, Deed::End(0))
        .ends("Complete(SuccessPolicy) succeeded=1 completedIndexes=2"),
    ]
}
