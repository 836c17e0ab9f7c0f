//! What a Job's failure policy would do, found out before it runs.
//!
//! Nothing here is guessed from the text of the policy. [`table`] asks the policy itself about every exit code of every
//! container, every condition and every reason that can make a difference; [`findings`] are statements about that table;
//! [`timeline`] lets the real decisions run in a world of its own.

pub mod findings;
pub mod table;
pub mod timeline;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;
use windlass_api::{Gates, defaults};

use crate::job_facts::JobFacts;
use table::Table;

/// What a container is in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One of `containers`: the pod fails when it does.
    Main,
    /// One of `initContainers`: the pod fails when it does.
    Init,
    /// One of `initContainers` with `restartPolicy: Always`: ended when the others have, and no failure of it is the pod's.
    Sidecar,
}

/// A Job as it is analysed.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The Job, with its defaults.
    pub job: Job,
    /// What decisions know of it.
    pub facts: JobFacts,
    /// Its containers in the order in which a policy looks at them.
    pub containers: Vec<(String, Role)>,
    /// The raw `spec.backoffPolicy`, if that is the policy.
    pub draft: Option<Value>,
    /// `spec.podReplacementPolicy` is said, not only by default.
    pub says_replacement: bool,
}

impl Subject {
    /// The Job as an API server would store it. `draft` is the raw `spec.backoffPolicy`.
    pub fn new(job: &Job, draft: Option<&Value>, gates: &Gates) -> Self {
        let mut job = job.clone();
        let says_replacement = job.spec.as_ref().is_some_and(|spec| spec.pod_replacement_policy.is_some());
        defaults::job::apply_with(&mut job, gates);
        let facts = JobFacts::from_job(&job, draft, gates);
        let has_final = job.spec.as_ref().is_some_and(|spec| spec.pod_failure_policy.is_some());
        let draft = draft.filter(|_| facts.failure_policy.is_some() && !has_final).cloned();
        let containers = containers(&job);
        Self { job, facts, containers, draft, says_replacement }
    }

    /// The decision table of its policy; without a policy every failure counts.
    pub fn table(&self) -> Table {
        Table::new(self)
    }

    /// The field that holds the rules.
    pub fn rules_path(&self) -> &'static str {
        if self.draft.is_some() { "spec.backoffPolicy.rules" } else { "spec.podFailurePolicy.rules" }
    }
}

fn containers(job: &Job) -> Vec<(String, Role)> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let main = pod.into_iter().flat_map(|pod| &pod.containers).map(|c| (c.name.clone(), Role::Main));
    let init = pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten());
    main.chain(init.map(|c| (c.name.clone(), init_role(c)))).collect()
}

fn init_role(container: &Container) -> Role {
    if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }
}
