//! What a try costs, in upstream's terms: which plugins were asked at which extension point, and how long it took.
//!
//! Decisions only say what they are about to do. Who measures is their caller's business; mostly nobody does.

use crate::fit::Filter;

/// When plugins are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before nodes are looked at.
    PreFilter,
    /// For each node: whether the pod may go there.
    Filter,
    /// After no node did: whether somebody can leave.
    PostFilter,
    /// Which node is the best. All nodes at once.
    Score,
    /// The choice is written.
    Bind,
}

impl Point {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::Score => "Score",
            Self::Bind => "Bind",
        }
    }
}

/// Whoever has a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// One that says which nodes do.
    Filter(Filter),
    /// The one that likes CPU and memory to be used to the same degree.
    Balance,
    /// The one that makes room.
    Preemption,
    /// The one that binds.
    Binder,
}

impl Plugin {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter(filter) => filter.name(),
            Self::Balance => "NodeResourcesBalancedAllocation",
            Self::Preemption => "DefaultPreemption",
            Self::Binder => "DefaultBinder",
        }
    }
}

/// What a plugin, or all of a point, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Go on.
    Success,
    /// No, unless somebody leaves.
    Unschedulable,
    /// No, whoever leaves.
    Unresolvable,
    /// Nothing to say about this pod.
    Skip,
    /// It could not be done.
    Error,
}

impl Code {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable => "Unschedulable",
            Self::Unresolvable => "UnschedulableAndUnresolvable",
            Self::Skip => "Skip",
            Self::Error => "Error",
        }
    }
}

/// Sees what is asked.
pub trait Meter {
    /// All plugins of a point are asked.
    fn point<T>(
        &mut self,
        point: Point,
        ask: impl FnOnce(&mut Self) -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T;

    /// One plugin is asked.
    fn plugin<T>(
        &mut self,
        point: Point,
        plugin: Plugin,
        ask: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T;
}

/// Nobody measures.
#[derive(Clone, Copy, Debug)]
pub struct Unmetered;

impl Meter for Unmetered {
    fn point<T>(&mut self, _: Point, ask: impl FnOnce(&mut Self) -> T, _: impl FnOnce(&T) -> Code) -> T {
        ask(self)
    }

    fn plugin<T>(&mut self, _: Point, _: Plugin, ask: impl FnOnce() -> T, _: impl FnOnce(&T) -> Code) -> T {
        ask()
    }
}
