//! Specs of pods that components of this process have made. All pods of a Job have the same spec: it is read, filled in and
//! checked once, and not for each of them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::body;
use crate::decode::Validation;
use crate::go_json;
use crate::hooks::Context;
use crate::object::{self, Object};
use crate::resources::{self, Resource};

/// So many are known at once.
const SPECS_MAX: usize = 16;

/// Those that were sent more than once.
#[derive(Default)]
pub(crate) struct Specs(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// As they were sent, the newest at the end; nothing for one that pods can't share.
    known: VecDeque<(Bytes, Option<Arc<Spec>>)>,
    /// The last one that was not known.
    last: Bytes,
}

/// The fields of a pod that is sent, each as it stands there. One with any other field is read as everything else is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sent<'a> {
    #[serde(borrow)]
    api_version: &'a RawValue,
    #[serde(borrow)]
    kind: &'a RawValue,
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: &'a RawValue,
}

/// A spec that is valid and about which there is nothing to say, in whatever pod it is.
pub(crate) struct Spec {
    /// A pod with it: its spec and first status as they are stored.
    pod: Object,
    /// The same on the node where the first one was placed.
    placed: OnceLock<Object>,
}

impl Specs {
    /// A pod whose spec is known, and the spec. A spec is known from the second time on that it is sent: those that differ
    /// from pod to pod are not worth it.
    pub(crate) fn read(&self, body: &[u8], context: Context<'_>) -> Option<(Object, Arc<Spec>)> {
        let sent: Sent<'_> = serde_json::from_slice(body).ok()?;
        let resource = resources::core("pods");
        let is_pod = sent.api_version.get() == "\"v1\"" && sent.kind.get() == "\"Pod\"";
        let spec = self.find(sent.spec.get().as_bytes(), context).filter(|_| is_pod)?;
        let (metadata, has_twice) = go_json::parse(sent.metadata.get().as_bytes()).ok()?;
        if has_twice || !metadata.is_object() {
            return None;
        }
        let mut pod =
            json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata});
        object::null_texts(&mut pod);
        object::strip_nulls(&mut pod);
        let Value::Object(map) = pod else { return None };
        let mut pod = Object::from(map);
        pod.copy_section(&spec.pod, "spec");
        Some((pod, spec))
    }

    fn find(&self, sent: &[u8], context: Context<'_>) -> Option<Arc<Spec>> {
        let Seen { known, last } = &mut *self.0.lock();
        if let Some((_, spec)) = known.iter().rev().find(|(text, _)| text == sent) {
            return spec.clone();
        }
        if *last != sent {
            *last = Bytes::copy_from_slice(sent);
            return None;
        }
        let spec = Spec::new(sent, context).map(Arc::new);
        if known.len() == SPECS_MAX {
            known.pop_front();
        }
        known.push_back((std::mem::take(last), spec.clone()));
        spec
    }
}

impl Spec {
    fn new(sent: &[u8], context: Context<'_>) -> Option<Self> {
        let resource = resources::core("pods");
        let text = std::str::from_utf8(sent).ok()?;
        // Volumes that are made with the pod have names that depend on its name.
        if text.contains("\"ephemeral\"") {
            return None;
        }
        let any = format!(r#"{{"metadata":{{"name":"any","namespace":"any"}},"spec":{text}}}"#);
        let (mut pod, warnings) = body::decode(resource, any.as_bytes(), Validation::Strict).ok()?;
        let more = (resource.hooks.create)(&mut pod, context).ok()?;
        pod.tidy(resource, None);
        // A condition has a time, and one pod's is not that of the next.
        let has_conditions = pod.get("status").is_none_or(|status| status.get("conditions").is_some());
        if has_conditions || !warnings.is_empty() || !more.is_empty() {
            return None;
        }
        Some(Self { pod: stored(resource, &pod), placed: OnceLock::new() })
    }

    /// Whether a pod has this spec and no other.
    pub(crate) fn is_in(&self, pod: &Object) -> bool {
        pod.is_shared(&self.pod, "spec")
    }

    /// Gives a pod the status that it begins with.
    pub(crate) fn begin(&self, pod: &mut Object) {
        pod.copy_section(&self.pod, "status");
    }

    /// Puts a pod that has this spec on a node; false if it was another for the first pod.
    pub(crate) fn place(&self, pod: &mut Object, node: &str) -> bool {
        let placed = self.placed.get_or_init(|| {
            let mut first = self.pod.clone();
            first.section_mut("spec").insert("nodeName".to_owned(), json!(node));
            stored(resources::core("pods"), &first)
        });
        let is_there = placed.text_at("spec", "nodeName") == node;
        if is_there {
            pod.copy_section(placed, "spec");
        }
        is_there
    }

    /// What a pod has of it, on whatever node: need not be looked at again.
    pub(crate) fn part_of(&self, pod: &Object) -> Option<&Object> {
        let states = [Some(&self.pod), self.placed.get()];
        states.into_iter().flatten().find(|state| pod.is_shared(state, "spec"))
    }
}

/// The object as it is read from the store: its fields are the bytes that are written.
fn stored(resource: &'static Resource, object: &Object) -> Object {
    let bytes = object.draft(resource).stamp(0);
    Object::from_stored(&bytes).expect("it was written by us")
}

#[cfg(test)]
mod tests {
    use windlass_api::Gates;

