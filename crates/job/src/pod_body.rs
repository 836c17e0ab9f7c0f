//! The pod that a Job's template makes.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use windlass_api::names;

use crate::decision::NewPod;

/// Why no pod can be made. Upstream's text, which users see in the `FailedCreate` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLabels;

impl std::fmt::Display for NoLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unable to create pods, no labels")
    }
}

/// The pod for `new`, made from the template of `job`. The template's name, namespace and owners mean nothing.
pub fn pod_body(job: &Job, new: &NewPod) -> Result<Pod, NoLabels> {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let mut labels = meta.labels.filter(|labels| !labels.is_empty()).ok_or(NoLabels)?;
    let mut annotations = meta.annotations.unwrap_or_default();
    let mut finalizers = meta.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|f| f == names::TRACKING_FINALIZER) {
        finalizers.push(names::TRACKING_FINALIZER.to_owned());
    }
    let mut spec = template.spec.unwrap_or_default();
    if let Some(index) = new.index {
        labels.insert(names::COMPLETION_INDEX.to_owned(), index.to_string());
        annotations.insert(names::COMPLETION_INDEX.to_owned(), index.to_string());
        let job_name = job.metadata.name.as_deref().unwrap_or_default();
        spec.hostname = Some(format!("{job_name}-{index}"));
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(add_index_env);
    }
    if let Some(failures) = new.failures {
        annotations.insert(names::INDEX_FAILURE_COUNT.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(names::INDEX_IGNORED_FAILURE_COUNT.to_owned(), failures.ignored.to_string());
        }
    }
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(new.name.clone()),
            generate_name: Some(new.prefix.clone()),
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: some_if_any(annotations),
            finalizers: Some(finalizers),
            owner_references: Some(vec![owner_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// The reference that makes `job` the controller of a pod.
pub fn owner_reference(job: &Job) -> OwnerReference {
    OwnerReference {
        api_version: names::JOB_API_VERSION.to_owned(),
        kind: names::JOB_KIND.to_owned(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn some_if_any(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}

/// A variable of that name set by the user stays as it is.
fn add_index_env(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|var| var.name == names::COMPLETION_INDEX_ENV) {
        return;
    }
    env.push(EnvVar {
        name: names::COMPLETION_INDEX_ENV.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{}']", names::COMPLETION_INDEX),
            }),
            ..EnvVarSource::default()
        }),
    });
}
