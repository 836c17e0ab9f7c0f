//! Sets of fields, and what a comparison finds.

use serde_json::{Value, json};

use super::entries::{Entries, Entry, Manager, Operation};
use super::set::{self, Set};
use super::walk::{self, Diff, Sides};
use crate::fields::{Type, of_kind};

fn set(value: Value) -> Set {
    value.as_object().expect("a map").clone()
}

fn pod() -> Type {
    of_kind("v1", "Pod").expect("a kind")
}

/// The differences of the specs of two pods.
fn spec_diff(old: Value, new: Value) -> Diff {
    let (old, new) = (set(json!({"spec": old})), set(json!({"spec": new})));
    walk::diff_maps(Sides::OBJECTS, &pod(), &old, &new, |_| false)
}

#[test]
fn sets_are_united_subtracted_and_intersected_node_by_node() {
    // a, b, united, a without b, in both
    let cases = [
        (json!({}), json!({"f:a": {}}), json!({"f:a": {}}), json!({}), json!({})),
        (
            json!({"f:a": {"f:x": {}}}),
            json!({"f:a": {"f:y": {}}}),
            json!({"f:a": {"f:x": {}, "f:y": {}}}),
            json!({"f:a": {"f:x": {}}}),
            json!({}),
        ),
        // a parent is not its children
        (
            json!({"f:a": {}}),
            json!({"f:a": {"f:y": {}}}),
            json!({"f:a": {".": {}, "f:y": {}}}),
            json!({"f:a": {}}),
            json!({}),
        ),
        (
            json!({"f:a": {".": {}, "f:x": {}}}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:x": {}}}),
            json!({"f:a": {"f:x": {}}}),
            json!({"f:a": {}}),
        ),
        (
            json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}}),
            json!({"f:a": {".": {}, "f:x": {}}}),
            json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}}),
            json!({"f:a": {"f:y": {}}, "f:b": {}}),
            json!({"f:a": {".": {}, "f:x": {}}}),
        ),
    ];
    for (a, b, united, without, both) in cases {
        let (first, second) = (set(a.clone()), set(b.clone()));
        let mut sum = first.clone();
        set::unite(&mut sum, second.clone());
        assert_eq!(Value::Object(sum), united, "{a} and {b}");
        let mut rest = first.clone();
        set::subtract(&mut rest, &second);
        assert_eq!(Value::Object(rest), without, "{a} without {b}");
        assert_eq!(Value::Object(set::intersection(&first, &second)), both, "in {a} and {b}");
    }
}

#[test]
fn a_field_is_removed_with_all_below_it() {
    let mut fields = set(json!({"f:a": {".": {}, "f:x": {"f:y": {}}}, "f:b": {"f:x": {}}}));
    set::remove_below(&mut fields, &["a", "x"]);
    set::remove_below(&mut fields, &["b", "x"]);
    set::remove_below(&mut fields, &["c", "x"]);
    assert_eq!(Value::Object(fields), json!({"f:a": {}}));
}

#[test]
fn what_admission_adds_goes_with_all_below_it_and_leaves_what_is_beside_it() {
    let mut fields = set(json!({
        "f:a": {".": {}, "f:x": {"f:y": {}}, "f:z": {}}, "f:b": {".": {}, "f:x": {}}, "f:c": {"f:x": {}},
    }));
    let added = set(json!({"f:a": {"f:x": {}}, "f:b": {".": {}, "f:q": {}}, "f:c": {"f:x": {}}, "f:d": {}}));
    set::subtract_below(&mut fields, &added);
    assert_eq!(Value::Object(fields), json!({"f:a": {".": {}, "f:z": {}}}));
}

#[test]
fn elements_are_read_as_upstream_writes_them() {
    let read = |text: Value| set::canonical(&set(text)).map(Value::Object);
    assert_eq!(
        read(
            json!({"k:{\"protocol\":\"TCP\", \"containerPort\":80}": {}, "v: \"a<b\"": {}, "i:007": {}, "f:x": {".": {}}})
        ),
        Ok(
            json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}, "v:\"a\\u003cb\"": {}, "i:7": {}, "f:x": {".": {}}})
        )
    );
    assert_eq!(read(json!({"z:new": {}})), Ok(json!({})));
    assert_eq!(read(json!({"odd": {}})), Err("missing colon: odd".to_owned()));
    assert_eq!(read(json!({"i:x": {}})), Err("\"i:x\" has no index".to_owned()));
    assert_eq!(read(json!({"k:[]": {}})), Err("\"k:[]\" has no keys".to_owned()));
    assert_eq!(read(json!({"f:a": 1})), Err("\"f:a\" is not a map".to_owned()));
}

#[test]
fn paths_name_members_before_what_is_below_them() {
    let fields = json!({
        "f:a": {".": {}, "f:x": {}}, "f:b": {},
        "f:l": {"k:{\"name\":\"c\",\"port\":80}": {"f:image": {}}, "v:\"v\"": {}, "i:3": {}},
    });
    let want = [".a", ".b", ".a.x", ".l[3]", ".l[=\"v\"]", ".l[name=\"c\",port=80].image"];
    assert_eq!(set::paths(&set(fields)), want);
}

