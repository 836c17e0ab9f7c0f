//! Where pods go as watches tell their story.

use futures::FutureExt;
use serde_json::{Value, json};

use super::*;

const FINALIZER: &str = names::TRACKING_FINALIZER;

pub(crate) fn registry() -> Registry {
    Registry::new(Gates::default(), Manages::Unclaimed, Metrics::default())
}

fn job_with(uid: &str, revision: u64, spec: Value, status: Value) -> RawJob {
    let mut job = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "resourceVersion": revision.to_string()},
        "spec": {"selector": {"matchLabels": {"app": "x"}},
                 "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}},
        "status": status,
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    serde_json::from_str(&job.to_string()).expect("a Job")
}

pub(crate) fn job(uid: &str, revision: u64) -> RawJob {
    job_with(uid, revision, json!({}), json!({}))
}

/// A pod that holds the finalizer and would match every Job here.
pub(crate) fn pod(uid: &str, revision: u64, owner: Option<&str>) -> SlimPod {
    let owner = owner.map(
        |job| json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}),
    );
    let pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "resourceVersion": revision.to_string(),
                     "labels": {"app": "x"}, "finalizers": [FINALIZER],
                     "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
        "status": {"phase": "Running"},
    });
    serde_json::from_value(pod).expect("a pod")
}

fn free(mut pod: SlimPod) -> SlimPod {
    pod.0.metadata.finalizers = None;
    pod
}

/// The pods in the view of a Job.
fn pods_of(registry: &Registry, job: &str) -> Vec<String> {
    let slot = registry.slot(&Uid::new(job)).expect("known");
    let known = slot.known.lock();
    let mut pods: Vec<String> = known.view.pods().iter().map(|facts| facts.uid.to_string()).collect();
    pods.sort();
    pods
}

fn is_let_go(registry: &Registry, pod: &str) -> bool {
    registry.release_of(&Uid::new(pod)).is_some()
}

/// What the queue of orphans gives out, without waiting.
fn orphans(registry: &Registry) -> Vec<Orphan> {
    std::iter::from_fn(|| registry.orphans_due.next().now_or_never()).collect()
}

fn list<K>(change: impl Fn(Event<K>), objects: impl IntoIterator<Item = K>) {
    change(Event::Init);
    for object in objects {
        change(Event::InitApply(object));
    }
    change(Event::InitDone);
}

/// Nothing is kept of any pod.
fn is_empty(registry: &Registry) -> bool {
    let index = registry.index.lock();
    index.homes.is_empty() && index.ownerless.is_empty() && index.parked.is_empty()
}

#[test]
fn a_pod_that_is_seen_before_its_job_waits_for_it() {
    let registry = registry();
    registry.pod_changed(Event::Apply(pod("p", 2, Some("j"))));
    assert_eq!(orphans(&registry), [Orphan::Owner(Uid::new("j"))]);
    assert!(!is_let_go(&registry, "p"), "the watch of Jobs may only be late");
    registry.job_changed(Event::Apply(job("j", 1)));
    assert_eq!(pods_of(&registry, "j"), ["p"]);
    assert_eq!(registry.unknown_owner(&Uid::new("j")), None);
}

#[test]
fn pods_of_a_job_that_does_not_exist_are_let_go_and_forgotten() {
    let registry = registry();
    registry.pod_changed(Event::Apply(pod("held", 2, Some("j"))));
    registry.pod_changed(Event::Apply(free(pod("free", 3, Some("j")))));
    let owner = registry.unknown_owner(&Uid::new("j")).expect("unknown");
    assert_eq!((owner.namespace.as_str(), owner.name.as_str()), ("n", "j"));
    registry.owner_is_gone(&owner.uid);
    assert!(is_let_go(&registry, "held") && !is_let_go(&registry, "free"));
    assert!(orphans(&registry).contains(&Orphan::Pod(Uid::new("held"))));
    registry.released(&Uid::new("held"));
    registry.pod_changed(Event::Apply(free(pod("held", 4, Some("j")))));
    assert!(is_empty(&registry));
}

#[test]
fn the_pods_of_a_job_that_goes_are_let_go() {
    let registry = registry();
    registry.job_changed(Event::Apply(job("j", 1)));
    registry.pod_changed(Event::Apply(pod("held", 2, Some("j"))));
    registry.pod_changed(Event::Apply(free(pod("free", 3, Some("j")))));
    registry.job_changed(Event::Delete(job("j", 4)));
    assert!(registry.slot(&Uid::new("j")).is_none());
    let release = registry.release_of(&Uid::new("held")).expect("to be let go");
    assert_eq!((release.name.as_str(), release.resource_version.as_str()), ("held", "2"));
    assert_eq!(orphans(&registry), [Orphan::Pod(Uid::new("held"))]);
    registry.pod_changed(Event::Apply(pod("late", 5, Some("j"))));
    assert_eq!(orphans(&registry), [Orphan::Pod(Uid::new("late"))], "made while the Job went");
    registry.pod_changed(Event::Delete(pod("held", 6, Some("j"))));
    registry.pod_changed(Event::Delete(pod("late", 7, Some("j"))));
    assert!(is_empty(&registry));
}

