//! Evictions: which pods a disruption budget protects, what it says when it does, and what it counts.

mod common;

use common::{Answer, Cluster, PODS, cluster, failure};
use serde_json::{Value, json};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

fn eviction(pod: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
}

async fn evict(c: &Cluster, pod: &str) -> Answer {
    c.post(&format!("{PODS}/{pod}/eviction"), eviction(pod)).await
}

async fn ready_pod(c: &Cluster, name: &str) {
    c.running_pod(name).await;
    set_ready(c, name, "True").await;
}

async fn set_ready(c: &Cluster, name: &str, status: &str) {
    let conditions = json!([{"type": "Ready", "status": status}]);
    let answer =
        c.merge(&format!("{PODS}/{name}/status"), json!({"status": {"conditions": conditions}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

async fn budget(c: &Cluster, name: &str, spec: Value, status: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    let made = c.post(BUDGETS, json!({"metadata": {"name": name}, "spec": spec})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    set_status(c, name, status).await;
}

async fn set_status(c: &Cluster, name: &str, status: Value) {
    let mut object = c.get(&format!("{BUDGETS}/{name}")).await.body;
    object["status"] = status;
    let answer = c.put(&format!("{BUDGETS}/{name}/status"), object).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn status(allowed: i64, current: i64, desired: i64) -> Value {
    json!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
        "desiredHealthy": desired, "expectedPods": current,
    })
}

fn too_many(retry_after: Option<u64>, why: &str) -> Answer {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry_after {
        details["retryAfterSeconds"] = json!(seconds);
    }
    Answer { code: 429, body: failure(429, "TooManyRequests", REFUSED, details), warnings: vec![] }
}

fn forbidden(why: &str) -> Answer {
    let details = json!({"name": "b", "group": "policy", "kind": "poddisruptionbudget"});
    let message = format!("poddisruptionbudget.policy \"b\" is forbidden: {why}");
    Answer { code: 403, body: failure(403, "Forbidden", &message, details), warnings: vec![] }
}

async fn is_marked(c: &Cluster, pod: &str) -> bool {
    let pod = c.get(&format!("{PODS}/{pod}")).await.body;
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "DisruptionTarget" && one["reason"] == "EvictionByEvictionAPI")
}

#[tokio::test]
async fn an_eviction_takes_one_disruption_of_the_budget_and_says_so_in_it() {
    let c = cluster();
    ready_pod(&c, "p").await;
    ready_pod(&c, "q").await;
    budget(&c, "b", json!({"minAvailable": 1}), status(1, 2, 1)).await;
    let done = evict(&c, "p").await;
    let success =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((done.code, done.body), (201, success));
    let pod = c.get(&format!("{PODS}/p")).await.body;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(is_marked(&c, "p").await);
    let mut want = status(0, 2, 1);
    want["disruptedPods"] = json!({"p": "2026-01-02T03:04:05Z"});
    want["conditions"] = json!([{
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]);
    let stored = c.get(&format!("{BUDGETS}/b")).await.body;
    assert_eq!(stored["status"], want);
    assert_eq!(stored["metadata"]["generation"], 1);
    // The pod is going: nobody is asked a second time. The other has no disruption left.
    assert_eq!(evict(&c, "p").await.code, 201);
    let why = "The disruption budget b does not allow evicting pods currently";
    assert_eq!(evict(&c, "q").await, too_many(None, why));
    assert!(!is_marked(&c, "q").await);
}

#[tokio::test]
async fn a_budget_that_refuses_says_why() {
    let c = cluster();
    ready_pod(&c, "p").await;
    budget(&c, "b", json!({"minAvailable": 2}), status(0, 1, 2)).await;
    let condition = |reason: &str, message: &str| {
        json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }])
    };
    let with = |mut status: Value, field: &str, value: Value| {
        status[field] = value;
        status
    };
    let many: serde_json::Map<String, Value> =
        (0..2001).map(|i| (format!("p{i}"), json!("2026-01-02T03:04:05Z"))).collect();
    let cases = [
        (status(0, 1, 2), too_many(None, "The disruption budget b needs 2 healthy pods and has 1 currently")),
        (
            with(status(0, 1, 2), "conditions", condition("SyncFailed", "no scale")),
            too_many(
                None,
                "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
            ),
        ),
        (
            with(status(0, 3, 2), "conditions", condition("Other", "wait")),
            too_many(None, "The disruption budget b does not allow evicting pods currently (Other): wait"),
        ),
        (status(0, 3, 2), too_many(None, "The disruption budget b does not allow evicting pods currently")),
        (
            with(status(1, 3, 2), "observedGeneration", json!(0)),
            too_many(Some(10), "The disruption budget b is still being processed by the server."),
        ),
        (
            with(status(1, 3, 2), "disruptedPods", Value::Object(many)),
            forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
        ),
    ];
    for (status, want) in cases {
        set_status(&c, "b", status.clone()).await;
        assert_eq!(evict(&c, "p").await, want, "{status}");
        assert!(!is_marked(&c, "p").await, "{status}");
    }
    set_status(&c, "b", status(0, 1, 2)).await;
    let path = format!("{PODS}/p/eviction");
    let response = c.raw(http::Method::POST, &path, "application/json", eviction("p").to_string()).await;
    assert_eq!(response.headers().get("retry-after"), None, "clients would try again inside of one call");
}

#[tokio::test]
async fn two_budgets_are_one_too_many() {
    let c = cluster();
    ready_pod(&c, "p").await;
    budget(&c, "a", json!({"minAvailable": 0}), status(1, 1, 0)).await;
    budget(&c, "b", json!({"maxUnavailable": "50%"}), status(1, 1, 0)).await;
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let answer = evict(&c, "p").await;
    assert_eq!((answer.code, answer.body), (500, failure(500, "", message, Value::Null)));
}

#[tokio::test]
async fn a_pod_that_does_no_work_is_not_protected() {
    let c = cluster();
    budget(&c, "b", json!({"minAvailable": 9}), status(0, 0, 9)).await;
    c.pod("pending").await;
    c.running_pod("failed").await;
    c.merge(&format!("{PODS}/failed/status"), json!({"status": {"phase": "Failed"}})).await;
    ready_pod(&c, "going").await;
    c.delete(&format!("{PODS}/going"), json!({})).await;
    ready_pod(&c, "other").await;
    c.merge(&format!("{PODS}/other"), json!({"metadata": {"labels": {"app": "b"}}})).await;
    for pod in ["pending", "failed", "going", "other"] {
        assert_eq!(evict(&c, pod).await.code, 201, "{pod}");
    }
    assert_eq!(c.get(&format!("{BUDGETS}/b")).await.body["status"], status(0, 0, 9), "nothing is counted");
}

#[tokio::test]
async fn a_pod_that_is_not_ready_goes_when_enough_others_are_or_the_budget_does_not_care() {
    let cases = [
        (json!({}), status(0, 2, 2), 201),
        (json!({}), status(0, 1, 2), 429),
        (json!({}), status(0, 0, 0), 429),
        (json!({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}), status(0, 1, 2), 429),
        (json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), status(0, 1, 2), 201),
    ];
    for (spec, counts, code) in cases {
        let c = cluster();
        ready_pod(&c, "p").await;
        set_ready(&c, "p", "False").await;
        budget(&c, "b", spec.clone(), counts.clone()).await;
        assert_eq!(evict(&c, "p").await.code, code, "{spec} {counts}");
        assert_eq!(c.get(&format!("{BUDGETS}/b")).await.body["status"], counts, "nothing is counted");
    }
}

