//! Finds what there is to say about one manifest.

use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize;
use serde_json::Value;
use windlass_api::{Gates, draft};
use windlass_job::analysis::Subject;
use windlass_job::analysis::findings::{Finding, Severity, findings};

use super::{Diagnostic, Fix, stock};
use crate::manifest::{self, Kind, Object, Problem};
use crate::run::engine::{Engine, Refused};

/// Everything there is to say, in the order of the file, and how many Jobs were looked at.
pub async fn check(file: &str, text: &str, gates: Gates) -> (Vec<Diagnostic>, usize) {
    // The draft is looked at whether or not anybody will switch it on.
    let gates = Gates { retriable_and_non_retriable_failures: true, ..gates };
    let reading = manifest::read_what_can_be(text);
    let mut found: Vec<Diagnostic> =
        reading.problems.iter().map(|problem| unreadable(file, problem, reading.hint.as_deref())).collect();
    let engine = Engine::new(gates);
    for object in &reading.objects {
        found.extend(of_object(&engine, file, object, gates).await);
    }
    let jobs = reading.objects.iter().filter(|object| object.kind == Kind::Job).count();
    if found.is_empty() && jobs == 0 {
        let text = "there is no Job in it".to_owned();
        let problem = Problem { position: None, document: None, object: None, path: String::new(), text };
        found.push(diagnostic(file, &problem, Severity::Warning, "no-job", None));
    }
    found.sort_by_key(|it| (it.position.map(|position| position.line), it.severity, it.position));
    (found, jobs)
}

fn unreadable(file: &str, problem: &Problem, hint: Option<&str>) -> Diagnostic {
    if problem.path == "kind" && problem.text.ends_with("can't be run here") {
        let text = problem.text.replace("can't be run here", "is not looked at");
        let problem = Problem { text, ..problem.clone() };
        return diagnostic(file, &problem, Severity::Note, "foreign-kind", None);
    }
    let id = if problem.object.is_some() { "wrong-field" } else { "unreadable" };
    diagnostic(file, problem, Severity::Error, id, hint.map(str::to_owned))
}

fn diagnostic(
    file: &str,
    problem: &Problem,
    severity: Severity,
    id: &'static str,
    help: Option<String>,
) -> Diagnostic {
    Diagnostic {
        file: file.to_owned(),
        position: problem.position,
        severity,
        id,
        object: problem.object.clone(),
        document: problem.document,
        path: problem.path.clone(),
        text: problem.text.clone(),
        help,
        fix: None,
    }
}

async fn of_object(engine: &Engine, file: &str, object: &Object, gates: Gates) -> Vec<Diagnostic> {
    let mut found = match engine.create(object).await {
        Ok(created) => created.warnings.iter().map(|warning| warned(file, object, warning)).collect(),
        Err(refused) => invalid(file, object, &refused),
    };
    if object.kind != Kind::Job {
        return found;
    }
    // Its fields were checked when it was read.
    if let Ok(job) = Job::deserialize(&object.json) {
        let draft = object.json["spec"].get("backoffPolicy").filter(|policy| !policy.is_null());
        let subject = Subject::new(&job, draft, &gates);
        add_findings(&mut found, file, object, findings(&subject));
        found.extend(draft.into_iter().flat_map(|draft| of_draft(file, object, &job, draft)));
    }
    let ignored = stock::ignored(&object.json).into_iter();
    found.extend(ignored.map(|it| {
        diagnostic(file, &object.problem(&it.path, it.text), it.severity, "stock-cluster", Some(it.help))
    }));
    found
}

fn warned(file: &str, object: &Object, warning: &str) -> Diagnostic {
    let path = warning.split(": ").next().filter(|path| !path.contains(' ')).unwrap_or_default();
    diagnostic(file, &object.problem(path, warning), Severity::Warning, "api-warning", None)
}

fn invalid(file: &str, object: &Object, refused: &Refused) -> Vec<Diagnostic> {
    let error = |path: &str, text: String| {
        diagnostic(file, &object.problem(path, text), Severity::Error, "invalid", None)
    };
    if refused.causes.is_empty() {
        return vec![error("", refused.message.clone())];
    }
    refused.causes.iter().map(|(field, message)| error(field, format!("{field}: {message}"))).collect()
}

/// What validation says already is said once, with the help of the finding. A rule that is wrong in itself is not called
/// unreachable as well.
fn add_findings(found: &mut Vec<Diagnostic>, file: &str, object: &Object, findings: Vec<Finding>) {
    let wrong: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| rule_of(&finding.path).to_owned())
        .chain(
            found.iter().filter(|it| it.severity == Severity::Error).map(|it| rule_of(&it.path).to_owned()),
        )
        .collect();
    for finding in findings {
        let is_same = |it: &&mut Diagnostic| {
            it.severity == Severity::Error
                && it.help.is_none()
                && (it.path == finding.path || it.path.starts_with(&format!("{}[", finding.path)))
        };
        if finding.severity == Severity::Error
            && let Some(same) = found.iter_mut().find(is_same)
        {
            same.help = Some(finding.help);
            same.fix = finding.change.map(Fix::Change);
            continue;
        }
        if finding.severity != Severity::Error && wrong.iter().any(|rule| rule == rule_of(&finding.path)) {
            continue;
        }
        let problem = object.problem(&finding.path, finding.text);
        let mut told = diagnostic(file, &problem, finding.severity, finding.id, Some(finding.help));
        told.fix = finding.change.map(Fix::Change);
        found.push(told);
    }
}

/// `spec.podFailurePolicy.rules[0]` of everything in it.
fn rule_of(path: &str) -> &str {
    let end = path.find("rules[").and_then(|at| path[at..].find(']').map(|end| at + end + 1));
    end.map_or(path, |end| &path[..end])
}

/// Whether a draft policy can be said as a `podFailurePolicy`, rule by rule.
fn of_draft(file: &str, object: &Object, job: &Job, draft: &Value) -> Vec<Diagnostic> {
    const PATH: &str = "spec.backoffPolicy";
    let told = |path: &str, severity, text: String, help: String, fix| {
        let mut told = diagnostic(file, &object.problem(path, text), severity, "draft-policy", Some(help));
        told.fix = fix;
        told
    };
    let Ok(policy) = draft::Policy::from_value(draft) else { return Vec::new() };
    let translation = policy.translate();
    if !translation.notes.is_empty() {
        let text = |note: &draft::Note| {
            format!("rule {} has no equal in a podFailurePolicy: {}", note.rule, note.why)
        };
        let help = "keep the draft policy and its gate, or write the rule anew".to_owned();
        return translation
            .notes
            .iter()
            .map(|note| {
                told(
                    &format!("{PATH}.rules[{}]", note.rule),
                    Severity::Warning,
                    text(note),
                    help.clone(),
                    None,
                )
            })
            .collect();
    }
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    if pod.and_then(|pod| pod.restart_policy.as_deref()) != Some("Never") {
        let text = "a podFailurePolicy could say the same, but needs restartPolicy: Never".to_owned();
        return vec![told(
            PATH,
            Severity::Note,
            text,
            "set restartPolicy: Never in the template".to_owned(),
            None,
        )];
    }
    let text = "a podFailurePolicy can say the same, and every Kubernetes knows it".to_owned();
    vec![told(PATH, Severity::Note, text, "let --fix translate it".to_owned(), Some(Fix::Translate))]
}
