//! `metadata.managedFields`: who owns which fields, since when.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::{self, Set};

/// upstream: more entries of updates than this are put together, the oldest first.
const UPDATERS_MAX: usize = 10;
/// upstream: who owns what was put together.
const ANCIENT: &str = "ancient-changes";

/// How fields came to be owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns fields, but for the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

impl Manager {
    /// The text that upstream tells managers apart by, and orders them by.
    pub(crate) fn identifier(&self) -> String {
        let mut out = format!("{{\"manager\":{}", json!(self.name));
        out.push_str(&format!(",\"operation\":\"{}\"", self.operation.as_str()));
        if self.operation == Operation::Update {
            out.push_str(&format!(",\"apiVersion\":{}", json!(self.api_version)));
        }
        if !self.subresource.is_empty() {
            out.push_str(&format!(",\"subresource\":{}", json!(self.subresource)));
        }
        out.push('}');
        out
    }

    /// As upstream names it in a conflict.
    pub(crate) fn describe(&self) -> String {
        let mut out = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: Manager,
    pub(crate) time: Option<String>,
    pub(crate) fields: Set,
}

/// All entries of an object, by the identifiers of their managers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries(BTreeMap<String, Entry>);

/// What a request says about `managedFields`.
#[derive(Debug)]
pub(crate) enum Given {
    /// Nothing that we understand.
    Nothing,
    /// Forget them.
    Reset,
    /// These.
    Entries(Entries),
}

impl Given {
    /// Reads what a request gives.
    pub(crate) fn parse(list: Option<&Value>) -> Self {
        let Some(Value::Array(list)) = list else { return Self::Nothing };
        match list.as_slice() {
            [] => Self::Reset,
            [Value::Object(only)] if only.is_empty() => Self::Reset,
            list => match Entries::parse(list) {
                Ok(entries) => Self::Entries(entries),
                Err(_) => Self::Nothing,
            },
        }
    }
}

impl Entries {
    /// Reads `managedFields` that a client gives. The error is what is wrong with it.
    pub(crate) fn parse(list: &[Value]) -> Result<Self, String> {
        Self::read(list, set::canonical)
    }

    fn read(list: &[Value], set: fn(&Set) -> Result<Set, String>) -> Result<Self, String> {
        let mut entries = Self::default();
        for (place, item) in list.iter().enumerate() {
            let text = |field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType").as_str() {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {place}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {place}")),
            }
            let fields = match item.get("fieldsV1") {
                Some(Value::Object(fields)) => set(fields)?,
                Some(_) => return Err(format!("fieldsV1 of entry {place} is not a map")),
                None => Set::new(),
            };
            let manager = Manager {
                name: text("manager"),
                operation,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let time = item.get("time").and_then(Value::as_str).map(str::to_owned);
            // upstream: of two entries of one manager the last counts
            entries.insert(Entry { manager, time, fields });
        }
        Ok(entries)
    }

    /// Reads what is stored; what can't be read is nobody's.
    pub(crate) fn stored(list: Option<&Value>) -> Self {
        let list = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        // What we have written is written as we write it.
        Self::read(list, |fields| Ok(fields.clone())).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    /// Adds an entry, in place of that of its manager.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.0.insert(entry.manager.identifier(), entry);
    }

    /// Takes the entry of a manager out.
    pub(crate) fn take(&mut self, manager: &Manager) -> Option<Entry> {
        self.0.remove(&manager.identifier())
    }

    /// Forgets what is owned in another version. upstream: of a version that is not served any more.
    pub(crate) fn keep_version(&mut self, api_version: &str) {
        self.0.retain(|_, entry| entry.manager.api_version == api_version);
    }

    /// Forgets when fields were written.
    pub(crate) fn without_times(mut self) -> Self {
        self.0.values_mut().for_each(|entry| entry.time = None);
        self
    }

    /// Takes fields from everybody; who has none left is not mentioned any more.
    pub(crate) fn subtract(&mut self, fields: &Set) {
        self.0.values_mut().for_each(|entry| set::subtract(&mut entry.fields, fields));
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }

    /// Gives fields to somebody who updated the object, now.
    pub(crate) fn add(&mut self, manager: Manager, fields: Set, now: &str) {
        let mut all = fields;
        if let Some(entry) = self.take(&manager) {
            set::unite(&mut all, entry.fields);
        }
        self.insert(Entry { manager, time: Some(now.to_owned()), fields: all });
        self.cap();
    }

    /// upstream: capUpdateManagers. The oldest updates become one entry a version.
    fn cap(&mut self) {
        let mut updaters: Vec<(String, String, Manager)> = self
            .0
            .iter()
            .filter(|(_, entry)| entry.manager.operation == Operation::Update)
            .map(|(identifier, entry)| {
                (entry.time.clone().unwrap_or_default(), identifier.clone(), entry.manager.clone())
            })
            .collect();
        if updaters.len() <= UPDATERS_MAX {
            return;
        }
        updaters.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let mut left = updaters.len();
        let mut firsts: Vec<Manager> = Vec::new();
        for (_, _, manager) in updaters {
            if left <= UPDATERS_MAX {
                return;
            }
            let first = firsts.iter().position(|first| first.api_version == manager.api_version);
            let Some(first) = first else {
                firsts.push(manager);
                continue;
            };
            let bucket = Manager { name: ANCIENT.to_owned(), subresource: String::new(), ..manager.clone() };
            let Some(merged) = self.take(&manager) else { continue };
            let mut fields = merged.fields;
            let older = self.take(&bucket).or_else(|| self.take(&firsts[first]));
            if let Some(older) = older {
                set::unite(&mut fields, older.fields);
            }
            self.insert(Entry { manager: bucket, time: merged.time, fields });
            left -= 1;
        }
    }

    /// As objects carry them; `None` when there are none.
    pub(crate) fn into_json(self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<Entry> = self.0.into_values().collect();
        entries.sort_by_cached_key(|entry| {
            let Manager { name, operation, api_version, subresource } = entry.manager.clone();
            (operation, entry.time.clone().unwrap_or_default(), name, api_version, subresource)
        });
        Some(Value::Array(entries.into_iter().map(Entry::into_json).collect()))
    }
}

impl Entry {
    fn into_json(self) -> Value {
        let mut out = Map::new();
        let mut put = |field: &str, value: Value| out.insert(field.to_owned(), value);
        let Manager { name, operation, api_version, subresource } = self.manager;
        if !name.is_empty() {
            put("manager", json!(name));
        }
        put("operation", json!(operation.as_str()));
        put("apiVersion", json!(api_version));
        put("fieldsType", json!("FieldsV1"));
        put("fieldsV1", Value::Object(self.fields));
        if let Some(time) = self.time {
            put("time", json!(time));
        }
        if !subresource.is_empty() {
            put("subresource", json!(subresource));
        }
        Value::Object(out)
    }
}
