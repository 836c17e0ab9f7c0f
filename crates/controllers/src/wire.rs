//! Jobs and pods as they come over the wire, read only as far as a controller looks.
//!
//! A typed Pod takes 24 KB and reading all of it is most of the cost of an event; managed fields are the larger half of
//! many objects. What is not read here is not known, and is therefore never written back: all writes are patches.
//! Pods come as JSON or as protobuf, whichever the server can give, and are the same read from either.

pub(crate) mod protobuf;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodSpec,
    PodStatus, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use windlass_api::protobuf::{Envelope, Error as Malformed};
use windlass_api::{names, resource_like};
use windlass_watch::{Form, Heard, Object, Page, json_event, json_page, json_refusal};

/// What the server says of a request that failed, in its own words.
pub(crate) fn refusal(form: Form, code: StatusCode, body: &[u8]) -> kube::Error {
    let status = match form {
        Form::Json => None,
        Form::Protobuf => Envelope::open(body).and_then(|it| protobuf::failure(it.raw)).ok(),
    };
    match status {
        Some(status) => kube::Error::Api(status.boxed()),
        None => json_refusal(code, body),
    }
}

impl Object for SlimPod {
    const KIND: &'static str = "Pod";
    const READS_PROTOBUF: bool = true;

    fn from_json(object: &Bytes) -> serde_json::Result<Self> {
        serde_json::from_slice(object)
    }

    fn version(&self) -> Option<&str> {
        self.0.metadata.resource_version.as_deref()
    }

    fn page(form: Form, body: &Bytes) -> kube::Result<Page<Self>> {
        match form {
            Form::Protobuf => Envelope::open(body).and_then(|it| protobuf::page(it.raw)).map_err(malformed),
            Form::Json => json_page(body).map_err(kube::Error::SerdeError),
        }
    }

    fn event(form: Form, frame: &Bytes) -> kube::Result<Heard<Self>> {
        match form {
            Form::Protobuf => protobuf::event(frame).map_err(malformed),
            Form::Json => json_event(frame).map_err(kube::Error::SerdeError),
        }
    }

    fn refusal(form: Form, code: StatusCode, body: &[u8]) -> kube::Error {
        refusal(form, code, body)
    }
}

fn malformed(error: Malformed) -> kube::Error {
    kube::Error::Service(error.into())
}

/// What can be read from an answer.
pub(crate) trait FromAnswer: Sized {
    /// It can be read from protobuf too.
    const READS_PROTOBUF: bool;

    fn read(form: Form, body: &[u8]) -> kube::Result<Self>;
}

impl FromAnswer for SlimPod {
    const READS_PROTOBUF: bool = true;

    fn read(form: Form, body: &[u8]) -> kube::Result<Self> {
        match form {
            Form::Json => serde_json::from_slice(body).map_err(kube::Error::SerdeError),
            Form::Protobuf => Envelope::open(body)
                .and_then(|it| protobuf::pod(it.raw))
                .map(|pod| Self(Box::new(pod)))
                .map_err(malformed),
        }
    }
}

/// The version that an object has now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) String);

impl FromAnswer for Version {
    const READS_PROTOBUF: bool = true;

    fn read(form: Form, body: &[u8]) -> kube::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }
        match form {
            Form::Json => {
                let object: Object = serde_json::from_slice(body).map_err(kube::Error::SerdeError)?;
                Ok(Self(object.metadata.resource_version))
            }
            Form::Protobuf => {
                Envelope::open(body).and_then(|it| protobuf::version(it.raw)).map(Self).map_err(malformed)
            }
        }
    }
}

/// Nobody wants to know.
impl FromAnswer for () {
    const READS_PROTOBUF: bool = true;

    fn read(_: Form, _: &[u8]) -> kube::Result<Self> {
        Ok(())
    }
}

macro_rules! from_json {
    ($($type:ty),*) => {$(
        impl FromAnswer for $type {
            const READS_PROTOBUF: bool = false;

            fn read(_: Form, body: &[u8]) -> kube::Result<Self> {
                serde_json::from_slice(body).map_err(kube::Error::SerdeError)
            }
        }
    )*};
}