#[test]
fn what_changed_is_told_by_the_type_of_the_field() {
    let some = |value: Value| Some(set(json!({"f:spec": value})));
    let cases = [
        ("nothing", json!({"nodeName": "a"}), json!({"nodeName": "a"}), None, None),
        (
            "a scalar",
            json!({"nodeName": "a"}),
            json!({"nodeName": "b"}),
            some(json!({"f:nodeName": {}})),
            None,
        ),
        ("a scalar that goes", json!({"nodeName": "a"}), json!({}), None, some(json!({"f:nodeName": {}}))),
        ("an empty field is not there", json!({"hostNetwork": false}), json!({"nodeName": ""}), None, None),
        (
            "an atomic list",
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
            some(json!({"f:tolerations": {}})),
            None,
        ),
        (
            "an atomic map",
            json!({"nodeSelector": {"a": "b"}}),
            json!({"nodeSelector": {"a": "c"}}),
            some(json!({"f:nodeSelector": {}})),
            None,
        ),
        (
            "an item with keys, and what it always has",
            json!({"containers": [{"name": "a", "resources": {}}]}),
            json!({"containers": [{"name": "a", "resources": {}}, {"name": "b"}]}),
            some(json!({"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:resources": {}}}})),
            None,
        ),
        (
            "a key with a default",
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "protocol": "TCP", "name": "x"}]}]}),
            some(json!({"f:containers": {"k:{\"name\":\"a\"}": {"f:ports": {
                "k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {"f:name": {}, "f:protocol": {}}}}}})),
            None,
        ),
        (
            "an item that goes",
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a"}]}),
            None,
            some(json!({"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:resources": {}}}})),
        ),
        (
            "a struct that comes",
            json!({}),
            json!({"affinity": {"nodeAffinity": {}}}),
            some(json!({"f:affinity": {".": {}, "f:nodeAffinity": {}}})),
            None,
        ),
        (
            "items of one key",
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"name": "a"}, {"name": "a"}]}),
            some(json!({"f:containers": {"k:{\"name\":\"a\"}": {}}})),
            some(json!({"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:resources": {}}}})),
        ),
    ];
    for (name, old, new, changed, removed) in cases {
        assert_eq!(spec_diff(old, new), Diff { changed, removed }, "{name}");
    }
}

#[test]
fn a_configuration_gives_its_leaves_and_its_items() {
    let config = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {}, "finalizers": ["x", "y"]},
        "spec": {
            "containers": [{"name": "c", "env": [], "command": ["a"]}],
            "nodeSelector": {"a": "b"}, "volumes": null,
        },
    });
    let want = json!({
        "f:metadata": {
            "f:labels": {"f:a": {}}, "f:annotations": {}, "f:finalizers": {"v:\"x\"": {}, "v:\"y\"": {}},
        },
        "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:command": {}}},
            "f:nodeSelector": {}, "f:volumes": {},
        },
    });
    assert_eq!(Value::Object(walk::given(&pod(), &config)), want);
}

fn manager(name: &str, operation: Operation) -> Manager {
    Manager { name: name.to_owned(), operation, api_version: "v1".to_owned(), subresource: String::new() }
}

#[test]
fn more_than_ten_updates_become_one_of_old() {
    let mut entries = Entries::default();
    entries.insert(Entry {
        manager: manager("applier", Operation::Apply),
        time: None,
        fields: set(json!({"f:a": {}})),
    });
    for i in 0..12 {
        let fields = set(json!({format!("f:{i}"): {}}));
        entries.add(
            manager(&format!("m{i:02}"), Operation::Update),
            fields,
            &format!("2026-01-01T00:00:{i:02}Z"),
        );
    }
    let names: Vec<(&str, Option<&str>, Vec<&String>)> = entries
        .iter()
        .map(|entry| (entry.manager.name.as_str(), entry.time.as_deref(), entry.fields.keys().collect()))
        .filter(|(name, _, _)| !name.starts_with('m'))
        .collect();
    let (a, zero, one, two) = ("f:a".to_owned(), "f:0".to_owned(), "f:1".to_owned(), "f:2".to_owned());
    let want = vec![
        ("ancient-changes", Some("2026-01-01T00:00:02Z"), vec![&zero, &one, &two]),
        ("applier", None, vec![&a]),
    ];
    assert_eq!(names, want);
    assert_eq!(entries.iter().count(), 11);
}

#[test]
fn entries_are_ordered_by_operation_and_time_and_read_back() {
    let mut entries = Entries::default();
    for (name, operation, time) in [
        ("c", Operation::Update, "2026-01-01T00:00:02Z"),
        ("b", Operation::Update, "2026-01-01T00:00:01Z"),
        ("a", Operation::Update, "2026-01-01T00:00:02Z"),
        ("z", Operation::Apply, "2026-01-01T00:00:03Z"),
    ] {
        entries.insert(Entry {
            manager: manager(name, operation),
            time: Some(time.to_owned()),
            fields: set(json!({"f:x": {}})),
        });
    }
    let list = entries.into_json().expect("entries");
    let names: Vec<&str> =
        list.as_array().expect("a list").iter().filter_map(|entry| entry["manager"].as_str()).collect();
    assert_eq!(names, ["z", "b", "a", "c"]);
    assert_eq!(Entries::stored(Some(&list)).into_json(), Some(list));
}

#[test]
fn entries_that_make_no_sense_are_refused() {
    let read = |entry: Value| Entries::parse(&[entry]).map(|_| ());
    for (entry, why) in [
        (json!({}), "operation must be `Apply` or `Update`"),
        (json!({"operation": "Apply"}), "apiVersion must not be empty"),
        (json!({"operation": "Apply", "apiVersion": "v1"}), "missing fieldsType in managed fields entry 0"),
        (
            json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "V2"}),
            "invalid fieldsType \"V2\" in managed fields entry 0",
        ),
        (
            json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": 1}),
            "fieldsV1 of entry 0 is not a map",
        ),
    ] {
        assert_eq!(read(entry), Err(why.to_owned()));
    }
}
