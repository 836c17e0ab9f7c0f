//! Scenarios: a Job, what becomes of its pods, what people do to it meanwhile, and how it must end.
//!
//! ```text
//!  catalogue, random ──> Scenario ──> play ──────────────> Record ──> compare ──> table
//!                                      │  ^
//!                deeds of kubelets,    │  │ what the API server shows (mirror), until it is settled
//!                people and collectors v  │
//!                                  API server <──> a controller: ours, or the one built into Kubernetes
//! ```
//!
//! A scenario is written once and played on several bodies. Nothing in it depends on time: each step waits until the
//! controller has nothing left to do ([`settled`]), so that a quick controller and a slow one see the same history.
//! Containers end "an hour ago", so that no back-off is ever waited for, unless a scenario wants that.

pub mod body;
pub mod catalogue;
pub mod compare;
pub mod crashes;
pub mod gates;
pub mod kubelet;
pub mod mirror;
pub mod play;
pub mod random;
pub mod record;
pub mod settled;
mod tap;

use serde_json::{Value, json};

/// The name of the Job that a scenario is about.
pub const JOB: &str = "job";

/// Everything is wanted, not only what fits the test command: `WINDLASS_CONFORMANCE=full`.
pub fn is_full() -> bool {
    std::env::var("WINDLASS_CONFORMANCE").is_ok_and(|what| what == "full")
}

/// Only scenarios whose name contains `WINDLASS_CONFORMANCE_ONLY`, if that is set.
pub fn only(mut scenarios: Vec<Scenario>) -> Vec<Scenario> {
    if let Ok(part) = std::env::var("WINDLASS_CONFORMANCE_ONLY") {
        scenarios.retain(|scenario| scenario.name.contains(&part));
    }
    scenarios
}

/// A Job's history and its end.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short, unique, fit for a namespace.
    pub name: String,
    /// What it proves: a test of Kubernetes, a story, an issue or a rule.
    pub covers: &'static str,
    /// The Job.
    pub job: Value,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// The Job's status at the end, as [`record::summary`] writes it; `None` if only the bodies are compared.
    pub ends: Option<&'static str>,
}

/// Which pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The n-th pod that was ever seen, counted from 0.
    Nth(usize),
    /// The pod of an index, and which attempt, counted from 0.
    Index(u32, usize),
    /// All that are active.
    Active,
    /// All that are being deleted and have not ended.
    Terminating,
    /// One of the active ones, in an order that does not depend on names; none if there are none.
    SomeActive(usize),
    /// One of those that are being deleted and have not ended, in the same order.
    SomeTerminating(usize),
}

/// What happens to a pod.
#[derive(Clone, Debug)]
pub enum Deed {
    /// It gets a node, runs and is ready.
    Run,
    /// It runs, is not ready, and its container was restarted so often.
    Restarts(u32),
    /// Its container ends.
    Exit(i32),
    /// Its containers fail at this moment: the next pod has to wait.
    FailNow,
    /// Its containers end: names and exit codes.
    Exits(&'static [(&'static str, i32)]),
    /// It fails because of a disruption: `DisruptionTarget` with this reason, and this exit code.
    Disrupted(&'static str, i32),
    /// Its status becomes what this says.
    Status(Value),
    /// Somebody deletes it.
    Delete,
    /// Somebody deletes it, without grace.
    ForceDelete,
    /// It was deleted; its kubelet ends it with this exit code and removes it.
    End(i32),
    /// Its node is lost: it is deleted for that, nobody ends it, and in the end it is declared failed and removed.
    LoseNode,
    /// Somebody changes it: a merge patch.
    Patch(Value),
}

