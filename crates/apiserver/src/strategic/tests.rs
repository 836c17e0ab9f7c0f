//! Strategic merge patch, rule by rule.

use serde_json::{Value, json};

use super::apply;
use super::schema::schema;
use crate::resources;

fn patched(mut object: Value, patch: Value) -> Result<Value, String> {
    apply(&mut object, &patch, schema(resources::core("pods"))).map(|()| object)
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn each_rule_on_its_own() {
    let cases = [
        (
            "maps are merged, null removes, null for nothing is nothing",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3", "d": null}, "annotations": {"x": null, "y": "1"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}, "annotations": {"y": "1"}}}),
        ),
        (
            "a keyed list is merged by its key, new items come first",
            containers(
                json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]),
            ),
            containers(
                json!([{"name": "c"}, {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}]),
            ),
            containers(json!([
                {"name": "c"},
                {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
                {"name": "b"},
            ])),
        ),
        (
            "items that only the server has stay where they were",
            containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])),
            containers(json!([{"name": "b", "image": "2"}])),
            containers(json!([{"name": "a"}, {"name": "b", "image": "2"}, {"name": "c"}])),
        ),
        (
            "an item is deleted by its key",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "a", "$patch": "delete"}, {"name": "nope", "$patch": "delete"}])),
            containers(json!([{"name": "b"}])),
        ),
        (
            "a list is replaced when an item says so",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"$patch": "replace"}, {"name": "c", "$retainKeys": ["name"]}])),
            containers(json!([{"name": "c"}])),
        ),
        (
            "a map is replaced when it says so",
            json!({"spec": {"nodeSelector": {"a": "1"}}}),
            json!({"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}),
            json!({"spec": {"nodeSelector": {"b": "2"}}}),
        ),
        (
            "a map is emptied when it says so",
            json!({"spec": {"nodeSelector": {"a": "1"}}}),
            json!({"spec": {"nodeSelector": {"$patch": "delete"}}}),
            json!({"spec": {"nodeSelector": {}}}),
        ),
        (
            "an order is applied to the items it names, also without the list",
            containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}}),
            containers(json!([{"name": "b"}, {"name": "c"}, {"name": "a"}])),
        ),
        (
            "an order goes with the items of the patch",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            json!({"spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}],
                "containers": [{"name": "n"}],
            }}),
            containers(json!([{"name": "b"}, {"name": "n"}, {"name": "a"}])),
        ),
        (
            "a set of scalars is united, and shrinks by directive",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
        ),
        (
            "a set shrinks without being named, and its order can be said",
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c", "a"],
            }}),
            json!({"metadata": {"finalizers": ["c", "a"]}}),
        ),
        (
            "lists without a key are replaced",
            json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}], "containers": [{"name": "c", "args": ["1", "2"]}]}}),
            json!({"spec": {"tolerations": [{"key": "c"}], "containers": [{"name": "c", "args": ["3"]}]}}),
            json!({"spec": {"tolerations": [{"key": "c"}], "containers": [{"name": "c", "args": ["3"]}]}}),
        ),
        (
            "only the fields to retain are left",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        ),
        (
            "conditions are merged by type",
            json!({"status": {"conditions": [{"type": "A", "status": "False", "reason": "x"}, {"type": "B", "status": "True"}]}}),
            json!({"status": {"conditions": [{"type": "A", "status": "True"}]}}),
            json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "x"}, {"type": "B", "status": "True"}]}}),
        ),
        (
            "directives and nulls are not stored with something new",
            json!({}),
            json!({"spec": {"affinity": {"a": {"$patch": "merge", "b": null, "c": 1}},
                   "containers": [{"name": "a", "$setElementOrder/env": [], "x": null}]}}),
            json!({"spec": {"affinity": {"a": {"c": 1}}, "containers": [{"name": "a"}]}}),
        ),
        (
            "owners are merged by uid",
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}]}}),
        ),
    ];
    for (rule, object, patch, want) in cases {
        assert_eq!(patched(object, patch), Ok(want), "{rule}");
    }
}

#[test]
fn a_patch_that_makes_no_sense_is_refused() {
    let cases = [
        (containers(json!([{"image": "x"}])), "map: map[image:x] does not contain declared merge key: name"),
        (containers(json!(["x"])), "expected a map with merge key \"name\" in a list, got \"x\""),
        (
            containers(json!([{"name": "a", "$patch": "what"}])),
            "unknown patch type: what in map: map[$patch:what name:a]",
        ),
        (json!({"spec": {"$patch": "what"}}), "unknown patch type: what in map: map[$patch:what]"),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
            "$deleteFromPrimitiveList/finalizers is not a list",
        ),
        (json!({"spec": {"$setElementOrder/containers": 1}}), "$setElementOrder/containers is not a list"),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "$retainKeys": ["name"]}]}}),
            "the retainKeys list must contain all fields present in the patch",
        ),
    ];
    for (patch, want) in cases {
        let object = containers(json!([{"name": "a"}]));
        assert_eq!(patched(object, patch), Err(want.to_owned()));
    }
}