#[test]
fn a_pod_of_nobody_is_shown_to_all_who_could_adopt_it_until_one_has() {
    let registry = registry();
    let other = json!({"selector": {"matchLabels": {"app": "y"}}});
    registry.job_changed(Event::Apply(job("a", 1)));
    registry.job_changed(Event::Apply(job_with("other", 2, other, json!({}))));
    registry.pod_changed(Event::Apply(free(pod("p", 3, None))));
    registry.job_changed(Event::Apply(job("b", 4)));
    let seen = || ["a", "b", "other"].map(|job| pods_of(&registry, job).len());
    assert_eq!(seen(), [1, 1, 0]);
    registry.pod_changed(Event::Apply(pod("p", 5, Some("b"))));
    assert_eq!(seen(), [0, 1, 0]);
    registry.pod_changed(Event::Apply(pod("p", 6, Some("a"))));
    assert_eq!(seen(), [1, 0, 0], "an owner can change at once");
    let mut relabelled = free(pod("p", 7, None));
    relabelled.0.metadata.labels = None;
    registry.pod_changed(Event::Apply(relabelled));
    assert_eq!(seen(), [0, 0, 0]);
    registry.pod_changed(Event::Delete(pod("p", 8, None)));
    assert!(is_empty(&registry));
}

#[test]
fn a_held_pod_of_nobody_is_let_go_once_nobody_will_adopt_it() {
    let registry = registry();
    registry.job_changed(Event::Apply(job("j", 1)));
    registry.pod_changed(Event::Apply(pod("p", 2, None)));
    assert!(!is_let_go(&registry, "p"));
    orphans(&registry);
    let over = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    registry.job_changed(Event::Apply(job_with("j", 3, json!({}), over)));
    let asked = Orphan::Pod(Uid::new("p"));
    registry.orphans_due.done(&asked);
    assert_eq!(orphans(&registry), [asked]);
    assert!(is_let_go(&registry, "p"));
}

#[test]
fn a_new_list_tells_which_pods_are_gone_but_not_those_newer_than_itself() {
    let registry = registry();
    registry.job_changed(Event::Apply(job("j", 1)));
    for (uid, revision) in [("stays", 2), ("goes", 3)] {
        registry.pod_changed(Event::Apply(pod(uid, revision, Some("j"))));
    }
    registry.pod_changed(Event::Apply(pod("nobodys", 4, None)));
    registry.pod_changed(Event::Init);
    registry.pod_changed(Event::InitApply(pod("stays", 2, Some("j"))));
    // The answer to a creation that the list can't know.
    let slot = registry.slot(&Uid::new("j")).expect("known");
    slot.known.lock().observe_pod(&pod("new", 9, Some("j")).0);
    registry.pod_changed(Event::InitDone);
    assert_eq!(pods_of(&registry, "j"), ["new", "stays"]);
    list(|event| registry.pod_changed(event), []);
    assert_eq!(pods_of(&registry, "j"), Vec::<String>::new(), "an empty list counts too");
    assert!(is_empty(&registry));
}

#[test]
fn a_new_list_tells_which_jobs_are_gone() {
    let registry = registry();
    let theirs = json!({"managedBy": "example.com/other"});
    for job in [job("stays", 1), job("goes", 2), job_with("theirs", 3, theirs, json!({}))] {
        registry.job_changed(Event::Apply(job));
    }
    registry.pod_changed(Event::Apply(pod("p", 4, Some("goes"))));
    registry.pod_changed(Event::Apply(pod("q", 5, Some("theirs"))));
    assert!(!is_let_go(&registry, "p") && !is_let_go(&registry, "q"));
    list(|event| registry.job_changed(event), [job("stays", 1)]);
    assert!(registry.slot(&Uid::new("stays")).is_some() && registry.slot(&Uid::new("goes")).is_none());
    assert!(is_let_go(&registry, "p") && is_let_go(&registry, "q"));
}

#[test]
fn neither_the_echo_of_our_own_write_nor_the_place_of_a_pod_wakes_anybody() {
    let registry = registry();
    registry.job_changed(Event::Apply(job("j", 1)));
    let slot = registry.slot(&Uid::new("j")).expect("known");
    slot.known.lock().observe_pod(&pod("p", 2, Some("j")).0);
    let uid = registry.jobs_due.next().now_or_never().expect("the Job is new");
    registry.jobs_due.done(&uid);
    registry.job_changed(Event::Apply(job("j", 1)));
    registry.pod_changed(Event::Apply(pod("p", 2, Some("j"))));
    assert_eq!(registry.jobs_due.next().now_or_never(), None);
    let SlimPod(mut placed) = pod("p", 3, Some("j"));
    placed.spec.get_or_insert_default().node_name = Some("n".to_owned());
    registry.pod_changed(Event::Apply(SlimPod(placed.clone())));
    assert_eq!(registry.jobs_due.next().now_or_never(), None);
    placed.metadata.resource_version = Some("4".to_owned());
    placed.status.get_or_insert_default().phase = Some("Failed".to_owned());
    registry.pod_changed(Event::Apply(SlimPod(placed)));
    assert_eq!(registry.jobs_due.next().now_or_never(), Some(uid));
}

#[test]
fn a_job_that_cannot_be_read_is_skipped() {
    let registry = registry();
    registry.job_changed(Event::Apply(job_with("j", 1, json!({"parallelism": "many"}), json!({}))));
    assert!(registry.slot(&Uid::new("j")).is_none());
}
