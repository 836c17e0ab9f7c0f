//! Pods in protobuf, read as far as the slim pod of JSON is: what kube-apiserver can give at a third of the cost of JSON.
//!
//! The numbers are those of the `.proto` files of Kubernetes, which never change. Of a field that Go writes zero or not,
//! the zero is absence, as it is in the JSON of the same pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodSpec,
    PodStatus, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};
use windlass_api::protobuf::{Envelope, Error, Payload, Reader, timestamp};
use windlass_watch::{Heard, Page};

use super::SlimPod;

/// What a watch of pods says: the type of the event, and the object in its envelope.
pub(super) fn event(bytes: &[u8]) -> Result<Heard<SlimPod>, Error> {
    let (mut type_, mut object) = ("", &[][..]);
    each(bytes, |number, field| {
        match number {
            1 => type_ = field.text("type")?,
            2 => object = field.bytes("object")?,
            _ => {}
        }
        Ok(())
    })?;
    let mut raw = &[][..];
    each(object, |number, field| {
        if number == 1 {
            raw = field.bytes("raw")?;
        }
        Ok(())
    })?;
    let raw = Envelope::open(raw)?.raw;
    Ok(match type_ {
        "ADDED" | "MODIFIED" => Heard::Applied(SlimPod(Box::new(pod(raw)?))),
        "DELETED" => Heard::Deleted(SlimPod(Box::new(pod(raw)?))),
        "BOOKMARK" => Heard::Bookmark(pod(raw)?.metadata.resource_version.unwrap_or_default()),
        _ => Heard::Failed(failure(raw)?.boxed()),
    })
}