from_json!(RawJob, Value);

/// A Pod without the parts of its spec that no decision looks at. Boxed, for it goes from hand to hand.
#[derive(Clone, Debug)]
pub(crate) struct SlimPod(pub(crate) Box<Pod>);

/// A Job whose spec and status are read only when it is news.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RawJob {
    #[serde(deserialize_with = "slim_meta")]
    pub(crate) metadata: ObjectMeta,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl RawJob {
    /// What is needed to make pods of it; without the spec, nothing.
    pub(crate) fn to_make_pods(&self, needs_spec: bool) -> Self {
        let spec = self.spec.clone().filter(|_| needs_spec);
        let mut metadata = self.metadata.clone();
        (metadata.labels, metadata.annotations, metadata.finalizers) = (None, None, None);
        Self { metadata, spec, status: None }
    }

    /// The typed Job, and the raw draft policy, which typed Jobs do not have.
    pub(crate) fn read(&self) -> serde_json::Result<(Job, Option<Value>)> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Draft {
            backoff_policy: Option<Value>,
        }
        let part = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
        let spec = part(&self.spec);
        let draft = spec.as_deref().map(serde_json::from_str::<Draft>).transpose()?;
        let job = Job {
            metadata: self.metadata.clone(),
            spec: spec.as_deref().map(serde_json::from_str).transpose()?,
            status: part(&self.status).as_deref().map(serde_json::from_str).transpose()?,
        };
        Ok((job, draft.and_then(|draft| draft.backoff_policy)))
    }
}

/// The controller of an object.
pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The owner is a Job of Kubernetes, not somebody's own kind of that name.
pub(crate) fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == names::JOB_KIND && owner.api_version == names::JOB_API_VERSION
}

/// The pod carries the tracking finalizer.
pub(crate) fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::TRACKING_FINALIZER)
}

/// Resource versions are numbers that grow, on every server we know; one that is not counts as oldest.
pub(crate) fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn slim_meta<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let meta = Meta::deserialize(from)?;
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: meta.owner_references,
        ..ObjectMeta::default()
    })
}

