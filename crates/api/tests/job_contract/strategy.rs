//! What happens to a Job between decoding and validation.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::defaults::job::apply;
use windlass_api::strategy::{
    DEFAULT_PROPAGATION_POLICY, check_field_label, default_and_prepare_for_create, prepare_for_create,
    prepare_for_status_update, prepare_for_update, selectable_fields,
};

use crate::support::{GENERATED, admitted, admitted_spec, changed, sent_spec};

fn generated() -> Value {
    serde_json::from_str(GENERATED).expect("JSON")
}

fn template_labels(job: &Job) -> Value {
    let spec = job.spec.as_ref().expect("a spec");
    json!(spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()))
}

fn selector(job: &Job) -> Value {
    json!(job.spec.as_ref().expect("a spec").selector)
}

#[test]
fn labels_and_selector_are_generated() {
    let job = admitted_spec(json!({"template": {"metadata": {"labels": {"app": "x"}}}}));
    let mut want = generated();
    want["app"] = json!("x");
    assert_eq!(template_labels(&job), want);
    assert_eq!(
        selector(&job),
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}),
        "only the prefixed UID selects"
    );
}

#[test]
fn labels_and_selector_of_the_user_stay() {
    let job = admitted_spec(json!({
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "mine", "a": "b"}},
        "template": {"metadata": {"labels": {"job-name": "mine", "controller-uid": "mine"}}},
    }));
    let mut want = generated();
    want["job-name"] = json!("mine");
    want["controller-uid"] = json!("mine");
    assert_eq!(template_labels(&job), want);
    let want = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "mine", "a": "b"}});
    assert_eq!(selector(&job), want);
}

#[test]
fn nothing_is_generated_for_a_manual_selector() {
    let job = admitted_spec(json!({"manualSelector": true}));
    assert_eq!((template_labels(&job), selector(&job)), (json!(null), json!(null)));
}

#[test]
fn a_new_job_has_no_status_and_is_of_the_first_generation() {
    let job = admitted(json!({"metadata": {"generation": 7}, "status": {"failed": 3}}));
    assert_eq!((json!(job.status), job.metadata.generation), (json!({}), Some(1)));
}

#[test]
fn a_job_without_labels_shows_the_final_labels_of_its_template() {
    assert_eq!(json!(admitted(json!({})).metadata.labels), generated());
    let template = json!({"template": {"metadata": {"labels": {"app": "x"}}}});
    let mut want = generated();
    want["app"] = json!("x");
    assert_eq!(json!(admitted_spec(template.clone()).metadata.labels), want, "one map is shared by both");
    let own = json!({"metadata": {"labels": {"app": "x"}}, "spec": template});
    assert_eq!(json!(admitted(own).metadata.labels), json!({"app": "x"}), "own labels stay exactly");
    let manual = json!({"manualSelector": true, "template": {"metadata": {"labels": {"app": "x"}}}});
    assert_eq!(json!(admitted_spec(manual).metadata.labels), json!({"app": "x"}));
}

#[test]
fn preparing_alone_gives_labels_to_a_job_that_has_none() {
    let mut job = sent_spec(json!({}));
    apply(&mut job);
    assert_eq!(job.metadata.labels, None);
    prepare_for_create(&mut job, &Gates::default());
    assert_eq!(json!(job.metadata.labels), generated());
}

