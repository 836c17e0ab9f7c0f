//! Nobody gives what they do not have: whoever writes a role or a binding must hold all that it grants, or the verb
//! `escalate` on the role, or `bind` on the role that is bound.

use serde_json::Value;
use windlass_store::Store;

use super::action::{Action, Object, Resource};
use super::identity::{Identity, MASTERS};
use super::policy::{self, GROUP, RoleRef, Rule};
use crate::Attributes;
use crate::status::{Result, Status};

/// Whether an action writes roles or bindings, so that its body has to be looked at.
pub(super) fn concerns(action: &Action) -> Option<&Resource> {
    match &action.to {
        Object::Resource(resource)
            if resource.group == GROUP && matches!(action.verb.as_str(), "create" | "update" | "patch") =>
        {
            Some(resource)
        }
        Object::Resource(_) | Object::Path(_) => None,
    }
}

/// Checks a write of a role or binding. `body` is nothing where the result can't be known before: a patch.
pub(super) fn check(
    store: &Store<Attributes>,
    who: &Identity,
    target: &Resource,
    body: Option<&Value>,
) -> Result<()> {
    if who.is_in(MASTERS) {
        return Ok(());
    }
    let is_binding = target.resource.ends_with("bindings");
    let role = body.and_then(|body| serde_json::from_value::<RoleRef>(body["roleRef"].clone()).ok());
    let (verb, resource, name) = match (is_binding, &role) {
        (true, Some(role)) if role.kind == "Role" => ("bind", "roles", role.name.clone()),
        (true, Some(role)) => ("bind", "clusterroles", role.name.clone()),
        (true, None) => ("bind", "clusterroles", String::new()),
        (false, _) => ("escalate", target.resource.as_str(), target.name.clone()),
    };
    let action = Action {
        verb: verb.to_owned(),
        to: Object::Resource(Resource {
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: target.namespace.clone(),
            name,
            subresource: String::new(),
            selected_node: String::new(),
        }),
    };
    if policy::judge(store, who, &action).is_allowed {
        return Ok(());
    }
    let name = body.and_then(|body| body["metadata"]["name"].as_str()).unwrap_or(&target.name);
    let refuse = |why: &str| Err(Status::denied(GROUP, &target.resource, name, why));
    let granted = match (body, role) {
        (Some(_), Some(role)) if is_binding => match policy::rules(store, &role, &target.namespace) {
            Ok(rules) => rules,
            Err(problem) => return refuse(&problem),
        },
        (Some(body), _) if !is_binding => serde_json::from_value(body["rules"].clone()).unwrap_or_default(),
        _ => return refuse(&format!("User {:?} cannot {verb} roles by a patch", who.name)),
    };
    let held = policy::rules_of(store, who, &target.namespace);
    let missing: Vec<String> = granted
        .iter()
        .flat_map(single)
        .filter(|one| !held.iter().any(|rule| covers(rule, one)))
        .map(|one| text(&one))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    refuse(&format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        who.name,
        who.groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(" "),
        missing.join("\n")
    ))
}

/// A rule as rules that name one thing each.
fn single(rule: &Rule) -> Vec<Rule> {
    let mut singles = Vec::new();
    for verb in &rule.verbs {
        let verbs = vec![verb.clone()];
        for url in &rule.non_resource_urls {
            let non_resource_urls = vec![url.clone()];
            singles.push(Rule { verbs: verbs.clone(), non_resource_urls, ..Rule::default() });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let one = Rule {
                    verbs: verbs.clone(),
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    singles.push(one.clone());
                }
                let named = |name: &String| Rule { resource_names: vec![name.clone()], ..one.clone() };
                singles.extend(rule.resource_names.iter().map(named));
            }
        }
    }
    singles
}

/// Whether a rule allows all that a single one does.
fn covers(held: &Rule, one: &Rule) -> bool {
    let has = |list: &[String], wanted: &[String]| {
        wanted.iter().all(|wanted| list.iter().any(|item| item == "*" || item == wanted))
    };
    let names_fit = held.resource_names.is_empty()
        || (!one.resource_names.is_empty()
            && one.resource_names.iter().all(|name| held.resource_names.contains(name)));
    let resource_fits = has(&held.resources, &one.resources)
        || one.resources.iter().all(|wanted| {
            wanted.split_once('/').is_some_and(|(_, sub)| held.resources.contains(&format!("*/{sub}")))
        });
    let urls_fit = one.non_resource_urls.iter().all(|wanted| {
        held.non_resource_urls.iter().any(|url| {
            url == wanted || url.strip_suffix('*').is_some_and(|prefix| wanted.starts_with(prefix))
        })
    });
    let is_same_sort = held.non_resource_urls.is_empty() == one.non_resource_urls.is_empty();
    is_same_sort
        && has(&held.verbs, &one.verbs)
        && has(&held.api_groups, &one.api_groups)
        && resource_fits
        && names_fit
        && urls_fit
}

fn text(rule: &Rule) -> String {
    let list = |name: &str, items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        (!items.is_empty()).then(|| format!("{name}:[{}]", items.join(" ")))
    };
    let parts = [
        list("APIGroups", &rule.api_groups),
        list("Resources", &rule.resources),
        list("ResourceNames", &rule.resource_names),
        list("NonResourceURLs", &rule.non_resource_urls),
        list("Verbs", &rule.verbs),
    ];
    format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
