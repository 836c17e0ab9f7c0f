//! A Job on a bench: the truth that a server would hold, the view that a controller would have, and a log of every
//! write between them.
//!
//! Pods that the Job makes are called `p0`, `p1`, … in the order of their creation, those of index 3 `3.0`, `3.1`, ….

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use windlass_api::{Gates, names};
use windlass_job::decision::{Kind, NewPod, PodRef, StatusWrite};
use windlass_job::pod_body::{owner_reference, pod_body};
use windlass_job::status_body::status_patch;
use windlass_job::{Action, Decision, JobFacts, JobView, Outcome, PodFacts, Settings, Uid, Wake, decide};

use super::build::{JobBuilder, PodBuilder, at, merge};

/// One Job, its pods and its controller.
pub struct Bench {
    /// The clock.
    pub now: Timestamp,
    /// How the controller is set up. Gauges are written at once, so that a log shows all of them.
    pub settings: Settings,
    /// The features that are on.
    pub gates: Gates,
    /// The raw draft policy of the Job.
    pub draft: Option<Value>,
    /// The last decision.
    pub last: Option<Decision>,
    job: Value,
    pods: BTreeMap<String, Value>,
    view: JobView,
    revision: u64,
    made: BTreeMap<String, u32>,
    log: Vec<String>,
    broken: VecDeque<Kind>,
}

impl Bench {
    /// A Job that is there from second 0 on.
    pub fn new(job: JobBuilder) -> Self {
        Self::with(job, Gates::default())
    }

    /// The same with other features.
    pub fn with(job: JobBuilder, gates: Gates) -> Self {
        let settings = Settings { gauge_spacing: SignedDuration::ZERO, ..Settings::default() };
        let facts = JobFacts::from_job(&job.build(), None, &gates);
        Self {
            now: at(0),
            settings,
            gates,
            draft: None,
            last: None,
            job: job.0,
            pods: BTreeMap::new(),
            view: JobView::new(facts),
            revision: 100,
            made: BTreeMap::new(),
            log: Vec::new(),
            broken: VecDeque::new(),
        }
    }

    /// A Job with the draft's policy.
    pub fn with_draft(job: JobBuilder, draft: Value) -> Self {
        let gates = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
        let mut bench = Self::with(job, gates);
        bench.draft = Some(draft);
        bench.restart();
        bench
    }

    /// Adds a pod that somebody made.
    pub fn add(&mut self, pod: PodBuilder) -> &mut Self {
        let uid = pod.0["metadata"]["uid"].as_str().expect("a uid").to_owned();
        self.pods.insert(uid.clone(), pod.0);
        self.publish(&uid);
        self
    }

    /// Adds a pod that the controller has not seen.
    pub fn add_unseen(&mut self, pod: PodBuilder) -> &mut Self {
        let uid = pod.0["metadata"]["uid"].as_str().expect("a uid").to_owned();
        self.pods.insert(uid, pod.0);
        self
    }

    /// Changes a pod, as its node or a user would, and lets the watch show it.
    pub fn pod(&mut self, uid: &str, change: impl FnOnce(PodBuilder) -> PodBuilder) -> &mut Self {
        let old = self.pods.remove(uid).unwrap_or_else(|| panic!("there is no pod {uid}"));
        self.pods.insert(uid.to_owned(), change(PodBuilder(old)).0);
        self.publish(uid);
        self
    }

    /// Changes the Job, as a user would, and lets the watch show it.
    pub fn edit(&mut self, change: impl FnOnce(JobBuilder) -> JobBuilder) -> &mut Self {
        self.meddle(change).show_job()
    }

