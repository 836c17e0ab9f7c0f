use serde_json::{Value, json};

use super::*;
use crate::testing::merged;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn pod(name: &str, priority: i32, created: i64, cpu: &str, more: Value) -> Pod {
    let base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1,
                     "creationTimestamp": at(created).to_string()},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
    });
    serde_json::from_value(merged(base, more)).expect("a pod")
}

fn put(queue: &mut Queue, pod: &Pod) -> bool {
    queue.put(Arc::new(PodFacts::of(pod).expect("facts")), pod, false, at(100))
}

fn first(queue: &mut Queue, now: i64) -> Option<String> {
    queue.first(at(now)).map(|waiting| waiting.pod.name.to_string())
}

fn drain(queue: &mut Queue) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(name) = first(queue, 1000) {
        queue.remove(&name);
        names.push(name);
    }
    names
}

fn full(message: &str) -> Rest {
    Rest {
        refusal: Refusal { reason: "Unschedulable", message: message.into() },
        filters: [Filter::NodeResourcesFit].into(),
        is_shared: true,
        nominated: Some(None),
    }
}

fn texts(uids: Vec<Uid>) -> Vec<String> {
    uids.iter().map(ToString::to_string).collect()
}

fn tell(queue: &mut Queue, uid: &str) -> Option<String> {
    let waiting = queue.get_mut(uid).expect("a pod");
    waiting.tell(at(100)).0.map(|refusal| refusal.message.clone())
}

#[test]
fn pods_come_by_priority_then_age_then_arrival_whatever_their_demands() {
    let mut queue = Queue::default();
    for (name, priority, created, cpu) in [
        ("late", 0, 9, "1"),
        ("old", 0, 1, "2"),
        ("high", 5, 9, "1"),
        ("same-a", 0, 5, "1"),
        ("same-b", 0, 5, "3"),
    ] {
        assert!(!put(&mut queue, &pod(name, priority, created, cpu, json!({}))));
    }
    assert_eq!(drain(&mut queue), ["high", "old", "same-a", "same-b", "late"]);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn a_group_whose_first_pod_does_not_fit_rests_and_each_of_it_is_told() {
    let mut queue = Queue::default();
    for (name, cpu) in [("a", "1"), ("b", "1"), ("other", "2")] {
        put(&mut queue, &pod(name, 0, 1, cpu, json!({})));
    }
    assert_eq!(first(&mut queue, 100).as_deref(), Some("a"));
    assert_eq!(texts(queue.rest_first(full("full"), at(100))), ["a", "b"]);
    assert_eq!(queue.counts(), Counts { active: 1, backing_off: 0, resting: 2 });
    assert_eq!(
        (tell(&mut queue, "a").as_deref(), tell(&mut queue, "b").as_deref()),
        (Some("full"), Some("full"))
    );
    assert_eq!(tell(&mut queue, "a"), None, "told once");
    assert_eq!(first(&mut queue, 100).as_deref(), Some("other"));
    // A newcomer of the group hears at once why it has to wait.
    assert!(put(&mut queue, &pod("c", 0, 2, "1", json!({}))));
    assert_eq!(tell(&mut queue, "c").as_deref(), Some("full"));
    assert!(!put(&mut queue, &pod("c", 0, 2, "1", json!({}))), "told once");
    assert_eq!(queue.rejected(), [(Filter::NodeResourcesFit, 3)].into());
    assert_eq!(queue.wake(at(200), |_, _| true), 3);
    assert_eq!(
        first(&mut queue, 200).as_deref(),
        Some("other"),
        "those that failed come after those that did not"
    );
    queue.remove("other");
    assert_eq!((first(&mut queue, 200).as_deref(), queue.tries("a"), queue.tries("c")), (Some("a"), 2, 1));
    assert_eq!(texts(queue.rest_first(full("full"), at(200))), [""; 0], "nothing new");
    queue.wake(at(300), |_, _| true);
    first(&mut queue, 300);
    assert_eq!(texts(queue.rest_first(full("fuller"), at(300))), ["a", "b", "c"]);
    queue.wake(at(400), |_, _| true);
    assert_eq!(drain(&mut queue), ["a", "b", "c"]);
    assert!(
        queue.groups.is_empty()
            && queue.active.is_empty()
            && queue.resting.is_empty()
            && queue.places.is_empty()
    );
}

#[test]
fn of_a_large_group_only_the_first_hears_of_every_new_reason() {
    let mut queue = Queue::default();
    let names: Vec<String> = (0..150).map(|i| format!("p{i:03}")).collect();
    for name in &names {
        put(&mut queue, &pod(name, 0, 1, "1", json!({})));
    }
    first(&mut queue, 100);
    assert_eq!(texts(queue.rest_first(full("full"), at(100))), names);
    for name in &names {
        tell(&mut queue, name);
    }
    queue.wake(at(200), |_, _| true);
    first(&mut queue, 200);
    assert_eq!(texts(queue.rest_first(full("fuller"), at(200))), ["p000"]);
}

#[test]
fn only_what_a_change_may_help_is_tried_again() {
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 0, 1, "1", json!({})));
    put(&mut queue, &pod("b", 0, 1, "2", json!({})));
    for _ in 0..2 {
        first(&mut queue, 100);
        queue.rest_first(full("full"), at(100));
    }
    assert_eq!(first(&mut queue, 200), None);
    let helps_b = |waiting: &Waiting, filters: &BTreeSet<Filter>| {
        assert_eq!(*filters, [Filter::NodeResourcesFit].into());
        &*waiting.pod.name == "b"
    };
    assert_eq!(queue.wake(at(200), helps_b), 1);
    assert_eq!(drain(&mut queue), ["b"]);
    assert_eq!(queue.wake_old(at(399)), 0);
    assert!(!queue.is_old("a"));
    assert_eq!(queue.wake_old(at(400)), 1, "after five minutes anyway");
    assert!(queue.is_old("a"));
    assert_eq!(drain(&mut queue), ["a"]);
}

