//! The rules for a new state of a Job.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::validation::job_update::validate_update;

use crate::support::{admitted_spec, changed, texts};

/// A stored Job.
fn stored(spec: Value) -> Job {
    changed(&admitted_spec(spec), json!({"metadata": {"resourceVersion": "5"}}))
}

fn errors(old: &Job, patch: Value) -> Vec<String> {
    texts(&validate_update(&changed(old, patch), old, &Gates::default()))
}

#[track_caller]
fn check(name: &str, old: &Job, patch: Value, wants: &[&str]) {
    assert_eq!(errors(old, json!({"spec": patch})), wants, "{name}");
}

fn indexed() -> Job {
    stored(
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1}),
    )
}

#[test]
fn these_fields_change_freely() {
    let old = stored(json!({}));
    let rows = [
        json!({}),
        json!({"parallelism": 9}),
        json!({"parallelism": 0}),
        json!({"activeDeadlineSeconds": 9}),
        json!({"backoffLimit": 9}),
        json!({"ttlSecondsAfterFinished": 9}),
        json!({"suspend": true}),
        json!({"podReplacementPolicy": "Failed"}),
        json!({"manualSelector": true}),
    ];
    for patch in rows {
        check(&patch.to_string(), &old, patch, &[]);
    }
    let limited = stored(json!({"activeDeadlineSeconds": 9}));
    check("no deadline any more", &limited, json!({"activeDeadlineSeconds": null}), &[]);
    check("failed indexes", &indexed(), json!({"maxFailedIndexes": 2}), &[]);
}

#[test]
fn metadata_is_checked_against_the_old() {
    let wants = ["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"];
    assert_eq!(errors(&stored(json!({})), json!({"metadata": {"resourceVersion": null}})), wants);
}

#[test]
fn errors_of_the_spec_stand_twice() {
    let want = "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0";
    check("negative", &stored(json!({})), json!({"backoffLimit": -1}), &[want, want]);
}

#[test]
fn these_fields_are_immutable() {
    let selector = "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: field is immutable";
    let manual = stored(json!({
        "manualSelector": true,
        "selector": {"matchLabels": {"c": "d"}},
        "template": {"metadata": {"labels": {"a": "b", "c": "d"}}},
    }));
    check("selector", &manual, json!({"selector": {"matchLabels": {"a": "b", "c": null}}}), &[selector]);

    let plain = stored(json!({}));
    check(
        "completionMode",
        &plain,
        json!({"completionMode": "Indexed"}),
        &["spec.completionMode: Invalid value: \"Indexed\": field is immutable"],
    );
    check(
        "podFailurePolicy",
        &plain,
        json!({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed"}),
        &["spec.podFailurePolicy: Invalid value: {\"rules\":[]}: field is immutable"],
    );
    check(
        "no podFailurePolicy",
        &stored(json!({"podFailurePolicy": {"rules": []}})),
        json!({"podFailurePolicy": null}),
        &["spec.podFailurePolicy: Invalid value: null: field is immutable"],
    );
    check(
        "backoffLimitPerIndex",
        &indexed(),
        json!({"backoffLimitPerIndex": 2}),
        &["spec.backoffLimitPerIndex: Invalid value: 2: field is immutable"],
    );
    check(
        "managedBy",
        &plain,
        json!({"managedBy": "acme.io/foo"}),
        &["spec.managedBy: Invalid value: \"acme.io/foo\": field is immutable"],
    );
    check(
        "no managedBy",
        &stored(json!({"managedBy": "acme.io/foo"})),
        json!({"managedBy": null}),
        &["spec.managedBy: Invalid value: null: field is immutable"],
    );
    check(
        "successPolicy",
        &indexed(),
        json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}),
        &["spec.successPolicy: Invalid value: {\"rules\":[{\"succeededCount\":1}]}: field is immutable"],
    );
}

#[test]
fn completions_of_a_job_without_indexes_are_immutable() {
    let old = stored(json!({"completions": 3, "parallelism": 3}));
    let want = "spec.completions: Invalid value: 4: field is immutable";
    check("even in tandem", &old, json!({"completions": 4, "parallelism": 4}), &[want]);
    let want = "spec.completions: Invalid value: null: field is immutable";
    check("to none", &old, json!({"completions": null}), &[want]);
    let queue = stored(json!({"parallelism": 3}));
    check(
        "from none",
        &queue,
        json!({"completions": 3}),
        &["spec.completions: Invalid value: 3: field is immutable"],
    );
}

