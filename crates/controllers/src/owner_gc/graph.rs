//! Who owns whom: all objects by UID, and which of them need a look after a change. Pure.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use windlass_job::Uid;

/// UIDs of owners that are known to be gone. Forgetting one costs a request.
const ABSENT_MAX: usize = 500;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Uid,
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The owner's foreground deletion waits for this dependent.
    pub(crate) blocks: bool,
}

/// How far the deletion of an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    /// It has a deletion timestamp.
    pub(crate) is_deleting: bool,
    /// And waits until its dependents are gone.
    pub(crate) is_foreground: bool,
    /// And waits until its dependents are released.
    pub(crate) is_orphaning: bool,
}

/// An object as the graph knows it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) owners: Vec<Owner>,
    pub(crate) dependents: BTreeSet<Uid>,
    pub(crate) fate: Fate,
    /// Only known from what its dependents say.
    pub(crate) is_virtual: bool,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Task {
    /// See whether the object should be deleted, or its own deletion can go on.
    Attempt(Uid),
    /// Release the object's dependents.
    Orphan(Uid),
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: Absent,
}

impl Graph {
    pub(crate) fn get(&self, uid: &Uid) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The dependents whose references to `owner` keep it from going.
    pub(crate) fn blocking(&self, owner: &Uid) -> Vec<Uid> {
        let dependents = self.nodes.get(owner).into_iter().flat_map(|node| &node.dependents);
        dependents.filter(|dependent| self.blocks(dependent, owner)).cloned().collect()
    }

    fn blocks(&self, dependent: &Uid, owner: &Uid) -> bool {
        let owners = self.nodes.get(dependent).into_iter().flat_map(|node| &node.owners);
        owners.into_iter().any(|one| one.uid == *owner && one.blocks)
    }

    /// The owner is known to be gone.
    pub(crate) fn is_absent(&self, uid: &Uid) -> bool {
        self.absent.contains(uid)
    }

    /// UIDs of a kind, for the comparison with a new list.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> BTreeSet<Uid> {
        let is_it = |node: &Node| {
            !node.is_virtual && *node.place.api_version == *api_version && *node.place.kind == *kind
        };
        self.nodes.iter().filter(|(_, node)| is_it(node)).map(|(uid, _)| uid.clone()).collect()
    }

    /// An object was added or changed.
    pub(crate) fn observe(&mut self, uid: &Uid, place: Place, owners: Vec<Owner>, fate: Fate) -> Vec<Task> {
        let mut tasks = Vec::new();
        let old = self.nodes.get(uid).cloned();
        let old_owners = old.as_ref().map_or(&[][..], |node| &node.owners);
        for owner in old_owners.iter().filter(|old| !owners.iter().any(|new| new.uid == old.uid)) {
            self.unlink(uid, &owner.uid);
        }
        for old in old_owners.iter().filter(|old| old.blocks) {
            let still_blocks = owners.iter().any(|new| new.uid == old.uid && new.blocks);
            if !still_blocks && self.is_waiting(&old.uid) {
                tasks.push(Task::Attempt(old.uid.clone()));
            }
        }
        for owner in owners.iter().filter(|new| !old_owners.iter().any(|old| old.uid == new.uid)) {
            tasks.extend(self.link(uid, &place, owner));
        }
        let was_foreground = old.as_ref().is_some_and(|node| node.fate.is_foreground);
        let dependents = old.map(|node| node.dependents).unwrap_or_default();
        if fate.is_orphaning {
            tasks.push(Task::Orphan(uid.clone()));
        } else if fate.is_foreground && !was_foreground {
            tasks.extend(dependents.iter().cloned().map(Task::Attempt));
            tasks.push(Task::Attempt(uid.clone()));
        }
        self.nodes.insert(uid.clone(), Node { place, owners, dependents, fate, is_virtual: false });
        tasks
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, uid: &Uid) -> Vec<Task> {
        self.absent.insert(uid);
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut tasks: Vec<Task> = node.dependents.into_iter().map(Task::Attempt).collect();
        for owner in node.owners {
            if self.is_waiting(&owner.uid) {
                tasks.push(Task::Attempt(owner.uid.clone()));
            }
            self.unlink(uid, &owner.uid);
        }
        tasks
    }

    fn is_waiting(&self, uid: &Uid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.fate.is_foreground)
    }

    /// Puts the dependent under its owner. One that nobody saw yet must be looked for.
    fn link(&mut self, dependent: &Uid, place: &Place, owner: &Owner) -> Option<Task> {
        let Some(node) = self.nodes.get_mut(&owner.uid) else {
            let place = Place {
                api_version: Arc::clone(&owner.api_version),
                kind: Arc::clone(&owner.kind),
                namespace: place.namespace.clone(),
                name: Arc::clone(&owner.name),
            };
            let dependents = BTreeSet::from([dependent.clone()]);
            let fate = Fate::default();
            let node = Node { place, owners: Vec::new(), dependents, fate, is_virtual: true };
            self.nodes.insert(owner.uid.clone(), node);
            return Some(Task::Attempt(owner.uid.clone()));
        };
        node.dependents.insert(dependent.clone());
        if node.is_virtual {
            return Some(Task::Attempt(owner.uid.clone()));
        }
        let is_elsewhere = node.place.namespace.is_some() && node.place.namespace != place.namespace;
        let is_other = node.place.kind != owner.kind || node.place.name != owner.name;
        (is_elsewhere || is_other || node.fate.is_foreground).then(|| Task::Attempt(dependent.clone()))
    }

    /// A virtual owner lives by its dependents only.
    fn unlink(&mut self, dependent: &Uid, owner: &Uid) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        node.dependents.remove(dependent);
        if node.is_virtual && node.dependents.is_empty() {
            self.nodes.remove(owner);
        }
    }
}

