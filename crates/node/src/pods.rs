//! All pods of the node: watches those that are bound to it, judges them, gives each a task of its own, and ends those that
//! have to go.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::OptionFuture;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::Resource;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use windlass_watch::{Event, Objects};

use crate::admission::{self, Amounts, Held, Verdict};
use crate::agent::Capacity;
use crate::events::{self, Report};
use crate::files::Files;
use crate::phase::Phase;
use crate::pod::{self, Order, Update};
use crate::pressure::{self, Pressure};
use crate::register::{self, Health};
use crate::shutdown;
use crate::survey::{self, Findings, Spot};
use crate::watched::{LastSpec, WatchedNode, WatchedPod};

/// How long to wait for the end of an evicted pod before the next has to go.
const EVICTION_PATIENCE: Duration = Duration::from_secs(30);
/// From the moment in which a node is short of something until pods go for it.
const ANNOUNCEMENT_TIME: Duration = Duration::from_millis(500);
/// How long a node that shuts down waits for those who place pods: what they send there is refused, and counts as a failure.
const ANNOUNCEMENT_PATIENCE: Duration = Duration::from_secs(2);

/// A pod that the agent has seen and that is still in the API.
struct Entry {
    /// `None` when its task has ended.
    updates: Option<mpsc::UnboundedSender<Update>>,
    /// A change that came when its task was about to end.
    unheard: Option<Box<Pod>>,
    /// The last delete was sent.
    is_deleted: bool,
    spot: Arc<Spot>,
    files: Files,
}

/// A critical pod that starts when others have ended.
struct Next {
    pod: Box<Pod>,
    updates: mpsc::UnboundedReceiver<Update>,
    /// Those, by UID.
    after: HashSet<String>,
}

/// A node that shuts down, or is asked to do as if.
struct Closing {
    /// Who ends after those that are waited for.
    turns: VecDeque<(Duration, Vec<String>)>,
    /// The pods that are waited for, by UID.
    awaited: HashSet<String>,
    /// Until then.
    until: Instant,
    /// Until then it is waited for that nobody sends pods here any more; `None`: nobody does, or it does not matter.
    announced_until: Option<Instant>,
    /// The agent leaves when all have ended; otherwise it stays, and takes no pods until it is asked for them again.
    leaves: bool,
}

/// The pods of a node.
pub(crate) struct Pods {
    context: Arc<pod::Context>,
    /// By UID.
    entries: HashMap<String, Entry>,
    /// What pods leave behind that are gone from the API and still run, by UID.
    leaving: HashMap<String, Files>,
    /// What was there when the agent started; `None` when the first list of pods has been compared with it.
    found: Option<Vec<Files>>,
    tasks: JoinSet<pod::Done>,
    next: Vec<Next>,
    closing: Option<Closing>,
    allocatable: Amounts,
    pressure: Pressure,
    /// The condition of pressure that others were told of last, before a pod went for it.
    announced: Option<&'static str>,
    /// The pod that was evicted last, and until when its end is waited for.
    evicted: Option<(String, Instant)>,
    health: watch::Sender<Health>,
    /// Tells the API server of it, and ends when there is nothing more to tell.
    telling: JoinHandle<()>,
    last_spec: LastSpec,
}

impl Pods {
    pub(crate) fn new(context: Arc<pod::Context>) -> Self {
        let (health, heard) = watch::channel(Health::default());
        let telling = tokio::spawn(register::keep_alive(Arc::downgrade(&context), heard));
        let found = Some(Files::all(&context));
        let Capacity { cpu, memory, storage, pods } = &context.config.capacity;
        let allocatable = [
            ("cpu", cpu.milli_value()),
            ("memory", memory.value()),
            ("ephemeral-storage", storage.value()),
            ("pods", i64::from(*pods)),
        ];
        Self {
            allocatable: allocatable.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect(),
            context,
            entries: HashMap::new(),
            leaving: HashMap::new(),
            found,
            tasks: JoinSet::new(),
            next: Vec::new(),
            closing: None,
            pressure: Pressure::default(),
            announced: None,
            evicted: None,
            health,
            telling,
            last_spec: LastSpec::default(),
        }
    }