    use super::*;

    fn sent(spec: &str) -> Vec<u8> {
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","labels":{{"a":null}}}},"spec":{spec}}}"#).into_bytes()
    }

    fn read(specs: &Specs, body: &[u8]) -> Option<(Object, Arc<Spec>)> {
        specs.read(body, Context { gates: &Gates::default(), now: "", spec: None })
    }

    const PLAIN: &str = r#"{"containers":[{"name":"c","image":"host"}]}"#;

    #[test]
    fn a_spec_is_known_from_the_second_time_on_and_is_what_is_stored() {
        let specs = Specs::default();
        assert!(read(&specs, &sent(PLAIN)).is_none());
        let (pod, spec) = read(&specs, &sent(PLAIN)).expect("known");
        assert!(spec.is_in(&pod));
        assert_eq!(pod.text_at("spec", "dnsPolicy"), "ClusterFirst", "it is filled in");
        assert_eq!(
            pod.meta().expect("metadata")["labels"],
            json!({"a": ""}),
            "the metadata are read as ever"
        );
        let (_, again) = read(&specs, &sent(PLAIN)).expect("known");
        assert!(Arc::ptr_eq(&spec, &again));
    }

    #[test]
    fn what_is_not_the_same_for_all_pods_is_not_known() {
        let gated = r#"{"schedulingGates":[{"name":"g"}],"containers":[{"name":"c","image":"host"}]}"#;
        let invalid = r#"{"containers":[{"image":"host"}]}"#;
        let warned = r#"{"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c","image":"host"}]}"#;
        let unknown = r#"{"no-such-field":1,"containers":[{"name":"c","image":"host"}]}"#;
        let named = r#"{"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}],"containers":[{"name":"c","image":"host"}]}"#;
        for spec in [gated, invalid, warned, unknown, named] {
            let specs = Specs::default();
            for _ in 0..3 {
                assert!(read(&specs, &sent(spec)).is_none(), "{spec}");
            }
            assert_eq!(specs.0.lock().known.len(), 1, "it is not tried again and again: {spec}");
        }
        let specs = Specs::default();
        read(&specs, &sent(PLAIN));
        read(&specs, &sent(PLAIN)).expect("known");
        for other in [
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"status":{},"spec":PLAIN}"#,
            r#"{"apiVersion":"v2","kind":"Pod","metadata":{"name":"p"},"spec":PLAIN}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","name":"q"},"spec":PLAIN}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":[],"spec":PLAIN}"#,
        ] {
            assert!(read(&specs, other.replace("PLAIN", PLAIN).as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn a_placed_pod_has_its_node_and_another_node_is_not_taken_for_it() {
        let specs = Specs::default();
        read(&specs, &sent(PLAIN));
        let (mut pod, spec) = read(&specs, &sent(PLAIN)).expect("known");
        let mut other = pod.clone();
        assert!(spec.place(&mut pod, "n"));
        assert_eq!(pod.text_at("spec", "nodeName"), "n");
        assert!(!spec.is_in(&pod) && spec.part_of(&pod).is_some());
        assert!(!spec.place(&mut other, "m"));
        assert_eq!(other.text_at("spec", "nodeName"), "");
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let specs = Specs::default();
        let spec = |n: usize| sent(&format!(r#"{{"containers":[{{"name":"c-{n}","image":"host"}}]}}"#));
        for n in 0..=SPECS_MAX {
            read(&specs, &spec(n));
            read(&specs, &spec(n)).expect("known");
        }
        assert!(read(&specs, &spec(1)).is_some());
        assert!(read(&specs, &spec(0)).is_none());
    }
}
