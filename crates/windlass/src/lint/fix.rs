//! `--fix`: changes of the text, each checked by reading the result again.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::PodFailurePolicyRule;
use serde_json::{Value, json};
use windlass_api::{Gates, draft};
use windlass_job::analysis::findings::{Change, Severity};

use super::edit::Text;
use super::{Diagnostic, Fix, check};
use crate::manifest::{self, Kind, Object};

const POLICY: &str = "spec.podFailurePolicy.rules";
const DRAFT: &str = "spec.backoffPolicy";
/// Each fix changes something for good; a file that takes more has something else wrong with it.
const FIXES_MAX: usize = 100;

/// Fixes what can be fixed, one thing after the other. Returns the text and what was done.
pub async fn fix_all(file: &str, mut text: String, gates: Gates) -> (String, Vec<String>) {
    let (mut done, mut given_up) = (Vec::new(), BTreeSet::new());
    while done.len() < FIXES_MAX {
        let (diagnostics, _) = check::check(file, &text, gates).await;
        let next = diagnostics.iter().find(|it| wants_fix(it) && !given_up.contains(&name(it)));
        let Some(diagnostic) = next else { break };
        match fixed(&text, diagnostic) {
            Some((new, what)) => {
                text = new;
                done.push(what);
            }
            None => _ = given_up.insert(name(diagnostic)),
        }
    }
    (text, done)
}

/// Notes are good to know, and nothing to act upon unasked; a draft policy is what `--fix` is for.
fn wants_fix(diagnostic: &Diagnostic) -> bool {
    match diagnostic.fix {
        Some(Fix::Translate) => true,
        Some(Fix::Change(_)) => diagnostic.severity != Severity::Note,
        None => false,
    }
}

fn name(diagnostic: &Diagnostic) -> (Option<usize>, Option<String>, String, &'static str) {
    (diagnostic.document, diagnostic.object.clone(), diagnostic.path.clone(), diagnostic.id)
}

/// The text with one thing fixed, and what was done; `None` if that can't be done here.
fn fixed(text: &str, diagnostic: &Diagnostic) -> Option<(String, String)> {
    let before = manifest::read_what_can_be(text).objects;
    let is_it = |object: &Object| {
        object.kind == Kind::Job
            && Some(object.document) == diagnostic.document
            && Some(object.label()) == diagnostic.object
    };
    let at = before.iter().position(is_it)?;
    let object = &before[at];
    let mut new = Text::new(text);
    let mut wanted = object.json.clone();
    let what = match diagnostic.fix.as_ref()? {
        Fix::Change(change) => apply(&mut new, &mut wanted, object, change)?,
        Fix::Translate => translate(&mut new, &mut wanted, object)?,
    };
    let new = new.finish();
    let after = manifest::read_what_can_be(&new).objects;
    // Whatever the edit did, it did what it should, and nothing else.
    let meant = before.iter().enumerate().map(|(it, object)| if it == at { &wanted } else { &object.json });
    meant.eq(after.iter().map(|object| &object.json)).then(|| (new, format!("{}: {what}", object.label())))
}

