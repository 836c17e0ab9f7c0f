//! Objects of one kind, by name, and those who want to hear of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Namespace and name. Cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

/// As Kubernetes writes it: `namespace/name`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object in a table.
pub(crate) trait Row: Send + Sync + 'static {
    fn key(&self) -> Key;
    fn uid(&self) -> &str;
    /// What objects can be asked for by, besides their names.
    fn group(&self) -> Option<&Arc<str>> {
        None
    }
}

/// What happened to an object: new, changed, or gone.
pub(crate) struct Change<'a, R> {
    pub(crate) old: Option<&'a Arc<R>>,
    pub(crate) new: Option<&'a Arc<R>>,
}

type Listener<R> = Box<dyn Fn(&Change<'_, R>) + Send>;

/// All objects of a kind.
pub(crate) struct Table<R> {
    state: Mutex<State<R>>,
    is_listed: watch::Sender<bool>,
}

struct State<R> {
    rows: BTreeMap<Key, Arc<R>>,
    groups: BTreeMap<Arc<str>, BTreeSet<Key>>,
    /// What a list that is under way has brought.
    seen: Option<BTreeSet<Key>>,
    listeners: Vec<Listener<R>>,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        let state =
            State { rows: BTreeMap::new(), groups: BTreeMap::new(), seen: None, listeners: Vec::new() };
        Self { state: Mutex::new(state), is_listed: watch::Sender::new(false) }
    }
}

impl<R: Row> Table<R> {
    /// Tells of everything that is there, and of all changes from now on. Called while the table is locked: the listener
    /// may not ask it anything.
    pub(crate) fn listen(&self, listener: impl Fn(&Change<'_, R>) + Send + 'static) {
        let mut state = self.state.lock();
        state.rows.values().for_each(|row| listener(&Change { old: None, new: Some(row) }));
        state.listeners.push(Box::new(listener));
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<R>> {
        self.state.lock().rows.get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<R>> {
        self.state.lock().rows.values().cloned().collect()
    }

    /// All in a namespace.
    pub(crate) fn within(&self, namespace: &Arc<str>) -> Vec<Arc<R>> {
        let first = Key { namespace: Arc::clone(namespace), name: "".into() };
        let state = self.state.lock();
        let rows = state.rows.range(first..).take_while(|(key, _)| key.namespace == *namespace);
        rows.map(|(_, row)| Arc::clone(row)).collect()
    }

    pub(crate) fn in_group(&self, group: &str) -> Vec<Arc<R>> {
        let state = self.state.lock();
        let keys = state.groups.get(group).into_iter().flatten();
        keys.filter_map(|key| state.rows.get(key)).cloned().collect()
    }

    pub(crate) fn apply(&self, row: R) {
        self.state.lock().apply(row);
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.state.lock().remove(key);
    }

    /// A list begins: what it does not bring is gone.
    pub(crate) fn begin_list(&self) {
        self.state.lock().seen = Some(BTreeSet::new());
    }

    pub(crate) fn end_list(&self) {
        let mut state = self.state.lock();
        if let Some(seen) = state.seen.take() {
            let gone: Vec<Key> = state.rows.keys().filter(|key| !seen.contains(key)).cloned().collect();
            gone.iter().for_each(|key| state.remove(key));
        }
        drop(state);
        self.is_listed.send_replace(true);
    }

    /// Waits for the end of the first list; false if cancelled before.
    pub(crate) async fn is_listed(&self, cancel: &CancellationToken) -> bool {
        let mut is_listed = self.is_listed.subscribe();
        tokio::select! {
            () = cancel.cancelled() => false,
            listed = is_listed.wait_for(|is_listed| *is_listed) => listed.is_ok(),
        }
    }
}

impl<R: Row> State<R> {
    fn apply(&mut self, row: R) {
        let key = row.key();
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone());
        }
        // Another object of the same name: the old one's end was missed.
        if self.rows.get(&key).is_some_and(|old| old.uid() != row.uid()) {
            self.remove(&key);
        }
        let row = Arc::new(row);
        let old = self.rows.insert(key.clone(), Arc::clone(&row));
        let (from, to) = (old.as_ref().and_then(|old| old.group()), row.group());
        if from != to {
            if let Some(group) = from {
                self.leave(group, &key);
            }
            if let Some(group) = to {
                self.groups.entry(Arc::clone(group)).or_default().insert(key);
            }
        }
        self.tell(&Change { old: old.as_ref(), new: Some(&row) });
    }

    fn remove(&mut self, key: &Key) {
        let Some(old) = self.rows.remove(key) else { return };
        if let Some(group) = old.group() {
            self.leave(group, key);
        }
        self.tell(&Change { old: Some(&old), new: None });
    }

    fn leave(&mut self, group: &Arc<str>, key: &Key) {
        if let Some(keys) = self.groups.get_mut(group) {
            keys.remove(key);
            if keys.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    fn tell(&self, change: &Change<'_, R>) {
        self.listeners.iter().for_each(|listener| listener(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Thing(&'static str, &'static str, Option<Arc<str>>);

    impl Row for Thing {
        fn key(&self) -> Key {
            Key::new("ns", self.0)
        }

        fn uid(&self) -> &str {
            self.1
        }

        fn group(&self) -> Option<&Arc<str>> {
            self.2.as_ref()
        }
    }

    fn heard(table: &Table<Thing>) -> Arc<Mutex<Vec<String>>> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let says = Arc::clone(&heard);
        table.listen(move |change| {
            let name = |one: Option<&Arc<Thing>>| one.map_or("-".to_owned(), |one| one.1.to_owned());
            says.lock().push(format!("{} {}", name(change.old), name(change.new)));
        });
        heard
    }

    #[test]
    fn listeners_hear_of_what_is_there_and_of_each_change() {
        let table = Table::default();
        table.apply(Thing("a", "1", None));
        let heard = heard(&table);
        table.apply(Thing("b", "2", None));
        table.apply(Thing("b", "2", None));
        table.remove(&Key::new("ns", "a"));
        table.remove(&Key::new("ns", "never"));
        assert_eq!(*heard.lock(), ["- 1", "- 2", "2 2", "1 -"]);
    }

    #[test]
    fn what_a_new_list_does_not_bring_is_gone_and_another_of_the_name_is_new() {
        let table = Table::default();
        ["a", "b"].into_iter().for_each(|name| table.apply(Thing(name, name, None)));
        let heard = heard(&table);
        table.begin_list();
        table.apply(Thing("b", "other", None));
        table.end_list();
        assert_eq!(heard.lock()[2..], ["b -", "- other", "a -"]);
        assert_eq!(table.all().len(), 1);
    }

    #[test]
    fn objects_are_found_by_the_group_they_are_in_now() {
        let table = Table::default();
        table.apply(Thing("a", "1", None));
        table.apply(Thing("b", "2", Some("x".into())));
        table.apply(Thing("a", "1", Some("x".into())));
        let names = |group: &str| table.in_group(group).iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(names("x"), ["a", "b"]);
        table.apply(Thing("b", "2", Some("y".into())));
        table.remove(&Key::new("ns", "a"));
        assert_eq!((names("x"), names("y")), (vec![], vec!["b"]));
    }

    #[test]
    fn a_namespace_ends_where_the_next_begins() {
        let table = Table::default();
        table.apply(Thing("a", "1", None));
        let count = |namespace: &str| table.within(&namespace.into()).len();
        assert_eq!((count("ns"), count("n"), count("nsx")), (1, 0, 0));
    }
}