/// A `PodList`.
pub(super) fn page(bytes: &[u8]) -> Result<Page<SlimPod>, Error> {
    let mut page = Page { resource_version: String::new(), next: String::new(), objects: Vec::new() };
    each(bytes, |number, field| {
        match number {
            1 => each(field.bytes("metadata")?, |number, field| {
                match number {
                    2 => page.resource_version = field.text("resourceVersion")?.to_owned(),
                    3 => page.next = field.text("continue")?.to_owned(),
                    _ => {}
                }
                Ok(())
            })?,
            2 => page.objects.push(SlimPod(Box::new(pod(field.bytes("items")?)?))),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// A `Pod`, without the parts that no decision looks at.
pub(super) fn pod(bytes: &[u8]) -> Result<Pod, Error> {
    let mut pod = Pod { spec: Some(PodSpec::default()), ..Pod::default() };
    each(bytes, |number, field| {
        match number {
            1 => pod.metadata = meta(field.bytes("metadata")?)?,
            2 => pod.spec = Some(spec(field.bytes("spec")?)?),
            3 => pod.status = Some(status(field.bytes("status")?)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(pod)
}

/// `metadata.resourceVersion` of an object of any kind.
pub(super) fn version(bytes: &[u8]) -> Result<String, Error> {
    let mut version = String::new();
    each(bytes, |number, field| {
        if number == 1 {
            version = meta(field.bytes("metadata")?)?.resource_version.unwrap_or_default();
        }
        Ok(())
    })?;
    Ok(version)
}

/// A `Status`: what the server says of a request that failed.
pub(super) fn failure(bytes: &[u8]) -> Result<Status, Error> {
    let mut status = Status::default();
    each(bytes, |number, field| {
        match number {
            2 => {
                status.status = match field.text("status")? {
                    "Success" => Some(StatusSummary::Success),
                    "Failure" => Some(StatusSummary::Failure),
                    _ => None,
                }
            }
            3 => status.message = field.text("message")?.to_owned(),
            4 => status.reason = field.text("reason")?.to_owned(),
            5 => status.details = Some(details(field.bytes("details")?)?),
            6 => status.code = field.number("code")? as u16,
            _ => {}
        }
        Ok(())
    })?;
    Ok(status)
}

fn details(bytes: &[u8]) -> Result<StatusDetails, Error> {
    let mut details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    each(bytes, |number, field| {
        match number {
            1 => details.name = field.text("name")?.to_owned(),
            2 => details.group = field.text("group")?.to_owned(),
            3 => details.kind = field.text("kind")?.to_owned(),
            4 => details.causes.push(cause(field.bytes("causes")?)?),
            5 => details.retry_after_seconds = field.number("retryAfterSeconds")? as u32,
            6 => details.uid = field.text("uid")?.to_owned(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(details)
}

fn cause(bytes: &[u8]) -> Result<StatusCause, Error> {
    let mut cause = StatusCause { reason: String::new(), message: String::new(), field: String::new() };
    each(bytes, |number, field| {
        match number {
            1 => cause.reason = field.text("reason")?.to_owned(),
            2 => cause.message = field.text("message")?.to_owned(),
            3 => cause.field = field.text("field")?.to_owned(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(cause)
}

fn meta(bytes: &[u8]) -> Result<ObjectMeta, Error> {
    let mut meta = ObjectMeta::default();
    each(bytes, |number, field| {
        match number {
            1 => meta.name = text(field, "name")?,
            3 => meta.namespace = text(field, "namespace")?,
            5 => meta.uid = text(field, "uid")?,
            6 => meta.resource_version = text(field, "resourceVersion")?,
            7 => meta.generation = Some(field.number("generation")? as i64).filter(|number| *number != 0),
            8 => meta.creation_timestamp = time(field, "creationTimestamp")?,
            9 => meta.deletion_timestamp = time(field, "deletionTimestamp")?,
            10 => {
                meta.deletion_grace_period_seconds = Some(field.number("deletionGracePeriodSeconds")? as i64);
            }
            11 => meta.labels.get_or_insert_default().extend([entry(field, "labels")?]),
            12 => meta.annotations.get_or_insert_default().extend([entry(field, "annotations")?]),
            13 => meta.owner_references.get_or_insert_default().push(owner(field.bytes("ownerReferences")?)?),
            14 => meta.finalizers.get_or_insert_default().push(field.text("finalizers")?.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(meta)
}

fn owner(bytes: &[u8]) -> Result<OwnerReference, Error> {
    let mut owner = OwnerReference::default();
    each(bytes, |number, field| {
        match number {
            1 => owner.kind = field.text("kind")?.to_owned(),
            3 => owner.name = field.text("name")?.to_owned(),
            4 => owner.uid = field.text("uid")?.to_owned(),
            5 => owner.api_version = field.text("apiVersion")?.to_owned(),
            6 => owner.controller = Some(field.number("controller")? != 0),
            7 => owner.block_owner_deletion = Some(field.number("blockOwnerDeletion")? != 0),
            _ => {}
        }
        Ok(())
    })?;
    Ok(owner)
}

fn spec(bytes: &[u8]) -> Result<PodSpec, Error> {
    let mut spec = PodSpec::default();
    each(bytes, |number, field| {
        match number {
            10 => spec.node_name = text(field, "nodeName")?,
            20 => spec.init_containers.get_or_insert_default().push(init(field.bytes("initContainers")?)?),
            22 => spec.tolerations.get_or_insert_default().push(toleration(field.bytes("tolerations")?)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(spec)
}

fn init(bytes: &[u8]) -> Result<Container, Error> {
    let mut init = Container::default();
    each(bytes, |number, field| {
        match number {
            1 => init.name = field.text("name")?.to_owned(),
            24 => init.restart_policy = Some(field.text("restartPolicy")?.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(init)
}

fn toleration(bytes: &[u8]) -> Result<Toleration, Error> {
    let mut toleration = Toleration::default();
    each(bytes, |number, field| {
        match number {
            1 => toleration.key = text(field, "key")?,
            2 => toleration.operator = text(field, "operator")?,
            3 => toleration.value = text(field, "value")?,
            4 => toleration.effect = text(field, "effect")?,
            5 => toleration.toleration_seconds = Some(field.number("tolerationSeconds")? as i64),
            _ => {}
        }
        Ok(())
    })?;
    Ok(toleration)
}

fn status(bytes: &[u8]) -> Result<PodStatus, Error> {
    let mut status = PodStatus::default();
    each(bytes, |number, field| {
        match number {
            1 => status.phase = text(field, "phase")?,
            2 => status.conditions.get_or_insert_default().push(condition(field.bytes("conditions")?)?),
            3 => status.message = text(field, "message")?,
            4 => status.reason = text(field, "reason")?,
            8 => {
                let one = container(field.bytes("containerStatuses")?)?;
                status.container_statuses.get_or_insert_default().push(one);
            }
            10 => {
                let one = container(field.bytes("initContainerStatuses")?)?;
                status.init_container_statuses.get_or_insert_default().push(one);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(status)
}

fn condition(bytes: &[u8]) -> Result<PodCondition, Error> {
    let mut condition = PodCondition::default();
    each(bytes, |number, field| {
        match number {
            1 => condition.type_ = field.text("type")?.to_owned(),
            2 => condition.status = field.text("status")?.to_owned(),
            4 => condition.last_transition_time = time(field, "lastTransitionTime")?,
            5 => condition.reason = text(field, "reason")?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(condition)
}

fn container(bytes: &[u8]) -> Result<ContainerStatus, Error> {
    let mut status = ContainerStatus::default();
    each(bytes, |number, field| {
        match number {
            1 => status.name = field.text("name")?.to_owned(),
            2 => status.state = state(field.bytes("state")?)?,
            5 => status.restart_count = field.number("restartCount")? as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(status)
}

/// Only the end of a container says anything to a Job.
fn state(bytes: &[u8]) -> Result<Option<ContainerState>, Error> {
    let mut state = None;
    each(bytes, |number, field| {
        if number == 3 {
            let terminated = Some(terminated(field.bytes("terminated")?)?);
            state = Some(ContainerState { terminated, ..ContainerState::default() });
        }
        Ok(())
    })?;
    Ok(state)
}

fn terminated(bytes: &[u8]) -> Result<ContainerStateTerminated, Error> {
    let mut end = ContainerStateTerminated::default();
    each(bytes, |number, field| {
        match number {
            1 => end.exit_code = field.number("exitCode")? as i32,
            4 => end.message = text(field, "message")?,
            6 => end.finished_at = time(field, "finishedAt")?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(end)
}

/// Goes through the fields of a message.
fn each<'a>(
    bytes: &'a [u8],
    mut take: impl FnMut(u32, Payload<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.field()? {
        take(number, field)?;
    }
    Ok(())
}

fn text(field: Payload<'_>, name: &str) -> Result<Option<String>, Error> {
    Ok(Some(field.text(name)?).filter(|text| !text.is_empty()).map(str::to_owned))
}

fn time(field: Payload<'_>, name: &str) -> Result<Option<Time>, Error> {
    let Some((seconds, _)) = timestamp(field.bytes(name)?, name)? else { return Ok(None) };
    let time = Timestamp::from_second(seconds).map_err(|_| Error::NotATime { field: name.to_owned() })?;
    Ok(Some(Time(time)))
}

fn entry(field: Payload<'_>, name: &str) -> Result<(String, String), Error> {
    let (mut key, mut value) = ("", "");
    each(field.bytes(name)?, |number, field| {
        match number {
            1 => key = field.text(name)?,
            2 => value = field.text(name)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use bytes::Bytes;
    use windlass_watch::{Form, Object};

    use crate::wire::{FromAnswer, Version, refusal};

    /// Objects as Go writes them: what they are called, in protobuf and as JSON.
    fn golden(kind: &str) -> Vec<(&'static str, Vec<u8>, &'static str)> {
        let lines = include_str!("../../../apiserver/src/protobuf/golden.txt").lines();
        lines
            .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
            .map(|line| {
                let words: Vec<&str> = line.splitn(3, ' ').collect();
                let [name, body, json] = words[..] else { panic!("{line}") };
                (name, STANDARD.decode(body).expect("base64"), json)
            })
            .collect()
    }

    #[test]
    fn a_pod_is_the_same_from_protobuf_as_from_json() {
        let golden = golden("Pod");
        assert_eq!(
            golden.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
            ["empty", "zeros", "full", "sent"]
        );
        for (name, body, json) in golden {
            let SlimPod(from_json) = SlimPod::read(Form::Json, json.as_bytes()).expect("a pod");
            let SlimPod(pod) = SlimPod::read(Form::Protobuf, &body).expect("a pod");
            assert_eq!(pod, from_json, "{name}");
            let version = Version::read(Form::Protobuf, &body).expect("a version");
            assert_eq!(version.0, pod.metadata.resource_version.unwrap_or_default(), "{name}");
        }
    }

    #[test]
    fn a_full_pod_has_everything_that_is_looked_at() {
        let (_, body, _) = golden("Pod").remove(2);
        let SlimPod(pod) = SlimPod::read(Form::Protobuf, &body).expect("a pod");
        let (meta, spec) = (pod.metadata, pod.spec.expect("a spec"));
        let status = pod.status.expect("a status");
        let end =
            status.container_statuses.expect("containers")[0].state.clone().and_then(|it| it.terminated);
        let found = [
            ("name", meta.name.is_some()),
            ("namespace", meta.namespace.is_some()),
            ("uid", meta.uid.is_some()),
            ("resourceVersion", meta.resource_version.is_some()),
            ("generation", meta.generation.is_some()),
            ("creationTimestamp", meta.creation_timestamp.is_some()),
            ("deletionTimestamp", meta.deletion_timestamp.is_some()),
            ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.is_some()),
            ("labels", meta.labels.is_some()),
            ("annotations", meta.annotations.is_some()),
            ("ownerReferences", meta.owner_references.is_some()),
            ("finalizers", meta.finalizers.is_some()),
            ("nodeName", spec.node_name.is_some()),
            ("initContainers", spec.init_containers.is_some_and(|all| all[0].restart_policy.is_some())),
            ("tolerations", spec.tolerations.is_some()),
            ("phase", status.phase.is_some()),
            ("conditions", status.conditions.is_some_and(|all| all[0].last_transition_time.is_some())),
            ("message", status.message.is_some()),
            ("reason", status.reason.is_some()),
            ("initContainerStatuses", status.init_container_statuses.is_some()),
            ("terminated", end.is_some_and(|end| end.message.is_some() && end.finished_at.is_some())),
        ];
        let missing: Vec<&str> =
            found.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn what_the_server_says_is_the_same_from_protobuf_as_from_json() {
        let golden = golden("Status");
        assert!(!golden.is_empty());
        for (name, body, json) in golden {
            let mut json: serde_json::Value = serde_json::from_str(json).expect("JSON");
            // A word that is neither Success nor Failure can't be read from JSON.
            json.as_object_mut().expect("an object").retain(|name, _| name != "status" && name != "metadata");
            let refused = |form: Form, body: &[u8]| match refusal(form, http::StatusCode::OK, body) {
                kube::Error::Api(status) => status,
                other => panic!("{name}: {other}"),
            };
            assert_eq!(
                refused(Form::Protobuf, &body),
                refused(Form::Json, json.to_string().as_bytes()),
                "{name}"
            );
        }
    }

    /// A field that holds bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            all.push(length as u8 | 0x80);
            length >>= 7;
        }
        all.push(length as u8);
        all.extend(bytes);
        all
    }

    fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_ = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &type_), field(2, raw)].concat()
    }

    fn pod_message(name: &str, version: &str) -> Vec<u8> {
        field(1, &[field(1, name.as_bytes()), field(6, version.as_bytes())].concat())
    }

    /// A `PodList` as kube-apiserver sends it: pods by name and version.
    pub(crate) fn list(version: &str, next: &str, pods: &[(&str, &str)]) -> Vec<u8> {
        let meta = field(1, &[field(2, version.as_bytes()), field(3, next.as_bytes())].concat());
        let items = pods.iter().flat_map(|(name, version)| field(2, &pod_message(name, version)));
        enveloped("PodList", &meta.into_iter().chain(items).collect::<Vec<_>>())
    }

    /// What a watch says of a pod, with its length before it.
    pub(crate) fn said(type_: &str, name: &str, version: &str) -> Vec<u8> {
        frame(type_, &enveloped("Pod", &pod_message(name, version)))
    }

    /// What a watch says when it cannot go on from where it was: a `Status` with code 410.
    pub(crate) fn said_expired() -> Vec<u8> {
        frame("ERROR", &enveloped("Status", &[6 << 3, 0x9a, 3]))
    }

    fn frame(type_: &str, object: &[u8]) -> Vec<u8> {
        let event = [field(1, type_.as_bytes()), field(2, &field(1, object))].concat();
        [u32::try_from(event.len()).expect("short").to_be_bytes().to_vec(), event].concat()
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let body = said("ADDED", "p", "1");
        for end in 4..body.len() {
            let cut = Bytes::copy_from_slice(&body[4..end]);
            assert!(SlimPod::event(Form::Protobuf, &cut).is_err(), "cut at {end}");
        }
        let (_, full, _) = golden("Pod").remove(2);
        for at in 0..full.len() {
            let mut damaged = full.clone();
            damaged[at] ^= 0x15;
            // Whatever it says, it says it without a panic.
            let _ = SlimPod::read(Form::Protobuf, &damaged);
        }
        assert!(SlimPod::page(Form::Protobuf, &Bytes::from_static(b"k8s\0")).is_err());
        let text = refusal(Form::Protobuf, http::StatusCode::BAD_GATEWAY, b"no route\n");
        assert!(
            matches!(text, kube::Error::Api(status) if status.code == 502 && status.message == "no route")
        );
    }
}
