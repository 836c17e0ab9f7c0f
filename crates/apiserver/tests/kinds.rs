//! The kinds that have few rules: what each fills in, and what it refuses, with upstream's texts.

mod common;

use common::{Cluster, cluster};
use serde_json::{Value, json};

const CRON: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const CORE: &str = "/api/v1/namespaces/default";

fn cron_job(spec: Value) -> Value {
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "host"}]}});
    let mut object = json!({
        "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}},
    });
    for (field, value) in spec.as_object().expect("a map") {
        object["spec"][field] = value.clone();
    }
    object
}

/// The errors of a create, each as `field: message`.
async fn errors(c: &Cluster, path: &str, body: Value) -> Vec<String> {
    let answer = c.post(path, body.clone()).await;
    assert_eq!(answer.code, 422, "{body}: {}", answer.body);
    causes(&answer.body)
}

fn causes(body: &Value) -> Vec<String> {
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

async fn check(c: &Cluster, path: &str, cases: Vec<(Value, &[&str])>) {
    for (body, want) in cases {
        assert_eq!(errors(c, path, body.clone()).await, want, "{body}");
    }
}

#[tokio::test]
async fn a_cron_job_has_defaults_and_counts_changes_of_its_spec() {
    let c = cluster();
    let made = c.post(CRON, cron_job(json!({}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let spec = &made.body["spec"];
    let shown = json!([
        spec["concurrencyPolicy"],
        spec["suspend"],
        spec["successfulJobsHistoryLimit"],
        spec["failedJobsHistoryLimit"],
        spec["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"],
        spec["jobTemplate"]["spec"].get("backoffLimit"),
        made.body["status"],
        made.body["metadata"]["generation"],
    ]);
    assert_eq!(shown, json!(["Allow", false, 3, 1, "ClusterFirst", null, {}, 1]));
    let changed = c.merge(&format!("{CRON}/c"), json!({"spec": {"suspend": true}})).await.body;
    assert_eq!(changed["metadata"]["generation"], 2);
    let labelled = c.merge(&format!("{CRON}/c"), json!({"metadata": {"labels": {"a": "b"}}})).await.body;
    assert_eq!(labelled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_cron_job_that_could_never_run_is_refused() {
    let c = cluster();
    let mut long = cron_job(json!({}));
    long["metadata"]["name"] = json!("a".repeat(53));
    let too_long =
        format!("metadata.name: Invalid value: \"{}\": must be no more than 52 characters", "a".repeat(53));
    check(
        &c,
        CRON,
        vec![
            (cron_job(json!({"schedule": ""})), &["spec.schedule: Required value"]),
            (
                cron_job(json!({"schedule": "60 * * * *"})),
                &["spec.schedule: Invalid value: \"60 * * * *\": end of range (60) above maximum (59): 60"],
            ),
            (
                cron_job(json!({"schedule": "TZ=UTC 0 * * * *"})),
                &["spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"],
            ),
            (
                cron_job(json!({"timeZone": "Mars/Olympus"})),
                &["spec.timeZone: Invalid value: \"Mars/Olympus\": unknown time zone Mars/Olympus"],
            ),
            (cron_job(json!({"timeZone": "../etc"})), &["spec.timeZone: Invalid value: \"../etc\": unknown time zone ../etc"]),
            (
                cron_job(json!({"timeZone": "local"})),
                &["spec.timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"],
            ),
            (
                cron_job(json!({"timeZone": ""})),
                &["spec.timeZone: Invalid value: \"\": timeZone must be nil or non-empty string"],
            ),
            (
                cron_job(json!({"concurrencyPolicy": "Sometimes"})),
                &["spec.concurrencyPolicy: Unsupported value: \"Sometimes\": supported values: \"Allow\", \"Forbid\", \"Replace\""],
            ),
            (
                cron_job(json!({"startingDeadlineSeconds": -1, "failedJobsHistoryLimit": -1, "successfulJobsHistoryLimit": -2})),
                &[
                    "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "spec.successfulJobsHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
                    "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                cron_job(json!({"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}})),
                &["spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
            ),
            (long, &[&too_long]),
        ],
    )
    .await;
    let zoned = c.post(CRON, cron_job(json!({"timeZone": "Europe/Berlin", "schedule": "@hourly"}))).await;
    assert_eq!(zoned.code, 201, "{}", zoned.body);
}

#[tokio::test]
async fn a_budget_has_one_bound_and_a_status_that_counts() {
    let c = cluster();
    let budget = |spec: Value| json!({"metadata": {"name": "b"}, "spec": spec});
    let both = json!({"minAvailable": 1, "maxUnavailable": 1});
    let percent = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                   regex used for validation is '[0-9]+%')";
    let not_percent = format!("spec.minAvailable: Invalid value: \"half\": {percent}");
    check(
        &c,
        BUDGETS,
        vec![
            (
                budget(both),
                &["spec: Invalid value: {\"maxUnavailable\":1,\"minAvailable\":1}: minAvailable and maxUnavailable cannot be both set"],
            ),
            (budget(json!({"minAvailable": -1})), &["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"]),
            (budget(json!({"maxUnavailable": "101%"})), &["spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"]),
            (budget(json!({"minAvailable": "half"})), &[&not_percent]),
            (
                budget(json!({"unhealthyPodEvictionPolicy": "Never"})),
                &["spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\""],
            ),
        ],
    )
    .await;
    let made = c.post(BUDGETS, budget(json!({"minAvailable": "50%"}))).await.body;
    let zero = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    assert_eq!((&made["status"], &made["metadata"]["generation"]), (&zero, &json!(1)));
    let mut wrong = made.clone();
    wrong["status"]["disruptionsAllowed"] = json!(-1);
    let answer = c.put(&format!("{BUDGETS}/b/status"), wrong).await;
    let want = ["status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"];
    assert_eq!(causes(&answer.body), want);
    let mut changed = made;
    changed["spec"]["minAvailable"] = json!(2);
    assert_eq!(c.put(&format!("{BUDGETS}/b"), changed).await.body["metadata"]["generation"], 2);
}

#[tokio::test]
async fn keys_of_config_maps_and_secrets_can_be_files() {
    let c = cluster();
    let named = |fields: Value| {
        let mut object = fields;
        object["metadata"] = json!({"name": "x"});
        object
    };
    let key = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
               'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let slash = format!("data[a/b]: Invalid value: \"a/b\": {key}");
    let large = "x".repeat((1 << 20) + 1);
    check(
        &c,
        &format!("{CORE}/configmaps"),
        vec![
            (named(json!({"data": {"a/b": "1"}})), &[&slash]),
            (named(json!({"data": {"..": "1"}})), &["data[..]: Invalid value: \"..\": must not be '..'"]),
            (
                named(json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}})),
                &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
            ),
            (named(json!({"data": {"a": large}})), &["[]: Too long: may not be more than 1048576 bytes"]),
        ],
    )
    .await;
    let secret =
        |kind: &str, data: Value| named(json!({"type": format!("kubernetes.io/{kind}"), "data": data}));
    check(
        &c,
        &format!("{CORE}/secrets"),
        vec![
            (named(json!({"data": {"a/b": "MQ=="}})), &[&slash]),
            (secret("tls", json!({})), &["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
            (secret("basic-auth", json!({})), &["data[username]: Required value", "data[password]: Required value"]),
            (secret("ssh-auth", json!({"x": ""})), &["data[ssh-privatekey]: Required value"]),
            (secret("dockerconfigjson", json!({})), &["data[.dockerconfigjson]: Required value"]),
            (
                secret("dockerconfigjson", json!({".dockerconfigjson": "ew=="})),
                &["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input"],
            ),
            (
                secret("service-account-token", json!({})),
                &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
        ],
    )
    .await;
    assert_eq!(
        c.post(&format!("{CORE}/secrets"), secret("tls", json!({"tls.crt": "", "tls.key": ""}))).await.code,
        201
    );
}

#[tokio::test]
async fn leases_events_nodes_services_and_names_are_checked() {
    let c = cluster();
    let lease = |spec: Value| json!({"metadata": {"name": "l"}, "spec": spec});
    check(
        &c,
        LEASES,
        vec![
            (
                lease(json!({"leaseDurationSeconds": 0, "leaseTransitions": -1})),
                &[
                    "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                    "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                lease(json!({"preferredHolder": "x"})),
                &["spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"],
            ),
        ],
    )
    .await;
    let event = |fields: Value| {
        let mut object = fields;
        object["metadata"] = json!({"name": "e"});
        object
    };
    let elsewhere = "involvedObject.namespace: Invalid value: \"other\": does not match event.namespace";
    check(
        &c,
        &format!("{CORE}/events"),
        vec![
            (event(json!({"involvedObject": {"namespace": "other"}})), &[elsewhere]),
            (
                event(json!({"involvedObject": {}, "eventTime": "2026-01-02T03:04:05.000000Z", "reportingComponent": "c"})),
                &["reportingInstance: Required value", "action: Required value", "reason: Required value"],
            ),
        ],
    )
    .await;
    let node = |spec: Value| json!({"metadata": {"name": "n"}, "spec": spec});
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    check(
        &c,
        "/api/v1/nodes",
        vec![
            (
                node(json!({"taints": [taint("a", "Never"), taint("b", "")]})),
                &[
                    "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                    "metadata.taints[1].effect: Required value",
                ],
            ),
            (
                json!({"metadata": {"name": "N"}}),
                &["metadata.name: Invalid value: \"N\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
            ),
        ],
    )
    .await;
    let made = c.post("/api/v1/nodes", json!({"metadata": {"name": "n"}, "spec": {"providerID": "p"}, "status": {"capacity": {"cpu": "2"}}})).await;
    assert_eq!(made.body["status"]["allocatable"], json!({"cpu": "2"}));
    let answer = c.merge("/api/v1/nodes/n", json!({"spec": {"providerID": "q"}})).await;
    assert_eq!(
        causes(&answer.body),
        ["spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"]
    );
    let service = c
        .post(&format!("{CORE}/services"), json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}))
        .await;
    assert_eq!(service.code, 201, "{}", service.body);
    check(
        &c,
        &format!("{CORE}/services"),
        vec![
            (json!({"metadata": {"name": "t"}, "spec": {}}), &["spec.ports: Required value"]),
            (
                json!({"metadata": {"name": "t"}, "spec": {"ports": [{"port": 0}]}}),
                &["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
            ),
        ],
    )
    .await;
    check(
        &c,
        "/api/v1/namespaces",
        vec![(
            json!({"metadata": {"name": "a.b"}}),
            &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
        )],
    )
    .await;
    check(
        &c,
        &format!("{CORE}/serviceaccounts"),
        vec![(json!({"metadata": {}}), &["metadata.name: Required value: name or generateName is required"])],
    )
    .await;
}

#[tokio::test]
async fn a_service_is_shown_with_its_ports_and_its_selector() {
    let c = cluster();
    let ports = json!([{"port": 80}, {"port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let bodies = [
        json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": ports, "selector": {"x": "1", "y": "2"}}}),
        json!({"metadata": {"name": "b"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}),
    ];
    for body in bodies {
        assert_eq!(c.post(&format!("{CORE}/services"), body).await.code, 201);
    }
    let table =
        c.get_as(&format!("{CORE}/services"), "application/json;as=Table;v=v1;g=meta.k8s.io").await.body;
    let columns: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| &column["name"])
        .collect();
    assert_eq!(columns, ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]);
    let cells: Vec<&Value> =
        table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"]).collect();
    let want = [
        json!(["a", "ClusterIP", "None", "<none>", "80/TCP,53:30053/UDP", "0s", "x=1,y=2"]),
        json!(["b", "ExternalName", "<none>", "example.com", "<none>", "0s", "<none>"]),
    ];
    assert_eq!(cells, want.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn kinds_that_nobody_acts_on_can_be_listed_and_not_made() {
    let c = cluster();
    for path in [
        "/apis/apps/v1/namespaces/default/daemonsets",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/replicasets",
        "/apis/apps/v1/namespaces/default/statefulsets",
        "/api/v1/namespaces/default/replicationcontrollers",
    ] {
        let list = c.get(path).await;
        assert_eq!((list.code, &list.body["items"]), (200, &json!([])), "{path}");
        assert_eq!(c.post(path, json!({"metadata": {"name": "x"}})).await.code, 405, "{path}");
        assert_eq!(c.get(&format!("{path}/x")).await.code, 404, "{path}");
    }
}

#[tokio::test]
async fn a_namespace_is_gone_when_it_is_finalized() {
    let c = cluster();
    c.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let going = c.delete("/api/v1/namespaces/n", Value::Null).await;
    assert_eq!((going.code, &going.body["status"]["phase"]), (200, &json!("Terminating")));
    let mut object = going.body;
    object["spec"]["finalizers"] = json!([]);
    let kept = c.put("/api/v1/namespaces/n", object.clone()).await;
    assert_eq!(kept.body["spec"]["finalizers"], json!(["kubernetes"]), "only finalize takes it away");
    object["metadata"]["resourceVersion"] = kept.body["metadata"]["resourceVersion"].clone();
    let done = c.put("/api/v1/namespaces/n/finalize", object).await;
    assert_eq!(done.code, 200, "{}", done.body);
    assert_eq!(c.get("/api/v1/namespaces/n").await.code, 404);
}

#[tokio::test]
async fn a_binding_can_be_made_in_the_collection_of_bindings() {
    let c = cluster();
    c.pod("p").await;
    let answer = c.post(&format!("{CORE}/bindings"), common::binding("p", "n1")).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(c.get(&format!("{CORE}/pods/p")).await.body["spec"]["nodeName"], "n1");
    assert_eq!(c.get(&format!("{CORE}/bindings")).await.code, 405);
}