#[test]
fn completions_of_an_indexed_job_change_in_tandem_with_parallelism() {
    let tandem = |n: i32| {
        format!("spec.completions: Invalid value: {n}: can only be modified in tandem with spec.parallelism")
    };
    check("up", &indexed(), json!({"completions": 5, "parallelism": 5}), &[]);
    check("down", &indexed(), json!({"completions": 1, "parallelism": 1}), &[]);
    check("alone", &indexed(), json!({"completions": 5}), &[&tandem(5)]);
    check("apart", &indexed(), json!({"completions": 5, "parallelism": 4}), &[&tandem(5)]);
    check("parallelism alone", &indexed(), json!({"parallelism": 1}), &[]);
    let uneven = stored(json!({"completionMode": "Indexed", "completions": 9, "parallelism": 2}));
    check("old values need not be equal", &uneven, json!({"completions": 2}), &[]);
    let required = "spec.completions: Required value: when completion mode is Indexed";
    check("to none", &indexed(), json!({"completions": null}), &[required, required]);
}

#[test]
fn jobs_from_before_the_prefixed_labels_need_none() {
    let old = stored(json!({}));
    let labels = |patch: Value| {
        json!({"spec": {"selector": {"matchLabels": {
        "batch.kubernetes.io/controller-uid": null, "controller-uid": "u-1"}},
        "template": {"metadata": {"labels": patch}}}})
    };
    let without_name = changed(&old, labels(json!({"batch.kubernetes.io/job-name": null})));
    assert_eq!(errors(&without_name, json!({})), [""; 0], "neither are both of them required");
    let without_both = labels(json!({
        "batch.kubernetes.io/job-name": null, "batch.kubernetes.io/controller-uid": null,
    }));
    assert_eq!(errors(&changed(&old, without_both), json!({})), [""; 0]);
    let legacy = changed(&old, labels(json!({})));
    assert_eq!(
        errors(&legacy, labels(json!({"batch.kubernetes.io/job-name": null})))[0],
        "spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'demo'",
        "a Job that had both must keep both"
    );
}

#[test]
fn a_label_value_that_was_accepted_once_is_still_accepted() {
    let manual = |values: Value| {
        let expression = json!({"key": "a", "operator": "NotIn", "values": values});
        stored(json!({"manualSelector": true, "selector": {"matchExpressions": [expression]}}))
    };
    assert_eq!(errors(&manual(json!(["no label"])), json!({})), [""; 0]);
    let new = json!({"spec": {"selector": {"matchExpressions": [
        {"key": "a", "operator": "NotIn", "values": ["no label"]},
    ]}}});
    let paths: Vec<String> = {
        let old = manual(json!(["label"]));
        let new = changed(&old, new);
        validate_update(&new, &old, &Gates::default()).iter().map(|error| error.path.to_string()).collect()
    };
    let path = "spec.selector.matchExpressions[0].values[0]";
    assert_eq!(paths, [path, path, "spec.selector"], "but no new one is");
}

/// The change of a template, and whether it may be made while the window is open.
fn template_changes() -> Vec<(&'static str, Value, bool)> {
    let requests = json!({"requests": {"cpu": "2"}});
    let main = |extra: Value| {
        let mut main = json!({"name": "main", "image": "busybox", "resources": extra});
        main["imagePullPolicy"] = json!("Always");
        main["terminationMessagePath"] = json!("/dev/termination-log");
        main["terminationMessagePolicy"] = json!("File");
        main
    };
    let renamed = {
        let mut renamed = main(requests.clone());
        renamed["name"] = json!("other");
        renamed
    };
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    let node_affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": terms,
    }}});
    let pod_affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone"},
    ]}});
    vec![
        ("labels", json!({"metadata": {"labels": {"x": "y"}}}), true),
        ("annotations", json!({"metadata": {"annotations": {"x": "y"}}}), true),
        ("node selector", json!({"spec": {"nodeSelector": {"zone": "b"}}}), true),
        ("tolerations", json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}), true),
        ("scheduling gates", json!({"spec": {"schedulingGates": [{"name": "queue"}]}}), true),
        ("node affinity", json!({"spec": {"affinity": node_affinity}}), true),
        ("pod affinity", json!({"spec": {"affinity": pod_affinity}}), false),
        ("resources", json!({"spec": {"containers": [main(requests.clone())]}}), true),
        (
            "init resources",
            json!({"spec": {"initContainers": [{
                "name": "setup", "image": "busybox", "imagePullPolicy": "Always", "resources": requests,
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }]}}),
            true,
        ),
        ("resources of another container", json!({"spec": {"containers": [renamed.clone()]}}), false),
        ("one more container", json!({"spec": {"containers": [main(json!({})), renamed]}}), false),
        ("no init containers", json!({"spec": {"initContainers": null}}), false),
        ("service account", json!({"spec": {"serviceAccountName": "robot"}}), false),
    ]
}

