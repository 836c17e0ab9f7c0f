//! Events under both of their names: one store, two spellings.

mod common;

use common::cluster;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const HERE: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CORE: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-02T03:04:05.000000Z", "type": "Normal", "reason": "Started", "action": "Start",
        "note": "it runs", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reportingController": "example.com/c", "reportingInstance": "c-1",
    })
}

#[tokio::test]
async fn an_event_made_under_one_name_is_seen_under_the_other() {
    let c = cluster();
    let made = c.post(HERE, event("e")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let mut want = event("e");
    want["metadata"] = made.body["metadata"].clone();
    // upstream: a struct that is not a pointer is always written
    want["deprecatedSource"] = json!({});
    want["deprecatedFirstTimestamp"] = json!(null);
    want["deprecatedLastTimestamp"] = json!(null);
    assert_eq!(made.body, want);
    assert_eq!(c.get(&format!("{HERE}/e")).await.body, want);
    let core = c.get(&format!("{CORE}/e")).await.body;
    let shown = json!([
        core["apiVersion"],
        core["message"],
        core["involvedObject"]["name"],
        core["reportingComponent"]
    ]);
    assert_eq!(shown, json!(["v1", "it runs", "p", "example.com/c"]));

    let old = json!({
        "metadata": {"name": "old"}, "involvedObject": {"name": "q", "namespace": "default"}, "message": "m",
        "count": 3, "source": {"component": "s"}, "firstTimestamp": "2026-01-02T03:04:05Z",
    });
    assert_eq!(c.post(CORE, old).await.code, 201);
    let list = c.get(&format!("{HERE}?fieldSelector=regarding.name=q")).await.body;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("events.k8s.io/v1")));
    let one = &list["items"][0];
    let shown = json!([
        one["note"],
        one["deprecatedCount"],
        one["deprecatedSource"],
        one["deprecatedFirstTimestamp"],
        one["eventTime"],
        one.get("message"),
        list["items"].as_array().map(Vec::len),
    ]);
    assert_eq!(shown, json!(["m", 3, {"component": "s"}, "2026-01-02T03:04:05Z", null, null, 1]));

    let patched = c.merge(&format!("{HERE}/e"), json!({"note": "changed", "series": {"count": 2}})).await;
    assert_eq!((patched.code, &patched.body["note"]), (200, &json!("changed")));
    let patch = json!([{"op": "replace", "path": "/note", "value": "again"}]);
    assert_eq!(c.json_patch(&format!("{HERE}/e"), patch).await.body["note"], "again");
    assert_eq!(c.get(&format!("{CORE}/e")).await.body["message"], "again");
    assert_eq!(c.delete(&format!("{HERE}/e"), Value::Null).await.code, 200);
    assert_eq!(c.get(&format!("{CORE}/e")).await.code, 404);
}

#[tokio::test]
async fn a_watch_speaks_the_words_of_its_group() {
    let c = cluster();
    c.post(HERE, event("e")).await;
    let response = c.raw(Method::GET, &format!("{HERE}?watch=1"), "", String::new()).await;
    let mut body = response.into_body();
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        let frame = body.frame().await.expect("a frame").expect("no error");
        text.extend_from_slice(&frame.into_data().expect("data"));
    }
    let line: Value = serde_json::from_slice(&text).expect("JSON");
    let object = &line["object"];
    assert_eq!(
        json!([line["type"], object["apiVersion"], object["note"], object.get("message")]),
        json!(["ADDED", "events.k8s.io/v1", "it runs", null])
    );
}

#[tokio::test]
async fn a_new_event_of_this_group_is_held_to_its_stricter_rules() {
    let c = cluster();
    let with = |field: &str, value: Value| {
        let mut event = event("e");
        event[field] = value;
        event
    };
    let cases = [
        (with("eventTime", Value::Null), "eventTime: Required value"),
        (with("type", json!("Odd")), "type: Invalid value: \"\": has invalid value: Odd"),
        (with("deprecatedCount", json!(1)), "count: Invalid value: \"\": needs to be unset"),
        (
            with("series", json!({"count": 1, "lastObservedTime": "2026-01-02T03:04:05.000000Z"})),
            "series.count: Invalid value: \"\": should be at least 2",
        ),
    ];
    for (body, why) in cases {
        let answer = c.post(HERE, body).await;
        let message = format!("Event.events.k8s.io \"e\" is invalid: {why}");
        assert_eq!((answer.code, &answer.body["message"]), (422, &json!(message)));
    }
}
