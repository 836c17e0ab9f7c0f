//! Playing a scenario on an API server, with one controller.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use windlass_api::names::WINDLASS_CONTROLLER;

use super::body::Controller;
use super::kubelet::Kubelet;
use super::mirror::{Kind, Mirror, Seen, Space};
use super::record::{Record, events_are_in, summary};
use super::settled::{
    condition_of, is_deleted, is_finished, is_foreign, is_held, is_settled, is_terminal, owns,
};
use super::{Deed, JOB, Propagation, Scenario, Step, Who, job, list, merge, number, text};

/// Rounds until a Job must be finished when all its pods succeed.
const FINISH_ROUNDS: usize = 60;

/// An API server and what it shows.
pub struct World {
    /// The way to it.
    pub client: Client,
    mirror: Arc<Mirror>,
    _tasks: JoinSet<()>,
}

impl World {
    /// Starts to look at it.
    pub fn new(client: Client) -> Self {
        let (mirror, tasks) = Mirror::start(&client);
        Self { client, mirror, _tasks: tasks }
    }
}

/// A scenario that is played.
pub struct Play<'a> {
    namespace: String,
    space: Arc<Space>,
    kubelet_client: Client,
    jobs: Api<DynamicObject>,
    controller: &'a mut Controller,
    is_running: bool,
    manner: Manner,
}

/// How a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Jobs ask for our controller.
    pub opts_in: bool,
    /// Every event must come. One that is killed in the middle of its work can't tell what it did.
    pub tells_all: bool,
}

/// Plays it in a namespace of its own and tells how it ended.
pub async fn play(
    world: &World,
    namespace: &str,
    scenario: &Scenario,
    controller: &mut Controller,
    manner: Manner,
) -> Result<Record> {
    let mut play = Play::new(world, namespace, controller, manner).await?;
    play.make(scenario.job.clone()).await?;
    // Of a crew, the controller runs already.
    if matches!(play.controller, Controller::Ours(_)) {
        play.controller.start("").await?;
    }
    let mut ended = Ok(());
    for (number, step) in scenario.steps.iter().enumerate() {
        ended = play.take(step).await.with_context(|| format!("step {number}, {step:?}"));
        if ended.is_err() {
            break;
        }
    }
    let record = match ended {
        Ok(()) => play.end(scenario).await,
        Err(error) => Err(error),
    };
    // The built-in controller tells of a change again when its status write was overtaken by an edit.
    let is_overtaken = |step: &Step| matches!(step, Step::Meanwhile(step) if matches!(**step, Step::Edit(_)));
    let record = record
        .map(|record| if scenario.steps.iter().any(is_overtaken) { record.telling_once() } else { record });
    play.leave().await;
    record
}

