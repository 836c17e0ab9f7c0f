//! Diagnostics for programs: JSON, and SARIF 2.1.0.

use serde_json::{Value, json};
use windlass_job::analysis::findings::{IDS, Severity};

use super::{Diagnostic, Report};

/// Kinds of diagnostics that are no findings of the analysis.
const OTHER_IDS: [(&str, &str); 8] = [
    ("unreadable", "the file is no manifest"),
    ("wrong-field", "a field that the kind does not have, or of another type"),
    ("invalid", "what an API server refuses"),
    ("api-warning", "what an API server warns of"),
    ("stock-cluster", "does nothing, or something else, on a Kubernetes without Windlass"),
    ("draft-policy", "the policy is that of the first draft"),
    ("foreign-kind", "an object that is not looked at"),
    ("no-job", "there is nothing to look at"),
];

/// A list of all diagnostics, one object each.
pub fn json(reports: &[Report]) -> String {
    let all = reports.iter().flat_map(|report| &report.diagnostics);
    pretty(&all.map(object).collect())
}

fn object(diagnostic: &Diagnostic) -> Value {
    let mut object = json!({
        "file": diagnostic.file,
        "severity": diagnostic.severity.to_string(),
        "id": diagnostic.id,
        "path": diagnostic.path,
        "message": diagnostic.text,
        "fixable": diagnostic.fix.is_some(),
    });
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object[key] = value;
        }
    };
    set("line", diagnostic.position.map(|position| position.line.into()));
    set("column", diagnostic.position.map(|position| position.column.into()));
    set("document", diagnostic.document.map(Into::into));
    set("object", diagnostic.object.clone().map(Into::into));
    set("help", diagnostic.help.clone().map(Into::into));
    object
}

/// One run with all diagnostics.
pub fn sarif(reports: &[Report]) -> String {
    let rules: Vec<Value> = IDS
        .iter()
        .chain(&OTHER_IDS)
        .map(|(id, about)| json!({"id": id, "shortDescription": {"text": about}}))
        .collect();
    let results: Vec<Value> = reports.iter().flat_map(|report| &report.diagnostics).map(result).collect();
    pretty(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "windlass lint", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    }))
}

fn result(diagnostic: &Diagnostic) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let help = diagnostic.help.as_ref().map_or(String::new(), |help| format!(" ({help})"));
    let mut place = json!({"artifactLocation": {"uri": diagnostic.file}});
    if let Some(position) = diagnostic.position {
        place["region"] = json!({"startLine": position.line, "startColumn": position.column});
    }
    json!({
        "ruleId": diagnostic.id,
        "level": level,
        "message": {"text": format!("{}{help}", diagnostic.text)},
        "locations": [{"physicalLocation": place}],
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