#[test]
fn the_template_changes_only_while_a_suspended_job_is_at_rest_and_only_in_parts() {
    let with = |suspend: bool, status: Value| {
        let old = stored(json!({"suspend": suspend, "template": {"spec": {"containers": [{
            "name": "main", "image": "busybox", "imagePullPolicy": "Always",
        }]}}}));
        changed(&old, json!({"status": status}))
    };
    let suspended = json!([{"type": "Suspended", "status": "True"}]);
    let resumed = json!([{"type": "Suspended", "status": "False"}]);
    let start = json!("2026-01-01T00:00:00Z");
    let states = [
        ("never started", with(true, json!({})), true),
        ("suspended again", with(true, json!({"startTime": start, "conditions": suspended})), true),
        ("not yet suspended again", with(true, json!({"startTime": start, "conditions": resumed})), false),
        ("pods still active", with(true, json!({"active": 1})), false),
        ("running", with(false, json!({})), false),
        ("just resumed", with(false, json!({"conditions": suspended})), false),
    ];
    for (state, old, is_window_open) in states {
        for (change, patch, is_mutable_part) in template_changes() {
            let new = changed(&old, json!({"spec": {"template": patch}}));
            let template = new.spec.as_ref().expect("a spec").template.clone();
            let want = match (is_window_open, is_mutable_part) {
                (true, true) => vec![],
                (true, false) => vec![format!(
                    "spec.template.spec: Invalid value: {}: field is immutable",
                    serde_json::to_value(template.spec).expect("plain data")
                )],
                (false, _) => vec![format!(
                    "spec.template: Invalid value: {}: field is immutable",
                    serde_json::to_value(template).expect("plain data")
                )],
            };
            assert_eq!(texts(&validate_update(&new, &old, &Gates::default())), want, "{state}: {change}");
        }
    }
}

#[test]
fn a_job_may_be_placed_and_resumed_in_one_request() {
    let old = stored(json!({"suspend": true}));
    let patch = json!({"suspend": false, "template": {"spec": {"nodeSelector": {"zone": "b"}}}});
    check("at once", &old, patch, &[]);
}

#[test]
fn an_open_window_does_not_protect_generated_labels() {
    let old = stored(json!({"suspend": true}));
    let patch = json!({"spec": {"template": {"metadata": {"labels": {"job-name": null}}}}});
    let want = "spec.template.metadata.labels[job-name]: Required value: must be 'demo'";
    assert_eq!(errors(&old, patch), [want], "but the rules of a new Job do");
    let patch = json!({"template": {"metadata": {"finalizers": ["example.com/kept"]}}});
    check("other metadata is not compared", &old, patch, &[]);
}

#[test]
fn node_affinity_comes_and_goes_with_the_affinity_that_holds_it() {
    let node = |zone: &str| {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}})
    };
    let pods = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
    let with =
        |affinity: Value| stored(json!({"suspend": true, "template": {"spec": {"affinity": affinity}}}));
    let rows = [
        ("removed whole", json!({"nodeAffinity": node("a")}), json!(null), true),
        ("empty one removed", json!({}), json!(null), true),
        ("changed", json!({"nodeAffinity": node("a")}), json!({"nodeAffinity": node("b")}), true),
        (
            "changed beside another",
            json!({"nodeAffinity": node("a"), "podAffinity": pods}),
            json!({"nodeAffinity": node("b"), "podAffinity": pods}),
            true,
        ),
        (
            "removed beside another",
            json!({"nodeAffinity": node("a"), "podAffinity": pods}),
            json!({"podAffinity": pods}),
            true,
        ),
        ("removed with another", json!({"nodeAffinity": node("a"), "podAffinity": pods}), json!(null), false),
        ("added with another", json!(null), json!({"nodeAffinity": node("a"), "podAffinity": pods}), false),
    ];
    for (name, old, new, is_allowed) in rows {
        let old = with(old);
        let mut job = changed(&old, json!({"spec": {"template": {"spec": {"affinity": null}}}}));
        job = changed(&job, json!({"spec": {"template": {"spec": {"affinity": new}}}}));
        let errors = validate_update(&job, &old, &Gates::default());
        let paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
        let want: &[&str] = if is_allowed { &[] } else { &["spec.template.spec"] };
        assert_eq!(paths, want, "{name}");
    }
}

#[test]
fn what_changed_is_told_in_the_order_of_upstream() {
    let old = indexed();
    let new = changed(
        &old,
        json!({"spec": {
            "completions": 7,
            "selector": {"matchLabels": {"controller-uid": "u-1"}},
            "template": {"spec": {"hostNetwork": true}},
            "completionMode": "Indexed",
            "podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed",
            "backoffLimitPerIndex": 2,
            "managedBy": "acme.io/foo",
            "successPolicy": {"rules": [{"succeededCount": 1}]},
        }}),
    );
    let errors = validate_update(&new, &old, &Gates::default());
    let paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
    assert_eq!(
        paths,
        [
            "spec.completions",
            "spec.selector",
            "spec.template",
            "spec.podFailurePolicy",
            "spec.backoffLimitPerIndex",
            "spec.managedBy",
            "spec.successPolicy",
        ]
    );
}