#[test]
fn those_that_failed_lately_wait_as_long_as_somebody_else_is_there() {
    let seconds = |tries| backoff(tries).as_secs();
    assert_eq!([1, 2, 3, 4, 5, 6, 70].map(seconds), [1, 2, 4, 8, 10, 10, 10]);
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 9, 1, "1", json!({})));
    first(&mut queue, 100);
    queue.rest_first(full("full"), at(100));
    queue.wake(at(100), |_, _| true);
    assert_eq!(queue.counts(), Counts { active: 0, backing_off: 1, resting: 0 });
    put(&mut queue, &pod("b", 0, 1, "2", json!({})));
    assert_eq!(first(&mut queue, 100).as_deref(), Some("b"), "a is kept back");
    assert_eq!(first(&mut queue, 101).as_deref(), Some("a"), "its second is over");
    queue.rest_first(full("full"), at(101));
    queue.remove("b");
    queue.wake(at(101), |_, _| true);
    assert_eq!(first(&mut queue, 101).as_deref(), Some("a"), "nobody else is there");
}

#[test]
fn a_pod_that_does_not_share_the_fate_of_its_group_rests_alone() {
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 0, 1, "1", json!({})));
    put(&mut queue, &pod("b", 0, 2, "1", json!({})));
    first(&mut queue, 100);
    let rest = Rest { is_shared: false, nominated: Some(Some("n".into())), ..full("full") };
    assert_eq!(texts(queue.rest_first(rest, at(100))), ["a"]);
    let waiting = queue.get_mut("a").expect("a pod");
    assert_eq!(waiting.tell(at(100)).1, Some(Some("n".into())));
    assert_eq!(first(&mut queue, 100).as_deref(), Some("b"));
    queue.rest_first(full("full"), at(100));
    queue.activate("a");
    assert_eq!(first(&mut queue, 100).as_deref(), Some("a"));
    // Its nomination stays when it is not to be changed, and ends when it is.
    queue.rest_first(Rest { nominated: None, ..full("leaving") }, at(101));
    assert_eq!(queue.get_mut("a").expect("a pod").nominated.as_deref(), Some("n"));
    queue.activate("a");
    queue.rest_first(full("none"), at(102));
    assert_eq!(queue.get_mut("a").expect("a pod").tell(at(102)).1, Some(None));
}

#[test]
fn a_newcomer_that_may_do_what_others_could_not_makes_its_group_try_again() {
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 5, 1, "1", json!({})));
    first(&mut queue, 100);
    queue.rest_first(full("full"), at(100));
    let newcomer = pod("b", 5, 2, "1", json!({}));
    assert!(!queue.put(Arc::new(PodFacts::of(&newcomer).expect("facts")), &newcomer, true, at(100)));
    assert_eq!(first(&mut queue, 100).as_deref(), Some("a"));
    assert!(queue.is_active("b"));
}

