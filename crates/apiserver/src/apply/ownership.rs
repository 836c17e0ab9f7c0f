//! Who owns what after an apply, what is pruned, and what is in conflict. upstream: structured-merge-diff.

use serde_json::{Value, json};

use super::merge::{merge, remove};
use crate::fields::Type;
use crate::managed::entries::{Entries, Entry, Manager, Operation};
use crate::managed::set::{self, Set};
use crate::managed::walk::{self, Sides};
use crate::managed::{self, Writer};
use crate::object::{self, Object};
use crate::resources::Resource;
use crate::status::{Conflict, Result, Status};

/// upstream: who owns what was there before anybody applied.
const BEFORE: &str = "before-first-apply";
/// upstream: the manager whose client-side applies are carried on.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// upstream: the length of all annotations together.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Somebody who applies.
pub(super) struct Applier<'a> {
    pub(super) resource: &'static Resource,
    pub(super) ty: &'a Type,
    pub(super) writer: &'a Writer,
    pub(super) now: &'a str,
}

/// What came of a try.
enum Outcome {
    Applied(Value, Entries),
    Conflicts(Vec<(Manager, Set)>),
}

impl Applier<'_> {
    /// The object after the apply, and who owns its fields.
    pub(super) fn apply(
        &self,
        old: Option<&Object>,
        live: &Value,
        config: &Value,
        force: bool,
    ) -> Result<(Value, Entries)> {
        let entries = self.entries(old);
        let conflicts = match self.attempt(entries.clone(), live, config, force) {
            Outcome::Applied(value, entries) => return Ok((self.carry_on(value, config), entries)),
            Outcome::Conflicts(conflicts) => conflicts,
        };
        let left = self.unexpected(live, conflicts);
        if left.is_empty()
            && let Outcome::Applied(value, entries) = self.attempt(entries, live, config, true)
        {
            return Ok((self.carry_on(value, config), entries));
        }
        Err(Status::apply_conflict(&describe(left)))
    }

    /// Who owns what now. Of an object that says nothing, somebody from before owns everything.
    fn entries(&self, old: Option<&Object>) -> Entries {
        let mut entries = old.map(|old| Entries::stored(old.managed())).unwrap_or_default();
        if let Some(old) = old.filter(|_| entries.is_empty()) {
            let before = Writer { name: BEFORE.to_owned(), ..self.writer.clone() };
            let fields = managed::owned(self.resource, self.ty, self.writer.subresource, old);
            if !fields.is_empty() {
                entries.add(before.manager(self.resource, Operation::Update), fields, self.now);
            }
        }
        entries.keep_version(self.resource.api_version);
        entries
    }

    fn attempt(&self, mut entries: Entries, live: &Value, config: &Value, force: bool) -> Outcome {
        let manager = self.writer.manager(self.resource, Operation::Apply);
        let merged = merge(self.ty, Some(live), Some(config)).unwrap_or_else(|| json!({}));
        let last = entries.take(&manager);
        let subresource = self.writer.subresource;
        let new = match &last {
            Some(last) => {
                let written = managed::written(self.resource, subresource, config);
                self.prune(&merged, &last.fields, &entries, &walk::given(self.ty, &written))
            }
            None => merged,
        };
        let diff = managed::diff_values(self.resource, self.ty, subresource, live, &new);
        let changed = diff.changed.unwrap_or_default();
        if !force {
            let conflicts: Vec<(Manager, Set)> = entries
                .iter()
                .map(|entry| (entry.manager.clone(), set::intersection(&entry.fields, &changed)))
                .filter(|(_, fields)| !fields.is_empty())
                .collect();
            if !conflicts.is_empty() {
                return Outcome::Conflicts(conflicts);
            }
        }
        entries.subtract(&changed);
        entries.subtract(&diff.removed.unwrap_or_default());
        let mut shown = new.clone();
        object::strip_nulls(&mut shown);
        let time = if shown == *live { last.and_then(|last| last.time) } else { Some(self.now.to_owned()) };
        let fields = walk::given(self.ty, &managed::filtered(self.resource, subresource, config));
        if !fields.is_empty() {
            entries.insert(Entry { manager, time, fields });
        }
        Outcome::Applied(new, entries)
    }

    /// Takes out what was applied before and is no more, unless somebody else owns it. upstream: prune.
    fn prune(&self, merged: &Value, last: &Set, others: &Entries, fields: &Set) -> Value {
        let with_parents = |set: &Set| walk::with_parents(self.ty, set);
        let last = with_parents(last);
        let pruned = remove(self.ty, merged, &last);
        let all = with_parents(&walk::given(self.ty, merged));

        let mut kept = with_parents(&walk::given(self.ty, &pruned));
        set::unite(&mut kept, with_parents(fields));
        for entry in others.iter() {
            set::unite(&mut kept, with_parents(&entry.fields));
        }
        let mut gone = all.clone();
        set::subtract(&mut gone, &kept);
        let pruned = remove(self.ty, merged, &gone);

        // Only what was applied before goes away.
        let mut gone = all;
        set::subtract(&mut gone, &with_parents(&walk::given(self.ty, &pruned)));
        remove(self.ty, merged, &set::intersection(&gone, &last))
    }

    /// The conflicts that are not with the client-side applies of the same kubectl. upstream: lastAppliedManager.
    fn unexpected(&self, live: &Value, conflicts: Vec<(Manager, Set)>) -> Vec<(Manager, Set)> {
        let Some(allowed) = self.last_applied(live).filter(|_| self.writer.name == KUBECTL) else {
            return conflicts;
        };
        let left = conflicts.into_iter().map(|(manager, mut fields)| {
            set::subtract(&mut fields, &allowed);
            (manager, fields)
        });
        left.filter(|(_, fields)| !fields.is_empty()).collect()
    }

    /// The fields that the last client-side apply set, and that are still what it set them to.
    fn last_applied(&self, live: &Value) -> Option<Set> {
        let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
        let applied: Value = serde_json::from_str(text).ok()?;
        if applied.get("apiVersion")?.as_str()? != self.resource.api_version {
            return None;
        }
        let mut fields = walk::given(self.ty, &applied);
        let (Value::Object(applied), Value::Object(live)) = (&applied, live) else { return None };
        let diff = walk::diff_maps(Sides::CONFIG, self.ty, applied, live, |_| false);
        set::subtract(&mut fields, &diff.changed.unwrap_or_default());
        set::subtract(&mut fields, &diff.removed.unwrap_or_default());
        Some(fields)
    }

    /// Keeps the annotation of client-side applies up to date. upstream: lastAppliedUpdater.
    fn carry_on(&self, mut value: Value, config: &Value) -> Value {
        if self.writer.name != KUBECTL {
            return value;
        }
        let annotations = value.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
        let Some(Value::Object(annotations)) = annotations else { return value };
        if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
            return value;
        }
        let mut applied = config.clone();
        let own = applied.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
        if let Some(Value::Object(own)) = own {
            own.remove(LAST_APPLIED);
        }
        let text = format!("{}\n", set::go_json(&applied));
        annotations.insert(LAST_APPLIED.to_owned(), json!(text));
        let length: usize =
            annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if length > ANNOTATIONS_BYTES_MAX {
            annotations.remove(LAST_APPLIED);
        }
        value
    }
}

/// Every field in conflict, by manager.
fn describe(mut conflicts: Vec<(Manager, Set)>) -> Vec<Conflict> {
    conflicts.sort_by_key(|(manager, _)| manager.identifier());
    let conflicts = conflicts.into_iter().flat_map(|(manager, fields)| {
        let who = manager.describe();
        set::paths(&fields).into_iter().map(move |field| Conflict { manager: who.clone(), field })
    });
    conflicts.collect()
}