/// The last owners that were found to be gone.
#[derive(Debug, Default)]
struct Absent {
    order: VecDeque<Uid>,
    known: BTreeSet<Uid>,
}

impl Absent {
    fn contains(&self, uid: &Uid) -> bool {
        self.known.contains(uid)
    }

    fn insert(&mut self, uid: &Uid) {
        if !self.known.insert(uid.clone()) {
            return;
        }
        self.order.push_back(uid.clone());
        if self.order.len() > ABSENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(text: &str) -> Uid {
        Uid::new(text)
    }

    fn place(kind: &str, name: &str) -> Place {
        let namespace = Some(Arc::from("ns"));
        Place { api_version: "v1".into(), kind: kind.into(), namespace, name: name.into() }
    }

    fn owner(name: &str, blocks: bool) -> Owner {
        Owner { uid: uid(name), api_version: "v1".into(), kind: "Owner".into(), name: name.into(), blocks }
    }

    fn fate(text: &str) -> Fate {
        Fate {
            is_deleting: !text.is_empty(),
            is_foreground: text == "foreground",
            is_orphaning: text == "orphan",
        }
    }

    fn see(graph: &mut Graph, name: &str, owners: &[Owner], how: &str) -> Vec<Task> {
        let kind = if owners.is_empty() { "Owner" } else { "Dependent" };
        graph.observe(&uid(name), place(kind, name), owners.to_vec(), fate(how))
    }

    fn attempt(name: &str) -> Task {
        Task::Attempt(uid(name))
    }

    #[test]
    fn a_dependent_of_a_known_owner_needs_no_look() {
        let mut graph = Graph::default();
        assert_eq!(see(&mut graph, "job", &[], ""), []);
        assert_eq!(see(&mut graph, "pod", &[owner("job", true)], ""), []);
        assert_eq!(see(&mut graph, "pod", &[owner("job", true)], ""), [], "nothing changed");
        assert_eq!(graph.blocking(&uid("job")), [uid("pod")]);
    }

    #[test]
    fn an_owner_that_nobody_saw_is_looked_for_once_and_lives_by_its_dependents() {
        let mut graph = Graph::default();
        assert_eq!(see(&mut graph, "pod", &[owner("job", true)], ""), [attempt("job")]);
        assert!(graph.get(&uid("job")).expect("it is known").is_virtual);
        assert_eq!(see(&mut graph, "pod", &[], ""), []);
        assert!(graph.get(&uid("job")).is_none());
    }

    #[test]
    fn a_seen_owner_takes_over_the_dependents_of_the_virtual_one() {
        let mut graph = Graph::default();
        see(&mut graph, "pod", &[owner("job", true)], "");
        assert_eq!(see(&mut graph, "job", &[], ""), []);
        let job = graph.get(&uid("job")).expect("it is known");
        assert!(!job.is_virtual);
        assert_eq!(job.dependents, BTreeSet::from([uid("pod")]));
    }

    #[test]
    fn dependents_of_an_owner_that_is_gone_need_a_look() {
        let mut graph = Graph::default();
        see(&mut graph, "job", &[], "");
        see(&mut graph, "a", &[owner("job", true)], "");
        see(&mut graph, "b", &[owner("job", false)], "");
        assert_eq!(graph.forget(&uid("job")), [attempt("a"), attempt("b")]);
        assert!(graph.is_absent(&uid("job")));
        assert!(!graph.is_absent(&uid("a")));
    }

    #[test]
    fn a_foreground_deletion_looks_at_all_dependents_once_and_again_when_one_is_gone_or_blocks_no_more() {
        let mut graph = Graph::default();
        see(&mut graph, "job", &[], "");
        see(&mut graph, "a", &[owner("job", true)], "");
        see(&mut graph, "b", &[owner("job", true)], "");
        let all = [attempt("a"), attempt("b"), attempt("job")];
        assert_eq!(see(&mut graph, "job", &[], "foreground"), all);
        assert_eq!(see(&mut graph, "job", &[], "foreground"), []);
        assert_eq!(graph.forget(&uid("a")), [attempt("job")]);
        assert_eq!(see(&mut graph, "b", &[owner("job", false)], ""), [attempt("job")]);
        assert_eq!(graph.blocking(&uid("job")), []);
        assert_eq!(see(&mut graph, "late", &[owner("job", true)], ""), [attempt("late")]);
    }

    #[test]
    fn an_orphaning_owner_releases_its_dependents() {
        let mut graph = Graph::default();
        see(&mut graph, "pod", &[owner("job", true)], "");
        assert_eq!(see(&mut graph, "job", &[], "orphan"), [Task::Orphan(uid("job"))]);
    }

    #[test]
    fn a_reference_across_namespaces_or_by_another_name_needs_a_look() {
        let mut graph = Graph::default();
        let elsewhere = Place { namespace: Some("other".into()), ..place("Owner", "job") };
        graph.observe(&uid("job"), elsewhere, Vec::new(), Fate::default());
        assert_eq!(see(&mut graph, "pod", &[owner("job", true)], ""), [attempt("pod")]);
        see(&mut graph, "other", &[], "");
        let misnamed = Owner { name: "another".into(), ..owner("other", true) };
        assert_eq!(see(&mut graph, "pod2", &[misnamed], ""), [attempt("pod2")]);
    }

    #[test]
    fn a_new_list_of_a_kind_is_compared_with_what_was_seen_of_it() {
        let mut graph = Graph::default();
        see(&mut graph, "job", &[], "");
        see(&mut graph, "pod", &[owner("unseen", true)], "");
        assert_eq!(graph.of_kind("v1", "Owner"), BTreeSet::from([uid("job")]));
    }

    #[test]
    fn only_the_last_owners_are_remembered_as_gone() {
        let mut absent = Absent::default();
        for number in 0..=ABSENT_MAX {
            absent.insert(&uid(&number.to_string()));
        }
        assert!(!absent.contains(&uid("0")));
        assert!(absent.contains(&uid("1")));
    }
}