fn apply(text: &mut Text, wanted: &mut Value, object: &Object, change: &Change) -> Option<String> {
    let list = object.node.at(POLICY).and_then(|node| node.list()).unwrap_or_default();
    let rules = wanted.pointer_mut("/spec/podFailurePolicy/rules").and_then(Value::as_array_mut);
    match change {
        Change::RemoveRule { rule } => {
            text.remove_item(list, *rule)?;
            rules?.remove(*rule);
            Some(format!("rule {rule} is taken out"))
        }
        Change::MoveRule { rule, before } => {
            text.move_item(list, *rule, *before)?;
            let rules = rules?;
            let moved = rules.remove(*rule);
            rules.insert(*before, moved);
            Some(format!("rule {rule} is put in front of rule {before}"))
        }
        Change::IgnoreDisruptions { before } => {
            let item = ["action: Ignore", "onPodConditions:", "- type: DisruptionTarget"];
            text.insert_item(list, *before, &item)?;
            let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
            rules?.insert(*before, rule);
            Some(format!("a rule that ignores disruptions is put in front of rule {before}"))
        }
        Change::RemoveValues { rule, values } => {
            let node = object.node.at(&format!("{POLICY}[{rule}].onExitCodes.values"))?;
            let stored = rules?.get_mut(*rule)?["onExitCodes"]["values"].as_array_mut()?;
            // From the end, so that the places of the others stay.
            for at in (0..stored.len()).rev() {
                if stored[at]
                    .as_i64()
                    .is_some_and(|code| values.iter().any(|value| i64::from(*value) == code))
                {
                    let is_last = at + 1 == stored.len();
                    text.remove_item(&node.list()?[..stored.len()], at)
                        .filter(|()| stored.len() > 1 || !is_last)?;
                    stored.remove(at);
                }
            }
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            Some(format!("{} is taken out of the values of rule {rule}", values.join(", ")))
        }
        Change::NameContainer { rule, container } => {
            let map = object.node.at(&format!("{POLICY}[{rule}].onExitCodes"))?;
            text.add_first_field(map, &format!("containerName: {container}"))?;
            rules?.get_mut(*rule)?["onExitCodes"]["containerName"] = json!(container);
            Some(format!("rule {rule} looks at container {container} only"))
        }
        Change::ReplaceOnlyFailed => {
            let said = "spec.podReplacementPolicy";
            match object.node.at(said) {
                Some(scalar) => text.replace_word(scalar.position()?, "TerminatingOrFailed", "Failed")?,
                None => {
                    let limit = ["spec.backoffLimit", "spec.backoffLimitPerIndex"];
                    let (key, scalar) = limit
                        .iter()
                        .find_map(|path| Some((object.node.locate(path)?, object.node.at(path)?)))?;
                    text.add_field_after(key, scalar, "podReplacementPolicy: Failed")?;
                }
            }
            wanted["spec"]["podReplacementPolicy"] = json!("Failed");
            Some("podReplacementPolicy is Failed".to_owned())
        }
    }
}

/// Says a draft policy as a `podFailurePolicy`, rule by rule.
fn translate(text: &mut Text, wanted: &mut Value, object: &Object) -> Option<String> {
    let policy = draft::Policy::from_value(&object.json["spec"]["backoffPolicy"]).ok()?;
    let whole = policy.translate().policy?;
    let items = object.node.at(&format!("{DRAFT}.rules"))?.list()?;
    for (item, rule) in items.iter().zip(&policy.rules).rev() {
        let equal = draft::Policy { rules: vec![rule.clone()] }.translate().policy?;
        let lines: Vec<Vec<String>> = equal.rules.iter().map(as_yaml).collect();
        text.replace_item(item, &lines)?;
    }
    text.replace_word(object.node.locate(DRAFT)?, "backoffPolicy", "podFailurePolicy")?;
    let spec = wanted["spec"].as_object_mut()?;
    spec.remove("backoffPolicy");
    spec.insert("podFailurePolicy".to_owned(), serde_json::to_value(whole).ok()?);
    Some("backoffPolicy is said as podFailurePolicy".to_owned())
}

