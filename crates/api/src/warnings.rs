//! Warnings: what the API server accepts but tells the client.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;

use crate::field::Path;
use crate::validation::meta::dns1123_label;
use crate::validation::pod::pod_template_warnings;
use crate::view::{self, HIGH_COMPLETIONS, HIGH_COMPLETIONS_PARALLELISM_MAX};

/// The warning of a DELETE that does not say what becomes of the pods.
pub const PODS_ARE_PRESERVED: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// The warnings for a new Job.
pub fn on_create(job: &Job) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns1123_label(job.metadata.name.as_deref().unwrap_or_default());
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; \
             a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(of_spec(view::spec(job)));
    warnings
}

/// The warnings for a new pod.
pub fn pod_on_create(pod: &Pod) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns1123_label(pod.metadata.name.as_deref().unwrap_or_default());
    if !wrong.is_empty() {
        // upstream: of a name that is fine but for its dots, only the dots are told
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let wrong = if name.contains('.') && dns1123_label(&name.replace('.', "-")).is_empty() {
            vec!["must not contain dots".to_owned()]
        } else {
            wrong
        };
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(pod_template_warnings(Some(&pod.metadata), pod.spec.as_ref(), &Path::root()));
    warnings
}

/// The warnings for an update, after its generation was decided: none unless the spec changed.
pub fn on_update(new: &Job, old: &Job) -> Vec<String> {
    if new.metadata.generation == old.metadata.generation { Vec::new() } else { of_spec(view::spec(new)) }
}

/// The warnings for a DELETE or DELETECOLLECTION with these options.
pub fn on_delete(options: &DeleteOptions) -> Vec<String> {
    let is_said = options.propagation_policy.is_some() || options.orphan_dependents.is_some();
    if is_said { Vec::new() } else { vec![PODS_ARE_PRESERVED.to_owned()] }
}

fn of_spec(spec: &JobSpec) -> Vec<String> {
    let path = Path::new("spec");
    let mut warnings = Vec::new();
    if view::is_indexed(spec)
        && spec.completions.is_some_and(|completions| completions > HIGH_COMPLETIONS)
        && spec.parallelism.is_some_and(|parallelism| parallelism > HIGH_COMPLETIONS_PARALLELISM_MAX)
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    let (meta, pod) = (spec.template.metadata.as_ref(), spec.template.spec.as_ref());
    warnings.extend(pod_template_warnings(meta, pod, &path.child("template")));
    warnings
}
