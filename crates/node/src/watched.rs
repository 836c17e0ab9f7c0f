//! A pod as the watch of a node shows it. To read all of it costs more than most changes are worth: of a pod that has ended
//! only its metadata is looked at.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A pod that is read when somebody asks for it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedPod {
    pub(crate) metadata: ObjectMeta,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl WatchedPod {
    /// All of it.
    pub(crate) fn read(self) -> serde_json::Result<Pod> {
        Ok(Pod {
            metadata: self.metadata,
            spec: self.spec.map(|raw| serde_json::from_str(raw.get())).transpose()?,
            status: self.status.map(|raw| serde_json::from_str(raw.get())).transpose()?,
        })
    }
}

impl Resource for WatchedPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_of_a_watch_is_the_pod_that_was_written() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "host", "command": ["true"]}]},
            "status": {"phase": "Running"},
        });
        let line = format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}");
        let event: WatchEvent<WatchedPod> = serde_json::from_str(&line).expect("an event");
        let WatchEvent::Modified(watched) = event else { panic!("{event:?}") };
        let whole: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(watched.read().expect("a pod"), whole);
        let watched: WatchedPod =
            serde_json::from_str(r#"{"metadata": {}, "spec": {"containers": 5}}"#).expect("read");
        assert!(watched.read().is_err());
    }
}