    /// Changes the Job behind the controller's back: the watch is late.
    pub fn meddle(&mut self, change: impl FnOnce(JobBuilder) -> JobBuilder) -> &mut Self {
        self.job = change(JobBuilder(self.job.take())).0;
        self.revision += 1;
        self.job["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self
    }

    /// The watch shows the Job.
    pub fn show_job(&mut self) -> &mut Self {
        let facts = self.facts();
        self.view.observe_job(facts);
        self
    }

    /// These pods run, and are ready.
    pub fn start(&mut self, uids: &[&str]) -> &mut Self {
        let now = self.seconds();
        for uid in uids {
            self.pod(uid, |pod| pod.running().ready(now));
        }
        self
    }

    /// The pod ends now, with this exit code.
    pub fn exit(&mut self, uid: &str, code: i32) -> &mut Self {
        let now = self.seconds();
        self.pod(uid, |pod| pod.running().exited(code, now))
    }

    /// The pod fails now.
    pub fn fail(&mut self, uid: &str) -> &mut Self {
        self.exit(uid, 1)
    }

    /// The pod succeeds now.
    pub fn succeed(&mut self, uid: &str) -> &mut Self {
        self.exit(uid, 0)
    }

    /// The pod is disrupted and fails now: no exit code, a condition.
    pub fn disrupt(&mut self, uid: &str) -> &mut Self {
        let now = self.seconds();
        self.pod(uid, |pod| {
            let pod = pod.running().phase("Failed").condition_at("Ready", "False", now);
            pod.condition(names::DISRUPTION_TARGET, "True")
        })
    }

    /// A user deletes the pod.
    pub fn delete(&mut self, uid: &str) -> &mut Self {
        self.request_deletion(uid);
        if self.pods.contains_key(uid) {
            self.publish(uid)
        } else {
            self.view.forget_pod(&Uid::new(uid))
        }
        self
    }

    /// The pod is gone, whatever its finalizers say.
    pub fn vanish(&mut self, uid: &str) -> &mut Self {
        self.pods.remove(uid).unwrap_or_else(|| panic!("there is no pod {uid}"));
        self.view.forget_pod(&Uid::new(uid));
        self
    }

    /// The next writes of these kinds fail.
    pub fn break_next(&mut self, kinds: &[Kind]) -> &mut Self {
        self.broken.extend(kinds);
        self
    }

    /// A new controller, which knows only what the server knows.
    pub fn restart(&mut self) -> &mut Self {
        self.view = JobView::new(self.facts());
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        uids.iter().for_each(|uid| self.show(uid));
        self
    }

    /// A new controller with other features.
    pub fn restart_with(&mut self, gates: Gates) -> &mut Self {
        self.gates = gates;
        self.restart()
    }

    /// Time passes.
    pub fn advance(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> i64 {
        self.now.as_second() - at(0).as_second()
    }

    /// One decision, which is not carried out. Asks twice: the answers must be equal.
    pub fn decide(&mut self) -> Decision {
        let seen = self.view.observation(self.now, &self.settings);
        let decision = decide(&seen);
        assert_eq!(decision, decide(&seen), "equal observations give equal decisions");
        self.last = Some(decision.clone());
        decision
    }

    /// One decision, carried out.
    pub fn step(&mut self) -> Wake {
        let mut decision = self.decide();
        // A stage has no order; a log that is compared needs one.
        decision.stage.sort_by_key(|action| (action.kind() as u8, pod_of(action)));
        for action in &decision.stage {
            self.perform(action);
        }
        decision.wake
    }

    /// One decision, whose writes go on their way.
    pub fn send(&mut self) -> Vec<Action> {
        let stage = self.decide().stage;
        stage.iter().for_each(|action| self.view.begin(action, self.now));
        stage
    }

    /// A write that is on its way arrives. The answer is on its way back.
    pub fn arrive(&mut self, action: &Action) -> Outcome {
        self.carry_out(action)
    }

    /// A write that is on its way arrives and is answered.
    pub fn land(&mut self, action: &Action) -> &mut Self {
        self.perform(action);
        self
    }

    /// Decides and carries out until there is nothing to do now.
    pub fn run(&mut self) -> Wake {
        for _ in 0..1000 {
            let wake = self.step();
            if wake != Wake::Again {
                return wake;
            }
        }
        panic!("never settles: {:#?}", self.log);
    }

    /// Runs, and if time has to pass lets it pass and runs on, until only news from outside could change anything.
    pub fn run_all(&mut self) -> &mut Self {
        while let Wake::At(next) = self.run() {
            self.now = next;
        }
        self
    }

    /// The same, but the controller is replaced by a new one after every single write.
    pub fn run_crashing(&mut self) -> &mut Self {
        for _ in 0..1000 {
            let decision = self.decide();
            match (decision.stage.first(), decision.wake) {
                (Some(action), _) => self.perform(action),
                (None, Wake::At(next)) => self.now = next,
                (None, Wake::Again | Wake::Settled) => return self,
            }
            self.restart();
        }
        panic!("never settles: {:#?}", self.log);
    }

    /// Runs, and says what was written since the last time.
    pub fn writes(&mut self) -> Vec<String> {
        self.run();
        std::mem::take(&mut self.log)
    }

    /// Forgets what was written so far.
    pub fn hush(&mut self) -> &mut Self {
        self.run();
        self.log.clear();
        self
    }

    /// What was written since the last time, without running.
    pub fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// The status that the server holds.
    pub fn status(&self) -> Value {
        self.job["status"].clone()
    }

    /// The Job that the server holds.
    pub fn job(&self) -> Job {
        serde_json::from_value(self.job.clone()).expect("a Job")
    }

    /// The view of the controller.
    pub fn view(&mut self) -> &mut JobView {
        &mut self.view
    }

    /// A pod that the server holds.
    pub fn get(&self, uid: &str) -> Option<Pod> {
        self.pods.get(uid).map(|pod| PodBuilder(pod.clone()).build())
    }

    /// The UIDs of all pods that the server holds.
    pub fn uids(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    /// The UIDs of all pods that hold the tracking finalizer.
    pub fn held(&self) -> Vec<&str> {
        self.uids().into_iter().filter(|uid| self.has_finalizer(uid)).collect()
    }

    /// The facts of a pod, as the controller would read them.
    pub fn pod_facts(&self, uid: &str) -> PodFacts {
        PodFacts::from_pod(&self.get(uid).expect("a pod"), self.view.job())
    }

    /// The trace of the last decision.
    pub fn trace(&self) -> String {
        self.last.as_ref().map(|decision| decision.because.to_string()).unwrap_or_default()
    }

    fn facts(&self) -> JobFacts {
        JobFacts::from_job(&self.job(), self.draft.as_ref(), &self.gates)
    }

    fn has_finalizer(&self, uid: &str) -> bool {
        let finalizers = self.pods[uid]["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|f| f == names::TRACKING_FINALIZER))
    }

    /// A pod has changed: a new revision, and the watch shows it.
    fn publish(&mut self, uid: &str) {
        self.touch(uid);
        if self.reap(uid) {
            self.view.forget_pod(&Uid::new(uid));
        } else {
            self.show(uid);
        }
    }

    fn touch(&mut self, uid: &str) {
        self.revision += 1;
        let revision = self.revision.to_string();
        self.pods.get_mut(uid).expect("a pod")["metadata"]["resourceVersion"] = revision.into();
    }

    fn show(&mut self, uid: &str) {
        let facts = self.pod_facts(uid);
        self.view.observe_pod(facts);
    }

    /// A deleted pod that has stopped, or never had a node, goes when nothing holds it.
    fn reap(&mut self, uid: &str) -> bool {
        let pod = &self.pods[uid];
        let is_stopped = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            || pod["spec"]["nodeName"].is_null();
        let is_held = pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let goes = !pod["metadata"]["deletionTimestamp"].is_null() && is_stopped && !is_held;
        if goes {
            self.pods.remove(uid);
        }
        goes
    }

    fn request_deletion(&mut self, uid: &str) {
        let pod = self.pods.get_mut(uid).unwrap_or_else(|| panic!("there is no pod {uid}"));
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let grace = if pod["spec"]["nodeName"].is_null() { 0 } else { 30 };
            let deletion = (self.now + SignedDuration::from_secs(grace)).to_string();
            let patch = json!({ "deletionTimestamp": deletion, "deletionGracePeriodSeconds": grace });
            merge(&mut pod["metadata"], &patch);
            self.touch(uid);
        }
        self.reap(uid);
    }

    fn perform(&mut self, action: &Action) {
        let outcome = match self.broken.iter().position(|kind| *kind == action.kind()) {
            Some(at) => {
                self.broken.remove(at);
                self.log.push(format!("{} FAILED", title(action)));
                Outcome::Failed
            }
            None => self.carry_out(action),
        };
        self.view.fold(action, outcome, self.now, &self.settings);
        if let Action::WriteStatus(_) = action {
            let read = self.facts();
            if read.revision == self.view.job().revision {
                assert_eq!(read.status, self.view.job().status, "what was folded is what the server holds");
            }
        }
    }

    fn carry_out(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Create(new) => self.create(new),
            Action::WriteStatus(write) => self.write_status(write),
            Action::Emit(event) => {
                self.log.push(format!("emit {}", event.reason));
                Outcome::Done
            }
            Action::Adopt(pod) => self.patch(action, pod, |pod, job| {
                pod["metadata"]["ownerReferences"] = json!([owner_reference(job)]);
                pod["metadata"]["finalizers"] = json!([names::TRACKING_FINALIZER]);
            }),
            Action::Disown(pod) => self.patch(action, pod, |pod, _| {
                merge(pod, &json!({ "metadata": { "ownerReferences": null, "finalizers": null } }));
            }),
            Action::Release(pod) => self.patch(action, pod, |pod, _| drop_finalizer(pod)),
            Action::Delete(pod) => {
                self.patch(action, pod, |_, _| {});
                self.ask_to_go(pod)
            }
            Action::Remove(pod, _) => match self.patch(action, pod, |pod, _| drop_finalizer(pod)) {
                Outcome::Gone => Outcome::Gone,
                _ => self.ask_to_go(pod),
            },
        }
    }

    fn ask_to_go(&mut self, pod: &PodRef) -> Outcome {
        let uid = pod.uid.to_string();
        if !self.pods.contains_key(&uid) {
            return Outcome::Gone;
        }
        self.request_deletion(&uid);
        self.outcome(&uid)
    }

    fn outcome(&self, uid: &str) -> Outcome {
        if self.pods.contains_key(uid) { Outcome::Pod(Box::new(self.pod_facts(uid))) } else { Outcome::Gone }
    }

    fn patch(&mut self, action: &Action, pod: &PodRef, change: impl FnOnce(&mut Value, &Job)) -> Outcome {
        let uid = pod.uid.to_string();
        self.log.push(title(action));
        let job = self.job();
        let Some(pod) = self.pods.get_mut(&uid) else { return Outcome::Gone };
        change(pod, &job);
        self.touch(&uid);
        self.reap(&uid);
        self.outcome(&uid)
    }

    fn create(&mut self, new: &NewPod) -> Outcome {
        if self.pods.values().any(|pod| pod["metadata"]["name"] == new.name.as_str()) {
            self.log.push(format!("{} TAKEN", title(&Action::Create(new.clone()))));
            return Outcome::Taken;
        }
        let line = new.index.map_or_else(|| "p".to_owned(), |index| format!("{index}."));
        let count = self.made.entry(line.clone()).or_default();
        let uid = format!("{line}{count}");
        *count += 1;
        let pod = pod_body(&self.job(), new).expect("the template has labels");
        let mut pod = serde_json::to_value(pod).expect("a pod is JSON");
        let set = json!({
            "metadata": { "uid": uid, "creationTimestamp": self.now.to_string() }, "status": { "phase": "Pending" },
        });
        merge(&mut pod, &set);
        self.log.push(format!("create {uid}"));
        self.pods.insert(uid.clone(), pod);
        self.touch(&uid);
        self.outcome(&uid)
    }

    fn write_status(&mut self, write: &StatusWrite) -> Outcome {
        if self.job["metadata"]["resourceVersion"] != write.resource_version.as_str() {
            self.log.push("status CONFLICT".to_owned());
            return Outcome::Failed;
        }
        let old = self.job.clone();
        merge(&mut self.job, &status_patch(write));
        self.revision += 1;
        self.job["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.log.push(describe(&old["status"], &self.job["status"], write));
        super::server::check(&self.job, &old);
        Outcome::Written(self.revision.to_string())
    }
}

fn pod_of(action: &Action) -> String {
    match action {
        Action::Adopt(pod) | Action::Disown(pod) | Action::Delete(pod) | Action::Remove(pod, _) => {
            pod.uid.to_string()
        }
        Action::Release(pod) => pod.uid.to_string(),
        Action::Create(_) | Action::WriteStatus(_) | Action::Emit(_) => String::new(),
    }
}

fn drop_finalizer(pod: &mut Value) {
    if let Some(all) = pod["metadata"]["finalizers"].as_array_mut() {
        all.retain(|finalizer| finalizer != names::TRACKING_FINALIZER);
    }
}

fn title(action: &Action) -> String {
    match action {
        Action::Adopt(pod) => format!("adopt {}", pod.uid),
        Action::Disown(pod) => format!("disown {}", pod.uid),
        Action::Create(NewPod { index: Some(index), .. }) => format!("create {index}.?"),
        Action::Create(_) => "create p?".to_owned(),
        Action::Delete(pod) => format!("delete {}", pod.uid),
        Action::Remove(pod, why) => format!("remove {} ({why:?})", pod.uid),
        Action::Release(pod) => format!("release {}", pod.uid),
        Action::WriteStatus(_) => "status".to_owned(),
        Action::Emit(event) => format!("emit {}", event.reason),
    }
}

/// What a status write changes, in one line.
fn describe(old: &Value, new: &Value, write: &StatusWrite) -> String {
    let mut line = "status".to_owned();
    let mut say = |name: &str, text: String| line.push_str(&format!(" {name}={text}"));
    for key in ["active", "ready", "terminating", "succeeded", "failed", "completedIndexes", "failedIndexes"]
    {
        if old[key] != new[key] {
            say(
                key,
                if new[key].is_null() { "none".to_owned() } else { new[key].to_string().replace('"', "") },
            );
        }
    }
    for key in ["succeeded", "failed"] {
        let list = |status: &Value| status["uncountedTerminatedPods"][key].clone();
        if list(old) != list(new) {
            let uids: Vec<String> = list(new)
                .as_array()
                .into_iter()
                .flatten()
                .map(|uid| uid.to_string().replace('"', ""))
                .collect();
            say(&format!("uncounted.{key}"), format!("[{}]", uids.join(",")));
        }
    }
    for key in ["startTime", "completionTime"] {
        if old[key] != new[key] {
            say(key, new[key].as_str().map_or("none".to_owned(), seconds_of));
        }
    }
    for condition in new["conditions"].as_array().into_iter().flatten() {
        if !old["conditions"].as_array().is_some_and(|all| all.contains(condition)) {
            let sign = if condition["status"] == "True" { '+' } else { '-' };
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            line.push_str(&format!(" {sign}{}({})", text("type"), text("reason")));
        }
    }
    for event in &write.events {
        line.push_str(&format!(" !{}", event.reason));
    }
    line
}

fn seconds_of(time: &str) -> String {
    let time: Timestamp = time.parse().expect("a time");
    (time.as_second() - at(0).as_second()).to_string()
}