    pub(crate) async fn run(mut self, mut stopped: oneshot::Receiver<Duration>) {
        let fields = Some(format!("spec.nodeName={}", self.context.config.node_name));
        let bound = Objects { path: Pod::url_path(&(), None), fields };
        let events = windlass_watch::follow::<WatchedPod>(self.context.config.client.clone(), bound);
        let mut events = std::pin::pin!(events);
        let mut nodes = own_node(&self.context);
        let mut listed = HashSet::new();
        let mut looks = tokio::time::interval(self.context.config.survey_every);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut survey: OptionFuture<JoinHandle<Findings>> = None.into();
        let mut is_looking = false;
        while !self.close() {
            let until = self.closing.as_ref().and_then(Closing::wake_at);
            tokio::select! {
                Some(event) = events.next() => self.on_event(event, &mut listed),
                Some(node) = nodes.next() => self.on_node(&node),
                Some(done) = self.tasks.join_next() => self.on_done(done),
                _ = looks.tick(), if !is_looking && self.closing.is_none() => {
                    survey = self.look().into();
                    is_looking = true;
                }
                found = &mut survey, if is_looking => {
                    (survey, is_looking) = (None.into(), false);
                    let is_urgent = match found {
                        Some(Ok(found)) => self.on_found(found),
                        Some(Err(error)) => {
                            tracing::error!(%error, "look at the node");
                            false
                        }
                        None => false,
                    };
                    if is_urgent {
                        looks.reset_after(looks.period().min(ANNOUNCEMENT_TIME));
                    }
                }
                grace = &mut stopped, if !self.is_leaving() => match grace {
                    Ok(grace) => self.shut_down(grace, true),
                    // The agent was dropped without a shutdown: its processes go with the keeper.
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
        drop(self.health);
        // The last that is known about this node is that it stops.
        let _ = self.telling.await;
    }

    fn is_leaving(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.leaves)
    }

    fn on_event(&mut self, event: Event<WatchedPod>, listed: &mut HashSet<String>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.extend(pod.metadata.uid.clone());
                self.on_watched(&pod);
            }
            Event::InitDone => {
                let gone = self.entries.keys().filter(|uid| !listed.contains(*uid));
                for uid in gone.cloned().collect::<Vec<_>>() {
                    self.on_gone(&uid);
                }
                let found = self.found.take().unwrap_or_default();
                for files in found.into_iter().filter(|files| !listed.contains(files.uid())) {
                    self.remove(files);
                }
                listed.clear();
            }
            Event::Apply(pod) => self.on_watched(&pod),
            Event::Delete(pod) => self.on_gone(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    fn on_watched(&mut self, pod: &WatchedPod) {
        let meta = &pod.metadata;
        let entry = meta.uid.as_ref().and_then(|uid| self.entries.get(uid));
        // A pod that has ended is not touched again, but for its last delete.
        if entry.is_some_and(|entry| entry.updates.is_none()) && !pod::awaits_last_delete(meta) {
            return;
        }
        match pod.read(&mut self.last_spec) {
            Ok(pod) => self.on_pod(pod),
            Err(error) => {
                tracing::warn!(%error, namespace = ?meta.namespace, name = ?meta.name, "read a pod of this node");
            }
        }
    }

    fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let phase = pod.status.as_ref().and_then(|status| Phase::parse(status.phase.as_deref()));
        let is_terminal = phase.is_some_and(Phase::is_terminal);
        let is_new = !self.entries.contains_key(&uid);
        let entry = self.entries.entry(uid).or_insert_with(|| Entry {
            updates: None,
            unheard: None,
            is_deleted: false,
            spot: Arc::new(Spot::of(&self.context, &pod)),
            files: Files::of(&self.context, &pod),
        });
        if let Some(updates) = &entry.updates {
            if let Err(mpsc::error::SendError(Update::Changed(pod))) =
                updates.send(Update::Changed(Box::new(pod)))
            {
                entry.unheard = Some(pod);
            }
        } else if is_terminal {
            // A pod that has ended is not touched again, but for its last delete.
            if pod::awaits_last_delete(&pod.metadata) && !entry.is_deleted {
                entry.is_deleted = true;
                self.tasks.spawn(pod::delete_last(self.context.clone(), pod));
            }
        } else if is_new {
            self.begin(pod);
        }
    }

    /// Judges a pod that has just come, and runs it.
    fn begin(&mut self, pod: Pod) {
        let (uid, nothing) = (pod.metadata.uid.clone().unwrap_or_default(), PodSpec::default());
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let held = Held::of(&uid, spec);
        let is_inherited = self.found.is_some();
        // Who was admitted before is not judged again, and who is being ended anyway not at all.
        let was_admitted = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        let verdict = match was_admitted || pod.metadata.deletion_timestamp.is_some() {
            true => Verdict::Admit,
            false => {
                let pressure = self.pressure.conditions();
                let node = admission::Node {
                    allocatable: &self.allocatable,
                    ledger: &self.context.ledger.lock(),
                    pressure: &pressure,
                    is_closing: self.closing.is_some(),
                };
                admission::judge(&held, spec.tolerations.as_deref().unwrap_or_default(), &node)
            }
        };
        if let Verdict::Reject { reason, message } = verdict {
            self.tasks.spawn(pod::reject(self.context.clone(), pod, reason, message));
            return;
        }
        self.context.ledger.lock().add(held);
        let (sender, updates) = mpsc::unbounded_channel();
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.updates = Some(sender);
        }
        match verdict {
            Verdict::Preempt(victims) => {
                victims.iter().for_each(|victim| self.end(victim, preempted()));
                self.next.push(Next { pod: Box::new(pod), updates, after: victims.into_iter().collect() });
            }
            Verdict::Admit | Verdict::Reject { .. } => {
                self.tasks.spawn(pod::run(self.context.clone(), pod, is_inherited, updates));
            }
        }
    }

    /// Ends a pod that this node does not keep.
    fn end(&self, uid: &str, order: Order) {
        let Some(Entry { updates: Some(updates), spot, .. }) = self.entries.get(uid) else { return };
        self.context.publish(Report {
            about: spot.about.clone(),
            is_warning: true,
            reason: order.reason.into(),
            message: order.message.clone(),
        });
        let _ = updates.send(Update::End(order));
    }

    /// Looks at the node, if there is anything to look for.
    fn look(&self) -> Option<JoinHandle<Findings>> {
        let running = self.entries.values().filter(|entry| entry.updates.is_some());
        let spots: Vec<Arc<Spot>> = running.map(|entry| Arc::clone(&entry.spot)).collect();
        let is_needed = self.context.config.eviction.is_some() || spots.iter().any(|spot| spot.has_limits());
        let context = Arc::downgrade(&self.context);
        let pressure = self.pressure.clone();
        is_needed.then(|| {
            tokio::task::spawn_blocking(move || {
                context.upgrade().map(|context| survey::look(&context, pressure, &spots)).unwrap_or_default()
            })
        })
    }

    /// Ends who has to go. Returns whether it is better to look again soon: the node is short of something that others do not
    /// know of, and would send the next pod here, where it is refused.
    fn on_found(&mut self, found: Findings) -> bool {
        let known = self.pressure.conditions();
        self.pressure = found.pressure;
        self.tell_health();
        for (uid, message) in &found.excess {
            self.end(uid, evicted(message, pressure::HARD_GRACE, None));
        }
        let is_waiting = self.evicted.as_ref().is_some_and(|(_, until)| Instant::now() < *until);
        if let Some(shortage) = found.shortage.filter(|_| !is_waiting && found.excess.is_empty()) {
            let condition = shortage.signal.condition();
            if !known.contains(&condition) && self.announced.replace(condition) != Some(condition) {
                return true;
            }
            self.context.publish(Report {
                about: events::about_node(&self.context.config.node_name),
                is_warning: true,
                reason: "EvictionThresholdMet".into(),
                message: format!("Attempting to reclaim {}", shortage.signal.resource()),
            });
            if let Some((uid, message)) = found.victim {
                self.end(&uid, evicted(&message, shortage.grace, Some(message.clone())));
                self.evicted = Some((uid, Instant::now() + EVICTION_PATIENCE));
            }
        }
        false
    }

    fn tell_health(&self) {
        let health = Health { pressure: self.pressure.conditions(), is_closing: self.closing.is_some() };
        self.health.send_if_modified(|known| {
            let is_news = *known != health;
            *known = health;
            is_news
        });
    }

    fn on_gone(&mut self, uid: &str) {
        let Some(Entry { updates, files, .. }) = self.entries.remove(uid) else { return };
        match updates {
            Some(updates) => {
                let _ = updates.send(Update::Gone);
                self.leaving.insert(uid.to_owned(), files);
            }
            None => self.remove(files),
        }
    }

    fn on_done(&mut self, done: Result<pod::Done, tokio::task::JoinError>) {
        match done {
            Ok(done) => {
                let mut unheard = done.unheard;
                if let Some(entry) = self.entries.get_mut(&done.uid) {
                    entry.updates = None;
                    unheard = entry.unheard.take().or(unheard);
                    entry.is_deleted |= done.is_deleted;
                    // Nobody can see its volumes any more, and the disk may be short because of them.
                    if entry.files.has_own() {
                        let files = entry.files.clone();
                        tokio::task::spawn_blocking(move || files.remove(true));
                    }
                }
                if let Some(files) = self.leaving.remove(&done.uid) {
                    self.remove(files);
                }
                if let Some(closing) = &mut self.closing {
                    closing.awaited.remove(&done.uid);
                }
                self.evicted = self.evicted.take().filter(|(uid, _)| *uid != done.uid);
                self.begin_next(&done.uid);
                if let Some(pod) = unheard {
                    self.on_pod(*pod);
                }
            }
            Err(error) => tracing::error!(%error, "a pod's task broke"),
        }
    }

    /// Starts critical pods that waited for the end of this one.
    fn begin_next(&mut self, ended: &str) {
        for mut next in std::mem::take(&mut self.next) {
            next.after.remove(ended);
            match next.after.is_empty() {
                true => {
                    self.tasks.spawn(pod::run(self.context.clone(), *next.pod, false, next.updates));
                }
                false => self.next.push(next),
            }
        }
    }

    /// Nobody can ask for anything of a pod that is gone.
    fn remove(&self, files: Files) {
        let keeps_logs = self.context.config.keeps_logs;
        tokio::task::spawn_blocking(move || files.remove(keeps_logs));
    }

    /// Ends all pods, at most `grace` or the time of their group after they were told. `leaves`: and then the agent.
    fn shut_down(&mut self, grace: Duration, leaves: bool) {
        if let Some(closing) = &mut self.closing {
            // All are being ended already.
            closing.leaves |= leaves;
            return;
        }
        let one = [shutdown::Group { priority: i32::MIN, grace }];
        let groups = match self.context.config.shutdown.as_slice() {
            [] => &one[..],
            groups => groups,
        };
        let running = self.entries.iter().filter(|(_, entry)| entry.updates.is_some());
        let turns = shutdown::turns(groups, running.map(|(uid, entry)| (entry.spot.priority, uid.clone())));
        let is_awaited = !turns.is_empty() && (!leaves || self.context.config.others_place_pods);
        self.closing = Some(Closing {
            turns: turns.into(),
            awaited: HashSet::new(),
            until: Instant::now(),
            announced_until: is_awaited.then(|| Instant::now() + ANNOUNCEMENT_PATIENCE),
            leaves,
        });
        self.context.publish(Report {
            about: events::about_node(&self.context.config.node_name),
            is_warning: false,
            reason: "Shutdown".into(),
            message: "Shutdown manager detected shutdown event".into(),
        });
        self.tell_health();
    }

    /// The Node of this agent has changed: somebody may ask it to do as if it shut down, or to take pods again.
    fn on_node(&mut self, node: &WatchedNode) {
        if node.is_asked_to_shut_down() {
            self.shut_down(shutdown::GRACE_DEFAULT, false);
        } else if self.closing.take_if(|closing| !closing.leaves).is_some() {
            self.tell_health();
        }
        if let Some(closing) = self.closing.as_mut().filter(|_| node.is_closed_to_pods()) {
            closing.announced_until = None;
        }
    }

    /// Ends the next pods of a node that shuts down, when those before them have ended or had their time. Returns true
    /// when all have ended and the agent leaves.
    fn close(&mut self) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let now = Instant::now();
        closing.announced_until.take_if(|until| *until <= now);
        if closing.announced_until.is_some() {
            return false;
        }
        if !closing.awaited.is_empty() && now < closing.until {
            return false;
        }
        let Some((grace, pods)) = closing.turns.pop_front() else {
            return closing.leaves && self.tasks.is_empty();
        };
        for uid in &pods {
            if let Some(Entry { updates: Some(updates), .. }) = self.entries.get(uid) {
                let _ = updates.send(Update::End(shutdown::order(grace)));
            }
        }
        closing.until = Instant::now() + grace;
        closing.awaited = pods.into_iter().collect();
        false
    }
}

impl Closing {
    /// When the next have to be told.
    fn wake_at(&self) -> Option<Instant> {
        (!self.turns.is_empty()).then(|| self.announced_until.unwrap_or(self.until))
    }
}

/// Hears what becomes of the Node of this agent. That of one run ends with it, and nobody asks anything of it.
fn own_node(context: &pod::Context) -> BoxStream<'static, WatchedNode> {
    if context.config.is_of_one_run {
        return stream::pending().boxed();
    }
    let fields = Some(format!("metadata.name={}", context.config.node_name));
    let own = Objects { path: Node::url_path(&(), None), fields };
    let events = windlass_watch::follow::<WatchedNode>(context.config.client.clone(), own);
    let nodes = events.filter_map(async |event| match event {
        Event::Apply(node) | Event::InitApply(node) => Some(node),
        Event::Init | Event::InitDone | Event::Delete(_) => None,
    });
    nodes.boxed()
}

fn evicted(message: &str, grace: Duration, disruption: Option<String>) -> Order {
    Order { grace, reason: "Evicted", message: message.to_owned(), disruption }
}

fn preempted() -> Order {
    Order {
        grace: Duration::MAX,
        reason: "Preempting",
        message: "Preempted in order to admit critical pod".to_owned(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
    }
}
