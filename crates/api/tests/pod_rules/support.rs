//! Tables of pods and templates, and what is wrong with them.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use serde_json::{Value, json};
use windlass_api::defaults::pod::{default_pod, default_pod_template};
use windlass_api::field::{Errors, Path};
use windlass_api::validation::pod::validate_pod_template;

/// Which part of a plain template the fields of a case replace.
pub enum Part {
    Container,
    Spec,
    Template,
}

/// The rule, the part, its fields as JSON, and all the errors.
///
/// `<a64>` in a text stands for 64 letters a; `{"@times": 3, "@of": x}` for a list of three x.
pub type Case = (&'static str, Part, &'static str, &'static [&'static str]);

/// The template of a case, with defaults.
pub fn template(part: &Part, fields: &str) -> PodTemplateSpec {
    let fields = expand(serde_json::from_str(&expand_text(fields)).expect("the fields of a case are JSON"));
    let mut plain = json!({
        "metadata": {},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]},
    });
    match part {
        Part::Container => merge(&mut plain["spec"]["containers"][0], fields),
        Part::Spec => merge(&mut plain["spec"], fields),
        Part::Template => {
            merge(&mut plain["metadata"], fields.get("metadata").cloned().unwrap_or_default());
            merge(&mut plain["spec"], fields.get("spec").cloned().unwrap_or_default());
        }
    }
    let mut template = serde_json::from_value(plain).expect("a case is a template");
    default_pod_template(&mut template);
    template
}

/// A plain pod with these fields of its metadata and its spec, and with defaults.
pub fn pod(fields: &str) -> Pod {
    let fields: Value = serde_json::from_str(&expand_text(fields)).expect("the fields of a case are JSON");
    let mut plain = json!({
        "metadata": {"name": "p", "namespace": "n", "resourceVersion": "1"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]},
    });
    merge(&mut plain["metadata"], fields["metadata"].clone());
    merge(&mut plain["spec"], fields["spec"].clone());
    let mut pod = serde_json::from_value(plain).expect("a case is a pod");
    default_pod(&mut pod);
    pod
}

/// Checks that each case has its errors.
pub fn check(cases: &[Case]) {
    report(cases.iter().map(|(rule, part, fields, errors)| {
        (*rule, validate_pod_template(&template(part, fields), &Path::new("template")), *errors)
    }));
}

/// Checks found errors against wanted ones.
pub fn report<'a>(cases: impl Iterator<Item = (&'a str, Errors, &'a [&'a str])>) {
    compare(
        cases.map(|(rule, found, wanted)| (rule, found.iter().map(ToString::to_string).collect(), wanted)),
    );
}

/// Checks found texts against wanted ones, all of them and in their order.
pub fn compare<'a>(cases: impl Iterator<Item = (&'a str, Vec<String>, &'a [&'a str])>) {
    let mut wrong = String::new();
    for (rule, found, wanted) in cases {
        let wanted: Vec<String> = wanted.iter().map(|text| expand_text(text)).collect();
        if found != wanted {
            let (found, wanted) = (found.join("\n         "), wanted.join("\n         "));
            wrong += &format!("{rule}:\n  found  {found}\n  wanted {wanted}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn merge(into: &mut Value, fields: Value) {
    if let (Some(into), Value::Object(fields)) = (into.as_object_mut(), fields) {
        into.extend(fields);
    }
}

fn expand_text(text: &str) -> String {
    let mut parts = text.split("<a");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (count, rest) = part.split_once('>').expect("<a is followed by a number and >");
        expanded += &"a".repeat(count.parse().expect("<a is followed by a number"));
        expanded += rest;
    }
    expanded
}

fn expand(value: Value) -> Value {
    match value {
        Value::Object(fields) if fields.contains_key("@times") => {
            let times = fields["@times"].as_u64().expect("@times is a number");
            (0..times).map(|_| fields["@of"].clone()).collect()
        }
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, expand(value))).collect(),
        Value::Array(items) => items.into_iter().map(expand).collect(),
        other => other,
    }
}