impl<'a> Play<'a> {
    /// Makes the namespace.
    pub async fn new(
        world: &World,
        namespace: &str,
        controller: &'a mut Controller,
        manner: Manner,
    ) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await.context("make a namespace")?;
        let resource = ApiResource::erase::<Job>(&());
        Ok(Self {
            namespace: namespace.to_owned(),
            space: world.mirror.space(namespace),
            kubelet_client: world.client.clone(),
            jobs: Api::namespaced_with(world.client.clone(), namespace, &resource),
            controller,
            is_running: true,
            manner,
        })
    }

    /// Makes a Job.
    pub async fn make(&self, mut job: Value) -> Result<()> {
        if self.manner.opts_in && text(&job, "/spec/managedBy").is_empty() {
            merge(&mut job, json!({"spec": {"managedBy": WINDLASS_CONTROLLER}}));
        }
        let job: DynamicObject = serde_json::from_value(job)?;
        let made = self.jobs.create(&PostParams::default(), &job).await.context("make the Job")?;
        self.space.answered(Kind::Job, serde_json::to_value(made)?);
        Ok(())
    }

    /// Takes a step.
    pub async fn take(&mut self, step: &Step) -> Result<()> {
        let waits_itself = matches!(
            step,
            Step::Start
                | Step::StartWith(_)
                | Step::Expect(_)
                | Step::Count(_)
                | Step::Shows(_)
                | Step::Has(_)
                | Step::Meanwhile(_)
        );
        if self.is_running && !waits_itself {
            self.settle().await?;
        }
        match step {
            Step::Meanwhile(step) => self.act(step, true).await,
            step => self.act(step, false).await,
        }
    }

    async fn act(&mut self, step: &Step, is_meanwhile: bool) -> Result<()> {
        match step {
            Step::Meanwhile(_) => bail!("one is enough"),
            Step::Shows(expected) => {
                let is_so = |seen: &Seen| (summary(seen.job(JOB)) == *expected).then_some(());
                self.space.until(&format!("[{expected}] for a moment"), is_so).await
            }
            Step::Has(kind) => {
                let is_so = |seen: &Seen| {
                    seen.job(JOB).filter(|job| condition_of(job, kind) == Some("True")).map(|_| ())
                };
                self.space.until(&format!("condition {kind}"), is_so).await
            }
            Step::Pods(deeds) => self.happen(deeds).await,
            Step::Edit(patch) => self.edit(patch).await.map_err(Into::into),
            Step::Refused(patch, why) => match self.edit(patch).await {
                Err(kube::Error::Api(status)) if status.message.contains(why) => Ok(()),
                other => bail!("not refused as it should be: {other:?}"),
            },
            Step::EditStatus(patch) => {
                let patch = Patch::Merge(json!({"status": patch}));
                let answer = self.jobs.patch_status(JOB, &PatchParams::default(), &patch).await?;
                self.space.answered(Kind::Job, serde_json::to_value(answer)?);
                Ok(())
            }
            Step::Delete(propagation) => self.delete(*propagation, self.is_running && !is_meanwhile).await,
            Step::Make(job) => self.make(job.clone()).await,
            Step::MakePod(pod) => self.make_pod(pod.clone()).await,
            Step::Expect(expected) => self.expect(expected).await,
            Step::Count(count) => {
                let counted = |seen: &Seen| (seen.live(Kind::Pod).len() == *count).then_some(());
                self.space.until(&format!("{count} pods"), counted).await
            }
            Step::Pass => self.pass().await,
            Step::Stop => {
                // A controller that is killed takes with it what it has not told yet.
                self.hear_all().await?;
                self.controller.stop().await?;
                self.is_running = false;
                Ok(())
            }
            Step::Start | Step::StartWith(_) => {
                let gates = if let Step::StartWith(gates) = step { gates } else { "" };
                self.controller.start(gates).await?;
                self.is_running = true;
                Ok(())
            }
            Step::Finish => {
                self.finish(&[(Who::Terminating, Deed::End(143)), (Who::Active, Deed::Exit(0))]).await
            }
            Step::FinishOneByOne => {
                let round = [(Who::SomeTerminating(0), Deed::End(143)), (Who::SomeActive(0), Deed::Exit(0))];
                self.finish(&round).await
            }
        }
    }

    /// The controller of the scenario.
    pub fn controller(&mut self) -> &mut Controller {
        self.controller
    }

    async fn settle(&self) -> Result<()> {
        self.space.until("nothing to do", |seen| settled(seen).then_some(())).await
    }

    async fn hear_all(&self) -> Result<()> {
        if !self.manner.tells_all {
            return Ok(());
        }
        self.space.until("the last event", |seen| events_are_in(seen).then_some(())).await
    }

    async fn expect(&self, expected: &str) -> Result<()> {
        let is_so = |seen: &Seen| (summary(seen.job(JOB)) == expected && settled(seen)).then_some(());
        self.space.until(&format!("[{expected}]"), is_so).await
    }

    async fn edit(&self, patch: &Value) -> kube::Result<()> {
        let answer = self.jobs.patch(JOB, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.space.answered(Kind::Job, serde_json::to_value(answer).unwrap_or_default());
        Ok(())
    }

    async fn happen(&self, deeds: &[(Who, Deed)]) -> Result<()> {
        let kubelet = Kubelet::new(&self.kubelet_client, &self.namespace, &self.space);
        for (who, deed) in deeds {
            let find = |seen: &Seen| find(seen, *who);
            let pods = self.space.until(&format!("{who:?}"), find).await?;
            for pod in pods {
                kubelet.does(deed, &pod).await?;
            }
        }
        Ok(())
    }

    async fn make_pod(&self, mut pod: Value) -> Result<()> {
        // `<uid>` stands for the UID of the Job.
        let uid = self.space.look(|seen| seen.job(JOB).map(|job| text(job, "/metadata/uid").to_owned()));
        let text = pod.to_string().replace("<uid>", &uid.unwrap_or_default());
        pod = serde_json::from_str(&text)?;
        let pods: Api<DynamicObject> = self.pods();
        let made = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        self.space.answered(Kind::Pod, serde_json::to_value(made)?);
        Ok(())
    }

    fn pods(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<Pod>(&());
        Api::namespaced_with(self.kubelet_client.clone(), &self.namespace, &resource)
    }

    /// Deletes the Job as its owner would, and does what the garbage collector does; if wanted, when the controller knows
    /// of the deletion. One that sees its pods go first may make others.
    async fn delete(&self, propagation: Propagation, is_known_first: bool) -> Result<()> {
        let (uid, pods) = self.space.look(|seen| {
            let job = seen.job(JOB).cloned().unwrap_or_default();
            let pods = seen.live(Kind::Pod).into_iter().map(|item| item.object.clone());
            let pods: Vec<Value> = pods.filter(|pod| owns(&job, pod)).collect();
            (text(&job, "/metadata/uid").to_owned(), pods)
        });
        let policy = match propagation {
            Propagation::Orphan => PropagationPolicy::Orphan,
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
        };
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.jobs.delete(JOB, &params).await?;
        let is_marked = |seen: &Seen| {
            let jobs = seen.all(Kind::Job);
            let job = jobs.into_iter().find(|item| text(&item.object, "/metadata/uid") == uid)?;
            (job.is_gone || is_deleted(&job.object)).then_some(())
        };
        self.space.until("the deletion of the Job", is_marked).await?;
        if is_known_first {
            self.pass().await?;
        }
        self.collect(propagation, &uid, &pods).await
    }

    async fn collect(&self, propagation: Propagation, uid: &str, pods: &[Value]) -> Result<()> {
        let kubelet = Kubelet::new(&self.kubelet_client, &self.namespace, &self.space);
        for pod in pods {
            match propagation {
                Propagation::Orphan => {
                    let disown = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}],
                                                     "uid": text(pod, "/metadata/uid")}});
                    let name = text(pod, "/metadata/name");
                    let answer =
                        self.pods().patch(name, &PatchParams::default(), &Patch::Strategic(disown)).await?;
                    self.space.answered(Kind::Pod, serde_json::to_value(answer)?);
                }
                Propagation::Background | Propagation::Foreground => kubelet.does(&Deed::Delete, pod).await?,
            }
        }
        if propagation == Propagation::Foreground {
            let mine: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
            let are_free = |seen: &Seen| {
                let mut live = seen.live(Kind::Pod).into_iter().map(|item| &item.object);
                (!live.any(|pod| mine.contains(&text(pod, "/metadata/uid")) && is_held(pod))).then_some(())
            };
            self.space.until("pods that nobody holds", are_free).await?;
        }
        if propagation != Propagation::Background {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            self.jobs.patch(JOB, &PatchParams::default(), &free).await?;
        }
        let is_gone = |seen: &Seen| {
            let jobs = seen.all(Kind::Job);
            let job = jobs.into_iter().find(|item| text(&item.object, "/metadata/uid") == uid)?;
            job.is_gone.then_some(())
        };
        self.space.until("the end of the Job", is_gone).await
    }

    /// Waits until the controller knows of all that was done to Jobs so far: it hears of them in order.
    async fn pass(&self) -> Result<()> {
        let name = self.space.look(|seen| format!("passer-{}", seen.all(Kind::Job).len()));
        let mut passer = job(json!({"completions": 0}));
        merge(&mut passer, json!({"metadata": {"name": name}}));
        self.make(passer).await?;
        let is_done = |seen: &Seen| seen.job(&name).is_some_and(is_finished).then_some(());
        self.space.until("the Job that passes", is_done).await
    }

    /// Each round does the first of `deeds` that has somebody to be done to.
    async fn finish(&self, deeds: &[(Who, Deed)]) -> Result<()> {
        for _ in 0..FINISH_ROUNDS {
            self.settle().await?;
            let is_over = self.space.look(|seen| seen.job(JOB).is_none_or(is_finished));
            if is_over {
                return Ok(());
            }
            let has_somebody =
                |who| self.space.look(|seen| find(seen, who).is_some_and(|pods| !pods.is_empty()));
            if let Some(deed) = deeds.iter().find(|(who, _)| has_somebody(*who)) {
                self.happen(std::slice::from_ref(deed)).await?;
            }
        }
        bail!("the Job does not end: {}", self.space.look(super::record::describe))
    }

    async fn end(&self, scenario: &Scenario) -> Result<Record> {
        if let Some(expected) = scenario.ends {
            self.expect(expected).await.context("the end")?;
        }
        self.settle().await?;
        self.hear_all().await?;
        Ok(self.space.look(|seen| Record::of(seen, &self.namespace)))
    }

    /// Leaves nothing behind that another controller would take for its own.
    pub async fn leave(&mut self) {
        if let Controller::Ours(ours) = &mut self.controller {
            ours.stop().await;
        }
        let is_done = self.space.look(|seen| {
            let jobs = seen.live(Kind::Job).into_iter().all(|item| is_finished(&item.object));
            jobs && !seen.live(Kind::Pod).into_iter().any(|item| is_held(&item.object))
        });
        if is_done {
            return;
        }
        let names = self.space.look(|seen| {
            let names = |kind| {
                seen.live(kind).into_iter().map(|item| text(&item.object, "/metadata/name").to_owned())
            };
            (names(Kind::Job).collect::<Vec<_>>(), names(Kind::Pod).collect::<Vec<_>>())
        });
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        for (api, names) in [(self.jobs.clone(), names.0), (self.pods(), names.1)] {
            for name in names {
                // It may be gone already: that is what is wanted.
                _ = api.delete(&name, &DeleteParams::background().grace_period(0)).await;
                _ = api.patch(&name, &PatchParams::default(), &free).await;
            }
        }
    }
}

