//! Whether an object is of a kind that can be run here, and every field one that its kind has.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of object that a manifest may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `batch/v1`.
    Job,
    /// `v1`.
    ConfigMap,
    /// `v1`.
    Secret,
    /// `scheduling.k8s.io/v1`.
    PriorityClass,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Job, Self::ConfigMap, Self::Secret, Self::PriorityClass];

    /// As manifests spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PriorityClass => "PriorityClass",
        }
    }

    /// The `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Job => "batch/v1",
            Self::ConfigMap | Self::Secret => "v1",
            Self::PriorityClass => "scheduling.k8s.io/v1",
        }
    }

    /// The path under which objects are created.
    pub fn collection(self, namespace: &str) -> String {
        match self {
            Self::Job => format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Secret => format!("/api/v1/namespaces/{namespace}/secrets"),
            Self::PriorityClass => "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
        }
    }

    /// Objects live in a namespace.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Job | Self::ConfigMap | Self::Secret => true,
            Self::PriorityClass => false,
        }
    }

    /// Reads `apiVersion` and `kind`. An error is a field, a text and a hint.
    pub fn of(object: &Value) -> Result<Self, KindError> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        for field in ["apiVersion", "kind"] {
            if text(field).is_empty() {
                return Err(KindError::missing(field));
            }
        }
        let known = Self::ALL.into_iter().find(|known| known.name() == kind);
        match known {
            Some(known) if known.api_version() == version => Ok(known),
            Some(known) => Err(KindError::version(known, version)),
            None => Err(KindError::unknown(version, kind)),
        }
    }
}

/// Why an object is of no kind that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindError {
    /// The field to look at.
    pub field: &'static str,
    /// What is wrong.
    pub text: String,
    /// What to do.
    pub hint: String,
    /// It is a whole object, of a kind that is not for us.
    pub is_foreign: bool,
}

impl KindError {
    fn missing(field: &'static str) -> Self {
        let hint = "every document begins with apiVersion and kind; a Job's are batch/v1 and Job".to_owned();
        Self { field, text: format!("{field} is not set"), hint, is_foreign: false }
    }

    fn version(kind: Kind, version: &str) -> Self {
        Self {
            field: "apiVersion",
            text: format!("no matches for kind {:?} in version {version:?}", kind.name()),
            hint: format!("a {} has apiVersion: {}", kind.name(), kind.api_version()),
            is_foreign: false,
        }
    }

    fn unknown(version: &str, kind: &str) -> Self {
        let known = "windlass run takes Job, ConfigMap, Secret, PriorityClass, and List of these";
        let hint = match kind {
            "CronJob" => format!("{known}; to run a CronJob once, make a Job of its spec.jobTemplate.spec"),
            "Pod" => format!("{known}; to run a Pod, make it the spec.template of a Job"),
            _ => format!("{known}; take other objects out of the file"),
        };
        let text = format!("kind {kind:?} of {version:?} can't be run here");
        Self { field: "kind", text, hint, is_foreign: true }
    }
}

/// A field that is wrong, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

/// Everything that is not as the kind has it: a value of another type, or fields that there are not.
pub fn check(kind: Kind, object: &Value) -> Vec<FieldError> {
    match kind {
        Kind::Job => strictly::<Job>(object, |path| is_within(path, "spec.backoffPolicy")),
        Kind::ConfigMap => strictly::<ConfigMap>(object, |_| false),
        Kind::Secret => strictly::<Secret>(object, |_| false),
        Kind::PriorityClass => strictly::<PriorityClass>(object, |_| false),
    }
}

fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// So many values of another type are told of at once.
const TYPE_ERRORS_MAX: usize = 20;

fn strictly<T: DeserializeOwned>(object: &Value, is_extension: fn(&str) -> bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut object = object.clone();
    // Decoding stops at the first value of another type: it is told of and taken out, until the rest can be read.
    loop {
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&object, &mut track);
        // Not part of the type of the reader, so that all kinds share what they have in common.
        let note: &mut dyn FnMut(serde_ignored::Path<'_>) = &mut |ignored| unknown.push(path_of(&ignored));
        let read: Result<T, _> = serde_ignored::deserialize(tracked, note);
        let Err(error) = read else {
            let unknown = unknown.into_iter().filter(|path| !is_extension(path));
            errors.extend(unknown.map(|path| FieldError { text: format!("unknown field {path:?}"), path }));
            return errors;
        };
        let path = track.path();
        let is_out = take_out(&mut object, &path);
        let path = path.to_string();
        let text = if path == "." { error.to_string() } else { format!("{path}: {error}") };
        errors.push(FieldError { path, text });
        if !is_out || errors.len() == TYPE_ERRORS_MAX {
            return errors;
        }
    }
}

/// Makes the value at the path null, or the list that it is an item of: items can't be null. False if there is none, or it
/// is null already.
fn take_out(object: &mut Value, path: &serde_path_to_error::Path) -> bool {
    use serde_path_to_error::Segment;
    let segments: Vec<&Segment> = path.iter().collect();
    let is_item = matches!(segments.last(), Some(Segment::Seq { .. }));
    let mut value = object;
    for segment in &segments[..segments.len() - usize::from(is_item)] {
        let next = match segment {
            Segment::Seq { index } => value.get_mut(*index),
            Segment::Map { key } => value.get_mut(key),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        match next {
            Some(next) => value = next,
            None => return false,
        }
    }
    !value.take().is_null()
}

/// The path as Kubernetes writes it.
fn path_of(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_of(parent)),
        Path::Map { parent, key } => match path_of(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            path_of(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_found_at_any_depth_but_the_draft_policy_is_known() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "nmae": "y"},
            "spec": {
                "backoffPolicy": {"rules": [{"action": "Ignore", "anything": 1}]},
                "template": {"spec": {"containers": [{"name": "a", "comand": ["x"]}, {"name": "b", "env": [{"valu": "x"}]}]}},
            },
        });
        let texts: Vec<String> = check(Kind::Job, &job).into_iter().map(|error| error.text).collect();
        assert_eq!(
            texts,
            [
                "unknown field \"metadata.nmae\"",
                "unknown field \"spec.template.spec.containers[0].comand\"",
                "unknown field \"spec.template.spec.containers[1].env[0].valu\"",
            ]
        );
    }

    #[test]
    fn every_value_of_another_type_is_named_and_unknown_fields_too() {
        let job = json!({"spec": {"completions": "5", "foo": 1, "parallelism": "3", "template": []}});
        let texts: Vec<String> = check(Kind::Job, &job).into_iter().map(|error| error.text).collect();
        assert_eq!(
            texts,
            [
                "spec.completions: invalid type: string \"5\", expected i32",
                "spec.parallelism: invalid type: string \"3\", expected i32",
                "spec.template: invalid type: sequence, expected PodTemplateSpec",
                "unknown field \"spec.foo\"",
            ]
        );
    }

    #[test]
    fn a_value_of_another_type_is_named_with_its_path() {
        let job = json!({"spec": {"template": {"spec": {"containers": [{"command": ["echo", 1]}]}}}});
        let error = |path: &str, text: &str| FieldError { path: path.into(), text: text.into() };
        assert_eq!(
            check(Kind::Job, &job),
            [error(
                "spec.template.spec.containers[0].command[1]",
                "spec.template.spec.containers[0].command[1]: invalid type: integer `1`, expected a string"
            )]
        );
    }
}
