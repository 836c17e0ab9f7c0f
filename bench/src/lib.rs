//! Jobs and pods to measure with.

use jiff::Timestamp;
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

/// The status of a pod that runs.
pub fn running() -> PodStatus {
    PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() }
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

/// A Job in a world where every write succeeds at once. Like the driver, it keeps no whole pods.
pub struct World {
    job: Job,
    pods: Vec<NewPod>,
    view: JobView,
    settings: Settings,
    now: Timestamp,
    revision: u64,
}

impl World {
    /// The Job with all its pods running, and nothing to do.
    pub fn running(job: Job) -> Self {
        let facts = JobFacts::from_job(&job, None, &Gates::default());
        let mut world = Self {
            job,
            pods: Vec::new(),
            view: JobView::new(facts),
            settings: Settings::default(),
            now: "2026-01-01T00:01:00Z".parse().expect("a time"),
            revision: 1,
        };
        world.settle();
        for at in 0..world.pods.len() {
            let event = world.event(at, running());
            world.observe(&event);
        }
        world.settle();
        world
    }

    /// The event that pod number `at` has this status now: the pod as the watch brings it, freshly decoded.
    pub fn event(&mut self, at: usize, status: PodStatus) -> Pod {
        self.revision += 1;
        let mut pod = pod_body(&self.job, &self.pods[at]).expect("the template has labels");
        pod.metadata.uid = Some(format!("00000000-0000-4000-8000-{at:012x}"));
        pod.metadata.resource_version = Some(self.revision.to_string());
        pod.status = Some(status);
        pod
    }

    /// Takes an event in and decides: what is measured.
    pub fn react(&mut self, event: &Pod) -> usize {
        self.observe(event);
        decide(&self.view.observation(self.now, &self.settings)).stage.len()
    }

    fn observe(&mut self, event: &Pod) {
        self.view.observe_pod(PodFacts::from_pod(event, self.view.job()));
    }

    /// Performs decisions until there is nothing left to do.
    fn settle(&mut self) {
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

    fn perform(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Create(new) => {
                self.pods.push(new.clone());
                let pod = self.event(self.pods.len() - 1, PodStatus::default());
                Outcome::Pod(Box::new(PodFacts::from_pod(&pod, self.view.job())))
            }
            Action::WriteStatus(_) => {
                self.revision += 1;
                Outcome::Written(self.revision.to_string())
            }
            other => unreachable!("a Job that only starts needs no {other:?}"),
        }
    }
}