fn settled(seen: &Seen) -> bool {
    let pods: Vec<&Value> = seen.live(Kind::Pod).into_iter().map(|item| &item.object).collect();
    let is_for_nobody = seen.job(JOB).is_some_and(is_foreign);
    is_for_nobody || is_settled(seen.job(JOB), &pods)
}

/// The pods that are meant. `None` if one that is named is not there yet.
fn find(seen: &Seen, who: Who) -> Option<Vec<Value>> {
    let index = |pod: &Value| {
        let annotations = pod.pointer("/metadata/annotations").cloned().unwrap_or_default();
        annotations[windlass_api::names::COMPLETION_INDEX].as_str().and_then(|text| text.parse::<u32>().ok())
    };
    let all = seen.all(Kind::Pod);
    let is_active = |pod: &Value| !is_terminal(pod) && !is_deleted(pod);
    let live = || seen.live(Kind::Pod).into_iter().map(|item| item.object.clone());
    match who {
        Who::Nth(n) => all.get(n).map(|item| vec![item.object.clone()]),
        Who::Index(wanted, attempt) => {
            let mut of_index = all.iter().filter(|item| index(&item.object) == Some(wanted));
            of_index.nth(attempt).map(|item| vec![item.object.clone()])
        }
        Who::Active => Some(live().filter(is_active).collect()),
        Who::Terminating => Some(live().filter(|pod| is_deleted(pod) && !is_terminal(pod)).collect()),
        Who::SomeActive(n) => Some(some(n, live().filter(is_active).collect(), index)),
        Who::SomeTerminating(n) => {
            Some(some(n, live().filter(|pod| is_deleted(pod) && !is_terminal(pod)).collect(), index))
        }
    }
}

/// One of them, in an order that does not depend on names.
fn some(n: usize, mut pods: Vec<Value>, index: impl Fn(&Value) -> Option<u32>) -> Vec<Value> {
    pods.sort_by_key(|pod| {
        let is_ready = condition_of(pod, "Ready") == Some("True");
        (index(pod), is_ready, text(pod, "/spec/nodeName").is_empty(), restarts(pod))
    });
    let count = pods.len().max(1);
    pods.into_iter().nth(n % count).into_iter().collect()
}

fn restarts(pod: &Value) -> u64 {
    list(pod, "/status/containerStatuses").iter().map(|status| number(status, "/restartCount")).sum()
}