#[tokio::test]
async fn a_dry_run_is_refused_as_the_real_one_and_changes_nothing() {
    let c = cluster();
    ready_pod(&c, "p").await;
    budget(&c, "b", json!({"minAvailable": 1}), status(1, 2, 1)).await;
    let revision = c.server.store().revision();
    let mut body = eviction("p");
    assert_eq!(c.post(&format!("{PODS}/p/eviction?dryRun=All"), body.clone()).await.code, 201);
    body["deleteOptions"] = json!({"dryRun": ["All"]});
    assert_eq!(c.post(&format!("{PODS}/p/eviction"), body.clone()).await.code, 201);
    assert_eq!(c.server.store().revision(), revision);
    set_status(&c, "b", status(0, 1, 1)).await;
    assert_eq!(c.post(&format!("{PODS}/p/eviction"), body).await.code, 429);
}

#[tokio::test]
async fn an_eviction_that_makes_no_sense_is_refused() {
    let c = cluster();
    ready_pod(&c, "p").await;
    let bad = |message: &str| (400, json!(message));
    let cases = [
        (eviction("q"), bad("name in URL does not match name in Eviction object")),
        (json!({"kind": "Pod", "metadata": {"name": "p"}}), bad("not a Eviction object: Pod")),
        (
            json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "x"}}}),
            (
                409,
                json!(format!(
                    "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (x) does not match the UID \
                     in record ({}). The object might have been deleted and then recreated",
                    c.get(&format!("{PODS}/p")).await.body["metadata"]["uid"].as_str().expect("a UID")
                )),
            ),
        ),
    ];
    for (body, want) in cases {
        let answer = c.post(&format!("{PODS}/p/eviction"), body).await;
        assert_eq!((answer.code, answer.body["message"].clone()), want);
    }
    let missing = evict(&c, "no").await;
    assert_eq!((missing.code, &missing.body["message"]), (404, &json!("pods \"no\" not found")));
    let beta = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(c.post(&format!("{PODS}/p/eviction"), beta).await.code, 201);
}

#[tokio::test]
async fn an_option_for_objects_that_cannot_be_read_has_no_place_in_an_eviction() {
    let c = cluster();
    ready_pod(&c, "p").await;
    let option = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let mut body = eviction("p");
    body["deleteOptions"] = json!({option: true});
    let answer = c.post(&format!("{PODS}/p/eviction"), body).await;
    let why = "Invalid value: true: can not be set for pod eviction, try after removing the option";
    let message = format!("Eviction.policy \"p\" is invalid: deleteOptions.{option}: {why}");
    let cause =
        json!({"reason": "FieldValueInvalid", "message": why, "field": format!("deleteOptions.{option}")});
    let details = json!({"name": "p", "group": "policy", "kind": "Eviction", "causes": [cause]});
    let expected = Answer { code: 422, body: failure(422, "Invalid", &message, details), warnings: vec![] };
    assert_eq!(answer, expected);
    assert!(!is_marked(&c, "p").await);
}