fn as_yaml(rule: &PodFailurePolicyRule) -> Vec<String> {
    let mut lines = vec![format!("action: {}", rule.action)];
    if let Some(on) = &rule.on_exit_codes {
        lines.push("onExitCodes:".to_owned());
        lines.extend(on.container_name.iter().map(|name| format!("  containerName: {name}")));
        lines.push(format!("  operator: {}", on.operator));
        let values: Vec<String> = on.values.iter().map(ToString::to_string).collect();
        lines.push(format!("  values: [{}]", values.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# head\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\nspec:\n";
    const TAIL: &str = "  template:\n    spec:\n      restartPolicy: Never  # needed\n      containers:\n      - {name: main, image: a, command: [b]}\n";

    fn manifest(spec: &str) -> String {
        format!("{HEAD}  activeDeadlineSeconds: 60\n{spec}{TAIL}")
    }

    async fn fix(spec: &str) -> (String, Vec<String>) {
        let (text, done) = fix_all("f", manifest(spec), Gates::default()).await;
        let (start, end) = (HEAD.len() + "  activeDeadlineSeconds: 60\n".len(), text.len() - TAIL.len());
        assert!(text.starts_with(HEAD) && text.ends_with(TAIL), "{text}");
        (text[start..end].to_owned(), done)
    }

    async fn assert_fixed(spec: &str, wanted: &str, done: &[&str]) {
        let (got, what) = fix(spec).await;
        assert_eq!(
            (got.as_str(), what),
            (wanted, done.iter().map(|it| format!("job/x: {it}")).collect()),
            "{spec}"
        );
    }

    #[tokio::test]
    async fn a_rule_on_disruptions_goes_to_the_front_with_its_comments() {
        assert_fixed(
            "  podFailurePolicy:\n    rules:\n    # bugs\n    - action: FailJob\n      onExitCodes: {operator: NotIn, values: [42]}\n\n    \
             # not our fault\n    - action: Ignore  # never counts\n      onPodConditions:\n      - type: DisruptionTarget\n",
            "  podFailurePolicy:\n    rules:\n    # not our fault\n    - action: Ignore  # never counts\n      onPodConditions:\n      \
             - type: DisruptionTarget\n    # bugs\n    - action: FailJob\n      onExitCodes: {operator: NotIn, values: [42]}\n\n",
            &["rule 1 is put in front of rule 0"],
        )
        .await;
    }

    #[tokio::test]
    async fn a_rule_on_disruptions_is_added_where_there_is_none() {
        assert_fixed(
            "  podFailurePolicy:\n    rules:\n      # bugs\n      - action: FailJob\n        onExitCodes:\n          operator: NotIn\n          \
             values: [42]\n",
            "  podFailurePolicy:\n    rules:\n      - action: Ignore\n        onPodConditions:\n        - type: DisruptionTarget\n      # bugs\n      \
             - action: FailJob\n        onExitCodes:\n          operator: NotIn\n          values: [42]\n",
            &["a rule that ignores disruptions is put in front of rule 0"],
        )
        .await;
    }

    #[tokio::test]
    async fn codes_that_are_covered_and_rules_without_any_are_taken_out() {
        assert_fixed(
            "  podFailurePolicy:\n    rules:\n    - action: FailJob\n      onExitCodes: {operator: In, values: [1, 2, 3]}\n    \
             - action: Count\n      onExitCodes:\n        operator: In\n        values:\n        - 2  # two\n        - 4  # four\n    \
             - action: Ignore\n      onExitCodes: {operator: In, values: [1, 3, 5]}\n    # of no use\n    - action: Count\n      onExitCodes:\n        \
             # nor this\n        operator: In\n        values: [1]\n  # the template\n",
            "  podFailurePolicy:\n    rules:\n    - action: FailJob\n      onExitCodes: {operator: In, values: [1, 2, 3]}\n    \
             - action: Count\n      onExitCodes:\n        operator: In\n        values:\n        - 4  # four\n    \
             - action: Ignore\n      onExitCodes: {operator: In, values: [5]}\n  # the template\n",
            &[
                "2 is taken out of the values of rule 1",
                "1, 3 is taken out of the values of rule 2",
                "rule 3 is taken out",
            ],
        )
        .await;
    }

    #[tokio::test]
    async fn the_replacement_policy_is_set_where_deleted_pods_would_count() {
        assert_fixed(
            "  backoffLimit: 0  # once\n  podReplacementPolicy: TerminatingOrFailed  # default\n",
            "  backoffLimit: 0  # once\n  podReplacementPolicy: Failed  # default\n",
            &["podReplacementPolicy is Failed"],
        )
        .await;
    }

    #[tokio::test]
    async fn a_draft_policy_is_translated_with_its_comments() {
        assert_fixed(
            "  # what we know of exit codes\n  backoffPolicy:\n    rules:\n    # try again\n    - containerExitCodeIn: 40-42  # said by the program\n      \
             action: Ignore\n    - action: Terminate\n      # of main\n      containerName: main\n      containerExitCodeIn: 1-3\n",
            "  # what we know of exit codes\n  podFailurePolicy:\n    rules:\n    # try again\n    # said by the program\n    - action: Ignore\n      \
             onExitCodes:\n        operator: In\n        values: [40, 41, 42]\n    # of main\n    - action: FailJob\n      onExitCodes:\n        \
             containerName: main\n        operator: In\n        values: [1, 2, 3]\n",
            &["backoffPolicy is said as podFailurePolicy"],
        )
        .await;
    }

    #[tokio::test]
    async fn what_can_not_be_fixed_is_left_alone() {
        for spec in [
            // A rule that has no equal.
            "  backoffPolicy:\n    rules:\n    - podStatusReasonIn: [Evicted]\n      action: Ignore\n",
            // All in one line.
            "  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: NotIn, values: [42]}}]}\n",
            // Nothing would be left.
            "  podFailurePolicy:\n    rules:\n    - action: FailJob\n      onExitCodes: {operator: In, values: [0]}\n",
        ] {
            assert_fixed(spec, spec, &[]).await;
        }
    }
}