impl<'de> Deserialize<'de> for SlimPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Slim {
            #[serde(deserialize_with = "slim_meta")]
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Spec,
            status: Option<SlimStatus>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: Option<String>,
            init_containers: Option<Vec<Init>>,
            tolerations: Option<Vec<Toleration>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Init {
            name: String,
            restart_policy: Option<String>,
        }
        let slim = Slim::deserialize(from)?;
        let init = |Init { name, restart_policy }| Container { name, restart_policy, ..Container::default() };
        let spec = PodSpec {
            node_name: slim.spec.node_name,
            init_containers: slim.spec.init_containers.map(|inits| inits.into_iter().map(init).collect()),
            tolerations: slim.spec.tolerations,
            ..PodSpec::default()
        };
        let status = slim.status.map(PodStatus::from);
        Ok(Self(Box::new(Pod { metadata: slim.metadata, spec: Some(spec), status })))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimStatus {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    conditions: Option<Vec<SlimCondition>>,
    container_statuses: Option<Vec<SlimContainer>>,
    init_container_statuses: Option<Vec<SlimContainer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimContainer {
    name: String,
    #[serde(default)]
    restart_count: i32,
    state: Option<SlimState>,
}

/// Only the end of a container says anything to a Job.
#[derive(Deserialize)]
struct SlimState {
    terminated: Option<SlimEnd>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimEnd {
    exit_code: i32,
    message: Option<String>,
    finished_at: Option<Time>,
}

impl From<SlimStatus> for PodStatus {
    fn from(slim: SlimStatus) -> Self {
        let all = |slim: Vec<SlimContainer>| slim.into_iter().map(ContainerStatus::from).collect();
        let condition = |SlimCondition { type_, status, reason, last_transition_time }| PodCondition {
            type_,
            status,
            reason,
            last_transition_time,
            ..PodCondition::default()
        };
        Self {
            phase: slim.phase,
            reason: slim.reason,
            message: slim.message,
            conditions: slim.conditions.map(|all| all.into_iter().map(condition).collect()),
            container_statuses: slim.container_statuses.map(all),
            init_container_statuses: slim.init_container_statuses.map(all),
            ..Self::default()
        }
    }
}

impl From<SlimContainer> for ContainerStatus {
    fn from(slim: SlimContainer) -> Self {
        let end = slim.state.and_then(|state| state.terminated).map(|end| ContainerStateTerminated {
            exit_code: end.exit_code,
            message: end.message,
            finished_at: end.finished_at,
            ..ContainerStateTerminated::default()
        });
        Self {
            name: slim.name,
            restart_count: slim.restart_count,
            state: end.map(|end| ContainerState { terminated: Some(end), ..ContainerState::default() }),
            ..Self::default()
        }
    }
}

resource_like!(SlimPod, Pod, pod => pod.0.metadata);
resource_like!(RawJob, Job, job => job.metadata);

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::Gates;
    use windlass_job::{JobFacts, PodFacts};

    use super::*;

    fn job() -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7",
                         "managedFields": [{"manager": "m"}]},
            "spec": {"backoffPolicy": {"rules": []}, "completionMode": "Indexed", "completions": 3,
                     "selector": {"matchLabels": {"a": "b"}},
                     "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"succeeded": 1},
        })
    }

    #[test]
    fn a_job_is_read_with_its_draft_policy() {
        let raw: RawJob = serde_json::from_str(&job().to_string()).expect("a Job");
        let (read, draft) = raw.read().expect("a typed Job");
        let mut typed: Job = serde_json::from_value(job()).expect("a typed Job");
        typed.metadata.managed_fields = None;
        assert_eq!(read, typed);
        assert_eq!(draft, Some(json!({"rules": []})));
    }

    #[test]
    fn a_job_can_be_read_from_a_watch_event() {
        let line = json!({"type": "ADDED", "object": job()}).to_string();
        // Servers write the type first.
        let line = line
            .replacen("{\"object\"", "{\"type\":\"ADDED\",\"object\"", 1)
            .replace(",\"type\":\"ADDED\"}", "}");
        let event: kube::core::WatchEvent<RawJob> = serde_json::from_str(&line).expect("an event");
        let kube::core::WatchEvent::Added(raw) = event else { panic!("not ADDED") };
        assert!(raw.read().is_ok());
    }

    #[test]
    fn the_facts_of_a_slim_pod_are_those_of_the_whole_pod() {
        let typed: Job = serde_json::from_value(job()).expect("a typed Job");
        let job = JobFacts::from_job(&typed, None, &Gates::default());
        let state = json!({"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:00Z"}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "j-1-bcdfg", "namespace": "n", "uid": "p", "resourceVersion": "9",
                "creationTimestamp": "2025-12-31T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "deletionGracePeriodSeconds": 30, "labels": {"a": "b"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "1",
                                "batch.kubernetes.io/job-index-failure-count": "2"},
                "finalizers": ["batch.kubernetes.io/job-tracking"],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u",
                                     "controller": true}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}],
            },
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}],
                     "initContainers": [{"name": "s", "restartPolicy": "Always", "image": "i"}]},
            "status": {"phase": "Failed",
                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                       "initContainerStatuses": [{"name": "s", "restartCount": 4, "image": "", "imageID": "",
                                                  "ready": false, "state": state}],
                       "containerStatuses": [{"name": "c", "restartCount": 1, "image": "", "imageID": "",
                                              "ready": false, "state": state}]},
        });
        let slim: SlimPod = serde_json::from_str(&pod.to_string()).expect("a pod");
        let whole: Pod = serde_json::from_value(pod).expect("a typed pod");
        let facts = PodFacts::from_pod(&whole, &job);
        assert_eq!(PodFacts::from_pod(&slim.0, &job), facts);
        assert!(facts.is_assigned && facts.has_finalizer && facts.index == Some(1) && facts.restarts == 5);
    }
}