/// What becomes of a deleted Job's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// One step of a scenario. It is taken when the Job is settled.
#[derive(Clone, Debug)]
pub enum Step {
    /// These things happen, at once.
    Pods(Vec<(Who, Deed)>),
    /// The Job is changed: a merge patch.
    Edit(Value),
    /// A change that the API server refuses with a message that contains this.
    Refused(Value, &'static str),
    /// The Job's status is changed by somebody else: a merge patch.
    EditStatus(Value),
    /// The Job is deleted, and the garbage collector does its part.
    Delete(Propagation),
    /// The Job is made (again).
    Make(Value),
    /// Somebody makes a pod.
    MakePod(Value),
    /// The status is this, as [`record::summary`] writes it, and stays.
    Expect(&'static str),
    /// The status becomes this, whether it stays or not.
    Shows(&'static str),
    /// The condition becomes true.
    Has(&'static str),
    /// A step that does not wait until the Job is settled.
    Meanwhile(Box<Step>),
    /// There are so many pods that are not gone.
    Count(usize),
    /// Another Job comes, runs and completes: whatever the controller wanted to do before, it has done.
    Pass,
    /// The controller is stopped: killed, not asked.
    Stop,
    /// The controller is started.
    Start,
    /// The controller is started with features switched: `name=false`.
    StartWith(&'static str),
    /// Active pods succeed and deleted ones end until the Job is finished.
    Finish,
    /// The same, one pod at a time.
    FinishOneByOne,
}

/// A scenario about a Job with one container; `spec` is merged over its spec.
pub fn scenario(name: &str, covers: &'static str, spec: Value) -> Scenario {
    Scenario { name: name.to_owned(), covers, job: job(spec), steps: Vec::new(), ends: None }
}

/// A Job with one container; `spec` is merged over its spec.
pub fn job(spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}],
        }}},
    });
    merge(&mut job["spec"], spec);
    job
}

/// An Indexed Job.
pub fn indexed(parallelism: u32, completions: u32, rest: Value) -> Value {
    let mut spec =
        json!({"completionMode": "Indexed", "parallelism": parallelism, "completions": completions});
    merge(&mut spec, rest);
    spec
}

/// A Job that is not Indexed.
pub fn runs(parallelism: u32, completions: u32, rest: Value) -> Value {
    let mut spec = json!({"parallelism": parallelism, "completions": completions});
    merge(&mut spec, rest);
    spec
}

/// The n-th pod.
pub fn nth(n: usize) -> Who {
    Who::Nth(n)
}

/// The first pod of an index.
pub fn index(index: u32) -> Who {
    Who::Index(index, 0)
}

/// A later pod of an index.
pub fn again(index: u32, attempt: usize) -> Who {
    Who::Index(index, attempt)
}

impl Scenario {
    /// Merges into the Job itself.
    pub fn with(mut self, patch: Value) -> Self {
        merge(&mut self.job, patch);
        self
    }

    /// Adds a step.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Something happens to a pod.
    pub fn pod(self, who: Who, deed: Deed) -> Self {
        self.step(Step::Pods(vec![(who, deed)]))
    }

    /// Things happen to pods, at once.
    pub fn pods(self, deeds: impl IntoIterator<Item = (Who, Deed)>) -> Self {
        self.step(Step::Pods(deeds.into_iter().collect()))
    }

    /// The first `count` pods run.
    pub fn run(self, count: usize) -> Self {
        self.pods((0..count).map(|n| (nth(n), Deed::Run)))
    }

    /// The spec is changed.
    pub fn edit(self, spec: Value) -> Self {
        self.step(Step::Edit(json!({"spec": spec})))
    }

    /// The status must be this.
    pub fn expect(self, summary: &'static str) -> Self {
        self.step(Step::Expect(summary))
    }

    /// A step that does not wait until the Job is settled.
    pub fn meanwhile(self, step: Step) -> Self {
        self.step(Step::Meanwhile(Box::new(step)))
    }

    /// All pods that are active end well.
    pub fn succeed(self) -> Self {
        self.pod(Who::Active, Deed::Exit(0))
    }

    /// The controller is killed and started again.
    pub fn restart(self) -> Self {
        self.step(Step::Stop).step(Step::Start)
    }

    /// The kubelets end all pods that were deleted.
    pub fn end_terminating(self) -> Self {
        self.pod(Who::Terminating, Deed::End(143))
    }

    /// How it ends.
    pub fn ends(mut self, summary: &'static str) -> Self {
        self.ends = Some(summary);
        self
    }

    /// The controller is stopped and started in it.
    pub fn has_restarts(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Stop))
    }
}

/// RFC 7386, but for null, which is kept.
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The text at a JSON pointer.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer; 0 if there is none.
pub(crate) fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// The list at a JSON pointer.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