#[test]
fn a_pod_that_changes_keeps_its_place_and_one_that_asks_for_less_is_tried() {
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 0, 1, "1", json!({})));
    put(&mut queue, &pod("b", 0, 1, "1", json!({})));
    put(&mut queue, &pod("a", 0, 1, "2", json!({})));
    assert_eq!(first(&mut queue, 100).as_deref(), Some("a"));
    queue.rest_first(full("full"), at(100));
    put(&mut queue, &pod("a", 0, 1, "500m", json!({})));
    assert_eq!(drain(&mut queue), ["a", "b"]);
}

#[test]
fn new_labels_matter_to_pods_that_look_at_others() {
    let term = json!({"labelSelector": {}, "topologyKey": "zone"});
    let anti = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    for (more, want) in [(anti, Some("a")), (json!({}), None)] {
        let mut queue = Queue::default();
        put(&mut queue, &pod("a", 0, 1, "1", more.clone()));
        first(&mut queue, 100);
        queue.rest_first(full("full"), at(100));
        put(
            &mut queue,
            &pod("a", 0, 1, "1", merged(more.clone(), json!({"metadata": {"labels": {"x": "y"}}}))),
        );
        assert_eq!(first(&mut queue, 100).as_deref(), want, "{more}");
    }
}

#[test]
fn what_the_api_server_shows_is_not_told_again_and_what_others_write_counts() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full",
                           "lastTransitionTime": at(50).to_string()});
    let mut queue = Queue::default();
    let shown = json!({"status": {"conditions": [condition], "nominatedNodeName": "n"}});
    assert!(!put(&mut queue, &pod("a", 0, 1, "1", shown.clone())));
    let waiting = queue.get_mut("a").expect("a pod");
    assert_eq!((waiting.nominated.as_deref(), waiting.refused_since), (Some("n"), Some(at(50))));
    first(&mut queue, 100);
    let rest = Rest { nominated: None, ..full("full") };
    assert_eq!(texts(queue.rest_first(rest, at(100))), [""; 0]);
    queue.activate("a");
    queue.rest_first(Rest { nominated: Some(Some("m".into())), ..full("full") }, at(100));
    assert_eq!(queue.get_mut("a").expect("a pod").tell(at(100)), (None, Some(Some("m".into()))));
    assert!(!put(&mut queue, &pod("a", 0, 1, "1", shown)), "an old view");
    assert_eq!(queue.get_mut("a").expect("a pod").nominated.as_deref(), Some("m"));
    put(&mut queue, &pod("a", 0, 1, "1", json!({"status": {"nominatedNodeName": ""}})));
    assert_eq!(queue.get_mut("a").expect("a pod").nominated, None, "somebody has taken it away");
}

#[test]
fn pods_that_could_not_be_bound_are_kept_back_and_then_come_again() {
    let mut queue = Queue::default();
    put(&mut queue, &pod("a", 0, 1, "1", json!({})));
    let error = || Refusal { reason: "SchedulerError", message: "broken".into() };
    for (now, due) in [(100, 101), (101, 103), (103, 107)] {
        assert_eq!(first(&mut queue, now).as_deref(), Some("a"));
        let waiting = queue.remove("a").expect("a pod");
        queue.keep_back(waiting, error(), at(now));
        assert_eq!((first(&mut queue, now), queue.next_due()), (None, Some(at(due))));
        assert_eq!(queue.counts(), Counts { active: 0, backing_off: 1, resting: 0 });
        assert_eq!((queue.let_in(at(due - 1)), queue.let_in(at(due))), (0, 1));
    }
    let waiting = queue.remove("a").expect("a pod");
    assert!(queue.keep_back(waiting, error(), at(200)), "there is something to tell");
    put(&mut queue, &pod("a", 0, 1, "1", json!({"metadata": {"labels": {"x": "y"}}})));
    assert_eq!(queue.next_due(), Some(at(208)), "a new view does not let it in");
    let waiting = queue.remove("a").expect("a pod");
    assert_eq!(waiting.pod.labels.get("x"), Some("y"));
    assert_eq!((queue.next_due(), queue.counts()), (None, Counts::default()));
}
