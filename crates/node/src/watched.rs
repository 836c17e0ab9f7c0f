//! A pod as the watch of a node shows it. To read all of it costs more than most changes are worth: of a pod that has ended
//! only a few fields of its metadata are looked at.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use windlass_api::resource_like;

/// A pod that is read when somebody asks for it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedPod {
    /// Which pod it is, and how far on its way out; nothing else.
    pub(crate) metadata: ObjectMeta,
    whole: Whole,
}

#[derive(Clone, Debug, Deserialize)]
struct Whole {
    metadata: Box<RawValue>,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

impl<'de> Deserialize<'de> for WatchedPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let whole = Whole::deserialize(from)?;
        let meta: Meta = serde_json::from_str(whole.metadata.get()).map_err(serde::de::Error::custom)?;
        let metadata = ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, whole })
    }
}

/// The spec that was read last. The pods of a Job have the same, which need not be read again.
#[derive(Debug, Default)]
pub(crate) struct LastSpec(Option<(Box<RawValue>, PodSpec)>);

impl LastSpec {
    fn read(&mut self, raw: Box<RawValue>) -> serde_json::Result<PodSpec> {
        if let Some((_, spec)) = self.0.as_ref().filter(|(text, _)| text.get() == raw.get()) {
            return Ok(spec.clone());
        }
        let spec: PodSpec = serde_json::from_str(raw.get())?;
        self.0 = Some((raw, spec.clone()));
        Ok(spec)
    }
}

impl WatchedPod {
    /// All of it.
    pub(crate) fn read(self, last: &mut LastSpec) -> serde_json::Result<Pod> {
        let Whole { metadata, spec, status } = self.whole;
        Ok(Pod {
            metadata: serde_json::from_str(metadata.get())?,
            spec: spec.map(|raw| last.read(raw)).transpose()?,
            status: status.map(|raw| serde_json::from_str(raw.get())).transpose()?,
        })
    }
}

resource_like!(WatchedPod, Pod, pod => pod.metadata);

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_of_a_watch_is_the_pod_that_was_written() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3,
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "host", "command": ["true"]}]},
            "status": {"phase": "Running"},
        });
        let line = format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}");
        let event: WatchEvent<WatchedPod> = serde_json::from_str(&line).expect("an event");
        let WatchEvent::Modified(watched) = event else { panic!("{event:?}") };
        let whole: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(watched.metadata, ObjectMeta { labels: None, ..whole.metadata.clone() });
        let mut last = LastSpec::default();
        assert_eq!(watched.clone().read(&mut last).expect("a pod"), whole);
        assert_eq!(watched.clone().read(&mut last).expect("a pod"), whole, "its spec is the last one");
        let mut other = watched;
        other.whole.spec = Some(RawValue::from_string(r#"{"containers":[]}"#.to_owned()).expect("JSON"));
        let spec = other.read(&mut last).expect("a pod").spec.expect("a spec");
        assert_eq!(spec, PodSpec::default(), "another one is not taken for it");
        let watched: WatchedPod =
            serde_json::from_str(r#"{"metadata": {}, "spec": {"containers": 5}}"#).expect("read");
        assert!(watched.read(&mut last).is_err());
    }
}
