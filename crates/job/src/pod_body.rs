//! The pod that a Job's template makes.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
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

/// What all pods of a Job have in common, ready to be sent: each differs in a few words of it.
#[derive(Clone, Debug)]
pub struct Mold {
    /// `metadata.generation` of the Job: with another one its template may be another.
    pub generation: Option<i64>,
    job_name: String,
    meta: ObjectMeta,
    /// JSON of the spec; without the host name if that depends on the index.
    spec: String,
}

impl Mold {
    /// Of the template of `job`. The template's name, namespace and owners mean nothing.
    pub fn of(job: &Job) -> Result<Self, NoLabels> {
        let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let meta = template.metadata.unwrap_or_default();
        let labels = meta.labels.filter(|labels| !labels.is_empty()).ok_or(NoLabels)?;
        let mut finalizers = meta.finalizers.unwrap_or_default();
        if !finalizers.iter().any(|f| f == names::TRACKING_FINALIZER) {
            finalizers.push(names::TRACKING_FINALIZER.to_owned());
        }
        let mut spec = template.spec.unwrap_or_default();
        if job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed") {
            spec.hostname = None;
            let init = spec.init_containers.iter_mut().flatten();
            spec.containers.iter_mut().chain(init).for_each(add_index_env);
        }
        let meta = ObjectMeta {
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![owner_reference(job)]),
            ..ObjectMeta::default()
        };
        let job_name = job.metadata.name.clone().unwrap_or_default();
        Ok(Self { generation: job.metadata.generation, job_name, meta, spec: text(&spec) })
    }

    /// The pod for `new`, as JSON.
    pub fn pod(&self, new: &NewPod) -> String {
        let (meta, spec) = (text(&self.meta(new)), self.spec.as_str());
        let hostname = match new.index {
            Some(index) => format!("\"hostname\":{},", text(&format!("{}-{index}", self.job_name))),
            None => String::new(),
        };
        // There are always containers behind it.
        let rest = spec.strip_prefix('{').unwrap_or(spec);
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{meta},"spec":{{{hostname}{rest}}}"#)
    }

    fn meta(&self, new: &NewPod) -> ObjectMeta {
        let mut meta = self.meta.clone();
        (meta.name, meta.generate_name) = (Some(new.name.clone()), Some(new.prefix.clone()));
        let mut annotations = meta.annotations.take().unwrap_or_default();
        if let Some(index) = new.index {
            let labels = meta.labels.get_or_insert_default();
            labels.insert(names::COMPLETION_INDEX.to_owned(), index.to_string());
            annotations.insert(names::COMPLETION_INDEX.to_owned(), index.to_string());
        }
        if let Some(failures) = new.failures {
            annotations.insert(names::INDEX_FAILURE_COUNT.to_owned(), failures.counted.to_string());
            if failures.ignored > 0 {
                let ignored = failures.ignored.to_string();
                annotations.insert(names::INDEX_IGNORED_FAILURE_COUNT.to_owned(), ignored);
            }
        }
        meta.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        meta
    }
}

/// The pod for `new` of `job`, as a server has it that adds nothing.
pub fn pod_body(job: &Job, new: &NewPod) -> Result<Pod, NoLabels> {
    let mold = Mold::of(job)?;
    Ok(serde_json::from_str(&mold.pod(new)).expect("it was made from parts of a pod"))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names are texts, so that it can be JSON")
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
