//! What a Kubernetes without Windlass would not make of a Job.

use serde_json::Value;
use windlass_api::names;
use windlass_job::analysis::findings::Severity;

/// Annotations and labels of ours begin with it.
const PREFIX: &str = "windlass.dev/";

/// A field that does nothing, or something else, on a stock cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The field.
    pub path: String,
    /// How bad it is.
    pub severity: Severity,
    /// What happens.
    pub text: String,
    /// What to do.
    pub help: String,
}

/// All such fields of an object.
pub fn ignored(job: &Value) -> Vec<Ignored> {
    let mut found = Vec::new();
    let mut tell = |severity, path: String, text: String, help: &str| {
        found.push(Ignored { path, severity, text, help: help.to_owned() });
    };
    if !job["spec"]["backoffPolicy"].is_null() {
        let text = "a stock cluster drops spec.backoffPolicy: every failure would count".to_owned();
        tell(Severity::Warning, "spec.backoffPolicy".to_owned(), text, "use podFailurePolicy");
    }
    if job["spec"]["managedBy"] == names::WINDLASS_CONTROLLER {
        let text = "a stock cluster leaves this Job alone: it waits for windlass controller".to_owned();
        tell(
            Severity::Note,
            "spec.managedBy".to_owned(),
            text,
            "run windlass controller there, or leave managedBy out",
        );
    }
    for place in ["metadata", "spec.template.metadata"] {
        let meta = job.pointer(&format!("/{}", place.replace('.', "/"))).unwrap_or(&Value::Null);
        let annotations = meta["annotations"].as_object();
        for key in annotations.into_iter().flatten().map(|(key, _)| key).filter(|key| key.starts_with(PREFIX))
        {
            let text = format!("a stock cluster ignores the annotation {key}");
            tell(Severity::Note, format!("{place}.annotations[{key}]"), text, "nothing, if that is meant");
        }
    }
    for list in ["initContainers", "containers"] {
        let containers = job["spec"]["template"]["spec"][list].as_array();
        for (at, _) in containers.into_iter().flatten().enumerate().filter(|(_, it)| it["image"] == "host") {
            let text =
                "on a stock cluster \"host\" is an image like any other, and must be pulled".to_owned();
            let path = format!("spec.template.spec.{list}[{at}].image");
            tell(
                Severity::Note,
                path,
                text,
                "name an image; windlass run --runtime host runs its command here all the same",
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_of_ours_is_named_with_its_path() {
        let job = json!({
            "metadata": {"annotations": {"windlass.dev/x": "1", "other/y": "2"}},
            "spec": {
                "backoffPolicy": {}, "managedBy": "windlass.dev/job-controller",
                "template": {
                    "metadata": {"annotations": {"windlass.dev/z": "3"}},
                    "spec": {"initContainers": [{"image": "host"}], "containers": [{"image": "a"}, {"image": "host"}]},
                },
            },
        });
        let paths: Vec<(String, Severity)> =
            ignored(&job).into_iter().map(|it| (it.path, it.severity)).collect();
        let note = |path: &str| (path.to_owned(), Severity::Note);
        assert_eq!(
            paths,
            [
                ("spec.backoffPolicy".to_owned(), Severity::Warning),
                note("spec.managedBy"),
                note("metadata.annotations[windlass.dev/x]"),
                note("spec.template.metadata.annotations[windlass.dev/z]"),
                note("spec.template.spec.initContainers[0].image"),
                note("spec.template.spec.containers[1].image"),
            ]
        );
        assert_eq!(ignored(&json!({"spec": {"managedBy": "kubernetes.io/job-controller"}})), []);
    }
}
