//! What happens to an object, given its owners. Pure.

use windlass_job::Uid;

/// What became of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It is there.
    Solid,
    /// It is not, or another object has its name.
    Dangling,
    /// It is there until its dependents are gone.
    Waiting,
}

/// What to do with a dependent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Keep,
    /// Take these references away; another owner keeps it.
    Unlink(Vec<Uid>),
    /// Delete it, and all that depends on it first. `unblocks`: its own references must not block first, or a circle of
    /// owners would wait for itself.
    DeleteForeground { unblocks: bool },
    /// Delete it.
    Delete,
}

/// Decides on an object with at least one owner. `dependents_wait`: of its own dependents, whether each is waiting for its own.
pub(crate) fn decide(owners: &[(Uid, OwnerState)], dependents_wait: &[bool]) -> Action {
    let with = |state: OwnerState| owners.iter().filter(move |(_, one)| *one == state);
    if owners.is_empty() {
        return Action::Keep;
    }
    if with(OwnerState::Solid).next().is_some() {
        let gone = owners.iter().filter(|(_, state)| *state != OwnerState::Solid);
        let gone: Vec<Uid> = gone.map(|(uid, _)| uid.clone()).collect();
        return if gone.is_empty() { Action::Keep } else { Action::Unlink(gone) };
    }
    if with(OwnerState::Waiting).next().is_some() && !dependents_wait.is_empty() {
        return Action::DeleteForeground { unblocks: dependents_wait.contains(&true) };
    }
    Action::Delete
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Dangling, Solid, Waiting};
    use super::*;

    #[test]
    fn an_object_lives_as_long_as_one_owner_does() {
        let uid = |at: usize| Uid::new(&format!("owner-{at}"));
        let cases: [(&[OwnerState], &[bool], Action); 10] = [
            (&[], &[], Action::Keep),
            (&[Solid], &[], Action::Keep),
            (&[Solid, Dangling], &[], Action::Unlink(vec![uid(1)])),
            (&[Waiting, Solid, Dangling], &[true], Action::Unlink(vec![uid(0), uid(2)])),
            (&[Dangling], &[], Action::Delete),
            (&[Dangling, Dangling], &[false], Action::Delete),
            (&[Waiting], &[], Action::Delete),
            (&[Waiting], &[false], Action::DeleteForeground { unblocks: false }),
            (&[Waiting, Dangling], &[false, true], Action::DeleteForeground { unblocks: true }),
            (&[Waiting, Dangling], &[], Action::Delete),
        ];
        for (states, dependents, expected) in cases {
            let owners: Vec<_> = states.iter().enumerate().map(|(at, state)| (uid(at), *state)).collect();
            assert_eq!(decide(&owners, dependents), expected, "{states:?} {dependents:?}");
        }
    }
}
