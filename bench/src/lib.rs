//! Jobs and pods to measure with.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_job::decision::{Action, NewPod, Wake};
use windlass_job::pod_body::pod_body;
use windlass_job::{JobFacts, JobView, Outcome, PodFacts, Settings, decide};

const JOB_UID: &str = "5b7f3a52-2d7d-4a3e-9d51-000000000000";

/// An Indexed Job of so many indexes, all at once.
pub fn indexed_job(completions: u32) -> Job {
    from(json!({
        "metadata": {
            "name": "bench", "namespace": "default", "uid": JOB_UID, "resourceVersion": "1", "generation": 1
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": completions,
            "parallelism": completions,
            "backoffLimit": 6,
            "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": JOB_UID } },
            "template": {
                "metadata": { "labels": { "batch.kubernetes.io/controller-uid": JOB_UID } },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "host" }] }
            }
        }
    }))
}

/// A pod status with one container that ended with this code.
pub fn ended(code: i32) -> PodStatus {
    from(json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:05Z" }],
        "containerStatuses": [{
            "name": "main", "image": "host", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "finishedAt": "2026-01-01T00:00:05Z" } }
        }]
    }))
}

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the benchmark's own objects are well-formed")
}

/// A Job in a world where every write succeeds at once.
pub struct World {
    job: Job,
    pods: BTreeMap<String, Pod>,
    view: JobView,
    settings: Settings,
    now: Timestamp,
    revision: u64,
}

impl World {
    /// The Job with all its pods running, and nothing to do.
    pub fn running(job: Job) -> Self {
        let facts = JobFacts::from_job(&job, None, &Gates::default());
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 56);
        let mut world = Self {
            job,
            pods: BTreeMap::new(),
            view: JobView::new(facts),
            settings: Settings::default(),
            now,
            revision: 1,
        };
        world.settle();
        let names: Vec<String> = world.pods.keys().cloned().collect();
        for name in &names {
            world.set_status(name, from(json!({ "phase": "Running" })));
        }
        world.settle();
        world
    }

    /// The names of all pods.
    pub fn pod_names(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    /// One pod event: the pod as the watch brings it, freshly decoded.
    pub fn event(&mut self, name: &str, status: PodStatus) -> Pod {
        self.revision += 1;
        let pod = self.pods.get_mut(name).expect("the pod exists");
        pod.metadata.resource_version = Some(self.revision.to_string());
        pod.status = Some(status);
        pod.clone()
    }

    /// Takes an event in and decides: what is measured.
    pub fn react(&mut self, event: &Pod) -> usize {
        self.view.observe_pod(PodFacts::from_pod(event, self.view.job()));
        decide(&self.view.observation(self.now, &self.settings)).stage.len()
    }

    /// Performs decisions until there is nothing left to do.
    pub fn settle(&mut self) {
        loop {
            let decision = decide(&self.view.observation(self.now, &self.settings));
            for action in &decision.stage {
                let outcome = self.perform(action);
                self.view.fold(action, outcome, self.now, &self.settings);
            }
            match decision.wake {
                Wake::Again => {}
                Wake::At(time) => self.now = time,
                Wake::Settled => return,
            }
        }
    }

    fn set_status(&mut self, name: &str, status: PodStatus) {
        let event = self.event(name, status);
        self.view.observe_pod(PodFacts::from_pod(&event, self.view.job()));
    }

    fn perform(&mut self, action: &Action) -> Outcome {
        self.revision += 1;
        match action {
            Action::Create(new) => self.create(new),
            Action::Release(pod) => {
                let stored = self.pods.get_mut(&pod.name).expect("the pod exists");
                stored.metadata.finalizers = None;
                stored.metadata.resource_version = Some(self.revision.to_string());
                Outcome::Pod(Box::new(PodFacts::from_pod(stored, self.view.job())))
            }
            Action::WriteStatus(_) => Outcome::Written(self.revision.to_string()),
            Action::Adopt(_)
            | Action::Disown(_)
            | Action::Delete(_)
            | Action::Remove(..)
            | Action::Emit(_) => Outcome::Done,
        }
    }

    fn create(&mut self, new: &NewPod) -> Outcome {
        let mut pod = pod_body(&self.job, new).expect("the template has labels");
        pod.metadata.uid = Some(format!("00000000-0000-4000-8000-{:012x}", self.revision));
        pod.metadata.resource_version = Some(self.revision.to_string());
        let facts = PodFacts::from_pod(&pod, self.view.job());
        self.pods.insert(new.name.clone(), pod);
        Outcome::Pod(Box::new(facts))
    }
}