#[test]
fn preparing_a_job_without_a_spec_makes_one() {
    let mut job = Job::default();
    prepare_for_create(&mut job, &Gates::default());
    assert_eq!(selector(&job), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": ""}}));
    let mut job = Job::default();
    default_and_prepare_for_create(&mut job, &Gates::default());
    assert_eq!(job.spec.expect("made").parallelism, Some(1));
}

#[test]
fn an_update_keeps_the_stored_status() {
    let old = changed(&admitted(json!({})), json!({"status": {"failed": 3}}));
    let mut new = changed(&old, json!({"status": {"failed": 0, "succeeded": 9}}));
    prepare_for_update(&mut new, &old, &Gates::default());
    assert_eq!(json!(new.status), json!({"failed": 3}));
}

#[test]
fn a_changed_spec_is_a_new_generation_and_nothing_else_is() {
    let old = changed(&admitted(json!({})), json!({"metadata": {"generation": 4}}));
    let rows = [
        ("nothing", json!({}), 4),
        ("spec", json!({"spec": {"parallelism": 7}}), 5),
        ("a number that may be absent", json!({"spec": {"activeDeadlineSeconds": 0}}), 5),
        ("labels", json!({"metadata": {"labels": {"x": "y"}}}), 4),
        ("status", json!({"status": {"failed": 7}}), 4),
        ("a generation of the client's own", json!({"metadata": {"generation": 99}}), 4),
        ("both", json!({"metadata": {"generation": 99}, "spec": {"suspend": true}}), 5),
        (
            "the same in other words",
            json!({"spec": {"template": {"spec": {"hostNetwork": false, "tolerations": []}}}}),
            4,
        ),
    ];
    for (name, patch, want) in rows {
        let mut new = changed(&old, patch);
        prepare_for_update(&mut new, &old, &Gates::default());
        assert_eq!(new.metadata.generation, Some(want), "{name}");
    }
}

#[test]
fn the_same_in_other_words_is_no_new_generation_and_a_difference_that_tells_is() {
    let with = |container: Value, pod: Value| {
        let mut base = json!({"template": {"spec": pod}});
        let mut main = json!({"name": "main", "image": "busybox"});
        crate::support::merge(&mut main, &container);
        base["template"]["spec"]["containers"] = json!([main]);
        admitted_spec(base)
    };
    let nothing = || json!({});
    let same = [
        ("lists", with(json!({"args": [], "env": []}), json!({"volumes": []}))),
        ("texts", with(json!({"workingDir": ""}), json!({"nodeName": ""}))),
        ("flags", with(json!({"tty": false, "stdin": false}), json!({"hostPID": false}))),
        ("maps", with(json!({"resources": {"limits": {}}}), json!({"nodeSelector": {}}))),
        ("ports", with(json!({"ports": []}), nothing())),
    ];
    let base = with(nothing(), nothing());
    for (name, other) in same {
        let mut new = other;
        prepare_for_update(&mut new, &base, &Gates::default());
        assert_eq!(new.metadata.generation, Some(1), "{name}");
    }
    let different = [
        ("optional flag", with(nothing(), json!({"automountServiceAccountToken": false}))),
        ("optional number", with(nothing(), json!({"terminationGracePeriodSeconds": 0}))),
        ("optional struct", with(nothing(), json!({"affinity": {}}))),
        ("empty text in a list", with(json!({"args": [""]}), nothing())),
        ("empty value in a map", with(nothing(), json!({"nodeSelector": {"a": ""}}))),
    ];
    for (name, other) in different {
        let mut new = other;
        prepare_for_update(&mut new, &base, &Gates::default());
        assert_eq!(new.metadata.generation, Some(2), "{name}");
    }
}

#[test]
fn host_port_0_is_none() {
    let with = |port: Value| {
        let main = json!({"name": "main", "image": "busybox", "ports": [port]});
        admitted_spec(json!({"template": {"spec": {"containers": [main]}}}))
    };
    let old = with(json!({"containerPort": 80}));
    for (host_port, want) in [(0, 1), (80, 2)] {
        let mut new = with(json!({"containerPort": 80, "hostPort": host_port}));
        prepare_for_update(&mut new, &old, &Gates::default());
        assert_eq!(new.metadata.generation, Some(want), "{host_port}");
    }
}

#[test]
fn equal_amounts_are_equal_however_they_are_written() {
    let with = |cpu: &str, memory: &str| {
        let resources = json!({"limits": {"cpu": cpu, "memory": memory}});
        let main = json!({"name": "main", "image": "busybox", "resources": resources});
        admitted_spec(json!({"template": {"spec": {"containers": [main]}}}))
    };
    let generation = |old: &Job, mut new: Job| {
        prepare_for_update(&mut new, old, &Gates::default());
        new.metadata.generation
    };
    let old = with("1", "1Gi");
    assert_eq!(generation(&old, with("1000m", "1073741824")), Some(1));
    assert_eq!(generation(&old, with("1001m", "1Gi")), Some(2));
    assert_eq!(generation(&old, with("1", "what")), Some(2));
}

#[test]
fn a_status_update_keeps_the_stored_spec_and_takes_metadata() {
    let old = changed(&admitted(json!({})), json!({"metadata": {"generation": 4}}));
    let mut new = changed(
        &old,
        json!({
            "metadata": {"generation": 9, "annotations": {"a": "b"}},
            "spec": {"parallelism": 7},
            "status": {"failed": 3},
        }),
    );
    prepare_for_status_update(&mut new, &old);
    let want = changed(&old, json!({"metadata": {"annotations": {"a": "b"}}, "status": {"failed": 3}}));
    assert_eq!(new, want);
}

#[test]
fn three_fields_can_be_selected() {
    let job = changed(&admitted(json!({})), json!({"status": {"succeeded": 4}}));
    let want = [("metadata.name", "demo"), ("metadata.namespace", "default"), ("status.successful", "4")];
    assert_eq!(selectable_fields(&job).each_ref().map(|(field, value)| (*field, value.as_str())), want);
    for (field, _) in want {
        assert_eq!(check_field_label(field), Ok(()));
    }
    let want = "field label \"status.failed\" not supported for Job";
    assert_eq!(check_field_label("status.failed"), Err(want.to_owned()));
    assert_eq!(selectable_fields(&Job::default())[2].1, "0");
}

#[test]
fn pods_survive_their_job_by_default() {
    assert_eq!(DEFAULT_PROPAGATION_POLICY, "Orphan");
}
