//! What to do next with one pod: which containers to start, to hold back, to ask to stop and to kill.
//!
//! ```text
//!   init containers in order ─► main containers together ─► sidecars stop ─► over
//!          │ fails for good            │ deleted, deadline, shutdown        ▲
//!          └───────────────────────────┴──────── ending: TERM, grace, KILL ─┘
//! ```
//!
//! An ending goes one way: nothing is started any more, and the pod is over when nothing runs.

use std::time::Duration;

use jiff::Timestamp;

use crate::backoff::{Limits, add, go_text};
use crate::container::{
    AfterExit, Before, End, Kind, Plan, PreStop, RESTARTING_ALL, Record, RestartPolicy, State, Waiting,
};
use crate::stopping::{self, Act};

/// Why a pod is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The main containers are done, or an init container has failed for good: only sidecars are left.
    Done,
    /// `spec.activeDeadlineSeconds` has passed.
    DeadlineExceeded,
    /// Somebody deleted the pod, or wrote a terminal phase over our head.
    Deleted,
    /// This node ends it: it shuts down, is short of something, or needs the place.
    Node,
}

/// A pod that is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Why; the first cause stays.
    pub cause: Cause,
    /// When patience runs out.
    pub kill_at: Timestamp,
}

impl Ending {
    /// An ending that begins now.
    pub fn new(cause: Cause, now: Timestamp, grace: Duration) -> Self {
        Self { cause, kill_at: add(now, grace) }
    }

    /// A second request: it can only shorten the grace period.
    pub fn hasten(&mut self, now: Timestamp, grace: Duration) {
        self.kill_at = self.kill_at.min(add(now, grace));
    }
}

/// Everything that the next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// What the containers should do.
    pub plans: &'a [Plan],
    /// What they have done; in the same order.
    pub records: &'a [Record],
    /// Set while the pod is being ended.
    pub ending: Option<&'a Ending>,
    /// All containers are being stopped, to be started again.
    pub is_restarting: bool,
    /// When the pod has been active for too long.
    pub deadline: Option<Timestamp>,
    /// Delays between restarts.
    pub limits: &'a Limits,
    /// `name_namespace(uid)`, for messages.
    pub title: &'a str,
}

/// What to do now. Containers are named by their place in the plans.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Step {
    /// Start these.
    pub start: Vec<usize>,
    /// Write down that these wait for their next start.
    pub hold: Vec<(usize, Waiting)>,
    /// Run the `preStop` hook of these.
    pub pre_stop: Vec<usize>,
    /// Send these SIGTERM.
    pub term: Vec<usize>,
    /// Send these SIGKILL.
    pub kill: Vec<usize>,
    /// Begin to end the pod for this reason, then ask again.
    pub end: Option<Cause>,
    /// Begin or finish a restart of all containers, then ask again.
    pub reset: Option<Reset>,
    /// Nothing runs and nothing will: report the end.
    pub is_over: bool,
    /// Ask again at this time, if nothing happens before.
    pub wake_at: Option<Timestamp>,
}

/// The two ends of a restart of all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Stop what runs.
    Begin,
    /// Nothing runs: forget what the containers did.
    Finish,
}

impl Step {
    fn act(&mut self, place: usize, (act, wake): (Act, Option<Timestamp>)) {
        match act {
            Act::PreStop => self.pre_stop.push(place),
            Act::Term => self.term.push(place),
            Act::Kill => self.kill.push(place),
            Act::Nothing => {}
        }
        if let Some(at) = wake {
            self.wake(at);
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// The next step of a pod.
pub fn next(pod: &Pod<'_>, now: Timestamp) -> Step {
    match pod.ending {
        Some(ending) => next_of_ending(pod, ending, now),
        None => next_of_running(pod, now),
    }
}

fn next_of_running(pod: &Pod<'_>, now: Timestamp) -> Step {
    let mut step = Step::default();
    if is_restart_due(pod) {
        let may_run = pod.records.iter().any(Record::may_run);
        step.reset = match (pod.is_restarting, may_run) {
            (false, _) => Some(Reset::Begin),
            (true, false) => Some(Reset::Finish),
            (true, true) => None,
        };
        stop_each(pod, now, &mut step);
        return step;
    }
    if is_done(pod) {
        step.is_over = !pod.records.iter().any(Record::may_run);
        step.end = (!step.is_over).then_some(Cause::Done);
        return step;
    }
    if let Some(deadline) = pod.deadline {
        if now >= deadline {
            step.end = Some(Cause::DeadlineExceeded);
            return step;
        }
        step.wake(deadline);
    }
    stop_each(pod, now, &mut step);
    // A container that those behind it wait for holds them back, until one of them was started.
    for (place, plan) in pod.plans.iter().enumerate() {
        start_or_hold(pod, place, now, &mut step);
        let record = &pod.records[place];
        let is_passed = match plan.kind {
            Kind::Init => is_work_done(plan, record),
            Kind::Sidecar => record.is_started,
            Kind::Main => true,
        };
        // What an agent before this one started is not there any more: the order begins anew.
        let is_behind_started = || pod.records[place + 1..].iter().any(Record::was_begun_here);
        if !is_passed && !is_behind_started() {
            break;
        }
    }
    step
}

/// Stops containers that have to end by themselves: a probe or a hook failed, or all are started again.
fn stop_each(pod: &Pod<'_>, now: Timestamp, step: &mut Step) {
    for (place, (plan, record)) in pod.plans.iter().zip(pod.records).enumerate() {
        if let Some(kill_at) = record.stop_by.filter(|_| record.may_run()) {
            step.act(place, stopping::next(plan, record, kill_at, true, now));
        }
    }
}

/// Whether all containers are to be started again: a rule of one that ended says so.
fn is_restart_due(pod: &Pod<'_>) -> bool {
    let mut containers = pod.plans.iter().zip(pod.records);
    pod.is_restarting
        || containers.any(|(plan, record)| match &record.state {
            State::Terminated(end) => plan.after(end.exit_code) == AfterExit::RestartAll,
            State::Waiting(_) | State::Starting | State::Running { .. } => false,
        })
}

/// Whether no main container runs or will be started.
fn is_done(pod: &Pod<'_>) -> bool {
    let ended_for_good = |plan: &Plan, record: &Record| match &record.state {
        State::Terminated(end) => !plan.restarts(end.exit_code),
        State::Waiting(_) | State::Starting | State::Running { .. } => false,
    };
    let mut containers = pod.plans.iter().zip(pod.records);
    let is_init_lost = containers.clone().any(|(plan, record)| {
        plan.kind == Kind::Init
            && ended_for_good(plan, record)
            && record.newest_end().is_some_and(|end| !end.is_success())
    });
    is_init_lost || containers.all(|(plan, record)| plan.kind != Kind::Main || ended_for_good(plan, record))
}

/// Whether a container that has ended so is started again. An init container that has done its work is only if all of
/// the pod died with the agent before this one (upstream: it has a new sandbox then).
fn is_started_again(plan: &Plan, record: &Record, end: &End) -> bool {
    match plan.kind {
        Kind::Init if end.is_success() => record.is_inherited && plan.policy != RestartPolicy::Never,
        Kind::Init | Kind::Sidecar | Kind::Main => plan.restarts(end.exit_code),
    }
}

/// Whether an init container lets those behind it begin.
fn is_work_done(plan: &Plan, record: &Record) -> bool {
    match &record.state {
        State::Terminated(end) => end.is_success() && !is_started_again(plan, record, end),
        State::Waiting(_) | State::Starting | State::Running { .. } => false,
    }
}

/// Starts a container whose time has come, or says what it waits for.
fn start_or_hold(pod: &Pod<'_>, place: usize, now: Timestamp, step: &mut Step) {
    let (plan, record) = (&pod.plans[place], &pod.records[place]);
    let due = match &record.state {
        State::Starting | State::Running { .. } => return,
        State::Terminated(end) if !is_started_again(plan, record, end) => return,
        State::Terminated(end) => {
            let (due, delay) = record.backoff.due(end.finished_at, pod.limits);
            if now < due {
                step.hold.push((place, crash_loop(plan, pod.title, delay, due)));
            }
            Some(due)
        }
        State::Waiting(Waiting { reason: None, .. }) => Some(now),
        State::Waiting(Waiting { retry_at, .. }) => *retry_at,
    };
    match due {
        Some(due) if due <= now => step.start.push(place),
        Some(due) => step.wake(due),
        None => {}
    }
}

fn crash_loop(plan: &Plan, title: &str, delay: Duration, due: Timestamp) -> Waiting {
    Waiting {
        reason: Some("CrashLoopBackOff"),
        message: format!("back-off {} restarting failed container={} pod={title}", go_text(delay), plan.name),
        retry_at: Some(due),
    }
}

fn next_of_ending(pod: &Pod<'_>, ending: &Ending, now: Timestamp) -> Step {
    let mut step = Step { is_over: !pod.records.iter().any(Record::may_run), ..Step::default() };
    for (place, (plan, record)) in pod.plans.iter().zip(pod.records).enumerate() {
        if record.may_run() {
            let is_turn = plan.kind != Kind::Sidecar || is_sidecars_turn(pod, place);
            let kill_at = record.stop_by.map_or(ending.kill_at, |own| own.min(ending.kill_at));
            step.act(place, stopping::next(plan, record, kill_at, is_turn, now));
        }
    }
    step
}

/// A sidecar stops after all main containers and all sidecars declared after it.
fn is_sidecars_turn(pod: &Pod<'_>, place: usize) -> bool {
    let mut others = pod.plans.iter().zip(pod.records).enumerate();
    !others.any(|(other, (plan, record))| {
        let is_before = plan.kind == Kind::Main || (plan.kind == Kind::Sidecar && other > place);
        is_before && record.may_run()
    })
}

/// Writes a start into the record, and returns the number of this run, from 0.
pub fn started(record: &mut Record, now: Timestamp, limits: &Limits) -> i32 {
    if let State::Terminated(end) = &record.state {
        record.last = Some(end.clone());
    }
    let Record { restart_count, backoff, is_inherited, .. } = *record;
    if let Some(end) = &record.last {
        record.restart_count += 1;
        record.backoff.restarted(end.finished_at, now, limits);
    }
    *record = Record {
        state: State::Starting,
        last: record.last.take(),
        restart_count: record.restart_count,
        backoff: record.backoff,
        before: Before { restart_count, backoff, is_inherited },
        container_id: std::mem::take(&mut record.container_id),
        image_id: record.image_id.take(),
        ..Record::default()
    };
    record.restart_count
}

/// Writes down that a start came to nothing by no fault of the container: the next one is of the same run.
pub fn not_started(record: &mut Record, waiting: Waiting) {
    let Before { restart_count, backoff, is_inherited } = record.before;
    (record.restart_count, record.backoff, record.is_inherited) = (restart_count, backoff, is_inherited);
    record.state = State::Waiting(waiting);
}

/// Writes down that a container runs: its process is there, and its `postStart` hook is done.
pub fn runs(plan: &Plan, record: &mut Record, now: Timestamp) {
    record.state = State::Running { started_at: record.began_at.unwrap_or(now) };
    if !plan.checks.startup {
        has_started(plan, record);
    }
}

/// Writes down that a container has started: its startup probe has succeeded, or it has none.
pub fn has_started(plan: &Plan, record: &mut Record) {
    record.is_started = true;
    record.is_ready = !plan.checks.readiness;
}

/// Begins a restart of all containers: what runs has to stop now.
pub fn begin_reset(records: &mut [Record], now: Timestamp) {
    for record in records.iter_mut().filter(|record| record.may_run()) {
        record.stop_by = Some(now);
    }
}

/// Ends it: whatever the containers did is behind them (upstream shows the same end for all that ever ran). A container
/// whose end was the reason keeps its back-off; returns those that have to wait for it.
pub fn finish_reset(
    plans: &[Plan],
    records: &mut [Record],
    limits: &Limits,
    title: &str,
    now: Timestamp,
) -> Vec<usize> {
    let message = "The container is removed because RestartAllContainers in place";
    let mut held_back = Vec::new();
    for (place, record) in records.iter_mut().enumerate().filter(|(_, record)| record.was_begun()) {
        let plan = &plans[place];
        let due = match &record.state {
            State::Terminated(end) if plan.after(end.exit_code) == AfterExit::RestartAll => {
                Some(record.backoff.due(end.finished_at, limits))
            }
            State::Terminated(_) | State::Waiting(_) | State::Starting | State::Running { .. } => None,
        };
        let waiting = match due {
            Some((due, delay)) if now < due => {
                held_back.push(place);
                crash_loop(plan, title, delay, due)
            }
            _ => Waiting { reason: Some(RESTARTING_ALL), message: message.into(), retry_at: Some(now) },
        };
        let end = End { reason: RESTARTING_ALL.into(), ..End::unknown(now, message) };
        *record = Record {
            last: Some(end),
            restart_count: record.restart_count,
            backoff: due.map(|_| record.backoff).unwrap_or_default(),
            container_id: std::mem::take(&mut record.container_id),
            image_id: record.image_id.take(),
            state: State::Waiting(waiting),
            ..Record::default()
        };
    }
    held_back
}

/// Writes down that a hook of a container that is being stopped is over.
pub fn pre_stop_done(record: &mut Record) {
    record.pre_stop = PreStop::Done;
}

/// Writes down that a container waits.
pub fn held(record: &mut Record, waiting: Waiting) {
    if let State::Terminated(end) = &record.state {
        record.last = Some(end.clone());
    }
    record.state = State::Waiting(waiting);
}

/// Gives every container of a pod that is over its last state (upstream: TerminatePod).
///
/// A container that waited for a restart shows its last end. One that should have run and never did is
/// reported as not found: all main containers once the init containers were done, else the init containers up
/// to the last that was started.
pub fn conclude(plans: &[Plan], records: &mut [Record], now: Timestamp) {
    for record in records.iter_mut() {
        if matches!(record.state, State::Waiting(_))
            && let Some(end) = record.last.take()
        {
            record.state = State::Terminated(end);
        }
    }
    let is_init = |place: &usize| plans[*place].kind != Kind::Main;
    let inits: Vec<usize> = (0..plans.len()).filter(is_init).collect();
    let last_started = inits.iter().rposition(|place| records[*place].has_started()).unwrap_or(0);
    let inits_are_done = inits.last().is_none_or(|last| match plans[*last].kind {
        Kind::Init => records[*last].newest_end().is_some_and(End::is_success),
        Kind::Sidecar | Kind::Main => records[*last].has_started(),
    });
    let message = "The container could not be located when the pod was terminated";
    for (place, record) in records.iter_mut().enumerate() {
        let should_have_run = match plans[place].kind {
            Kind::Main => inits_are_done,
            Kind::Init | Kind::Sidecar => place <= last_started,
        };
        if should_have_run && !matches!(record.state, State::Terminated(_)) {
            record.state = State::Terminated(End::unknown(now, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::RestartPolicy::{self, Always, Never, OnFailure};
    use crate::container::fixtures::{at, ended, plan, running, waiting};

    fn step(
        policy: RestartPolicy,
        containers: &[(Kind, Record)],
        ending: Option<Ending>,
        deadline: Option<i64>,
        now: i64,
    ) -> Step {
        let names = ["a", "b", "c", "d"];
        let plans: Vec<Plan> = containers
            .iter()
            .zip(names)
            .map(|((kind, _), name)| plan(name, *kind, if *kind == Kind::Sidecar { Always } else { policy }))
            .collect();
        let records: Vec<Record> = containers.iter().map(|(_, record)| record.clone()).collect();
        let pod = Pod {
            plans: &plans,
            records: &records,
            ending: ending.as_ref(),
            is_restarting: false,
            deadline: deadline.map(at),
            limits: &Limits::default(),
            title: "p_ns(u)",
        };
        next(&pod, at(now))
    }

    fn starts(places: &[usize]) -> Step {
        Step { start: places.to_vec(), ..Step::default() }
    }

    #[test]
    fn containers_start_in_their_order() {
        use Kind::{Init, Main, Sidecar};
        for (containers, want) in [
            (vec![(Main, waiting()), (Main, waiting())], starts(&[0, 1])),
            (vec![(Init, waiting()), (Init, waiting()), (Main, waiting())], starts(&[0])),
            (vec![(Init, running()), (Init, waiting()), (Main, waiting())], starts(&[])),
            (vec![(Init, ended(0)), (Init, waiting()), (Main, waiting())], starts(&[1])),
            (vec![(Init, ended(0)), (Init, ended(0)), (Main, waiting())], starts(&[2])),
            (vec![(Sidecar, waiting()), (Init, waiting()), (Main, waiting())], starts(&[0])),
            (vec![(Sidecar, running()), (Init, waiting()), (Main, waiting())], starts(&[1])),
            (vec![(Sidecar, running()), (Init, ended(0)), (Main, waiting())], starts(&[2])),
            // A sidecar that ended is started again; the init container behind it had its turn.
            (vec![(Sidecar, ended(1)), (Init, running()), (Main, waiting())], starts(&[0])),
            (vec![(Sidecar, ended(0)), (Main, running())], starts(&[0])),
        ] {
            assert_eq!(step(Never, &containers, None, None, 20), want, "{containers:?}");
        }
    }

    #[test]
    fn the_pod_is_over_when_its_work_is_done_and_sidecars_are_stopped_first() {
        use Kind::{Init, Main, Sidecar};
        let over = Step { is_over: true, ..Step::default() };
        let end = Step { end: Some(Cause::Done), ..Step::default() };
        for (containers, want) in [
            (vec![(Main, ended(0))], &over),
            (vec![(Main, ended(1)), (Main, ended(0))], &over),
            (vec![(Main, ended(1)), (Main, running())], &Step::default()),
            (vec![(Init, ended(1)), (Main, waiting())], &over),
            (vec![(Sidecar, running()), (Main, ended(0))], &end),
            (vec![(Sidecar, running()), (Init, ended(3)), (Main, waiting())], &end),
            (vec![(Sidecar, ended(0)), (Main, ended(0))], &over),
        ] {
            assert_eq!(step(Never, &containers, None, None, 20), *want, "{containers:?}");
        }
    }

    #[test]
    fn a_failed_container_restarts_at_once_and_then_after_a_back_off() {
        let mut record = ended(1);
        let main = |record: &Record| [(Kind::Main, record.clone())];
        assert_eq!(step(OnFailure, &main(&record), None, None, 10), starts(&[0]));
        assert_eq!(started(&mut record, at(10), &Limits::default()), 1);
        record.state = State::Terminated(crate::container::fixtures::end(1, 11));
        let held_back = step(OnFailure, &main(&record), None, None, 12);
        let waiting = Waiting {
            reason: Some("CrashLoopBackOff"),
            message: "back-off 10s restarting failed container=a pod=p_ns(u)".into(),
            retry_at: Some(at(21)),
        };
        assert_eq!(
            held_back,
            Step { hold: vec![(0, waiting.clone())], wake_at: Some(at(21)), ..Step::default() }
        );
        held(&mut record, waiting);
        assert_eq!(record.restart_count, 1);
        let still = step(OnFailure, &main(&record), None, None, 20);
        assert_eq!(still, Step { wake_at: Some(at(21)), ..Step::default() });
        assert_eq!(step(OnFailure, &main(&record), None, None, 21), starts(&[0]));
        assert_eq!(started(&mut record, at(21), &Limits::default()), 2);
        assert_eq!(record.last.as_ref().map(|end| end.finished_at), Some(at(11)));
    }

    #[test]
    fn a_container_that_cannot_be_made_waits_for_its_retry_or_for_ever() {
        let stuck = |retry_at| {
            let waiting = Waiting { reason: Some("CreateContainerError"), message: "m".into(), retry_at };
            [(Kind::Main, Record { state: State::Waiting(waiting), ..Record::default() })]
        };
        assert_eq!(step(Never, &stuck(None), None, None, 20), Step::default());
        let later = Step { wake_at: Some(at(30)), ..Step::default() };
        assert_eq!(step(Never, &stuck(Some(at(30))), None, None, 20), later);
        assert_eq!(step(Never, &stuck(Some(at(30))), None, None, 30), starts(&[0]));
    }

    #[test]
    fn the_deadline_ends_the_pod() {
        let main = [(Kind::Main, running())];
        let before = Step { wake_at: Some(at(30)), ..Step::default() };
        assert_eq!(step(Never, &main, None, Some(30), 29), before);
        let after = Step { end: Some(Cause::DeadlineExceeded), ..Step::default() };
        assert_eq!(step(Never, &main, None, Some(30), 30), after);
    }

    #[test]
    fn a_restart_of_all_stops_everything_and_begins_with_the_init_containers() {
        use crate::container::RestartRule;
        let rule = RestartRule { is_in: true, codes: vec![7], then: AfterExit::RestartAll };
        let mut plans =
            [plan("i", Kind::Init, Never), plan("c", Kind::Main, Never), plan("d", Kind::Main, Never)];
        plans[1].rules = vec![rule];
        let mut records = vec![ended(0), ended(7), running()];
        let next = |records: &[Record], is_restarting: bool| {
            let limits = Limits::default();
            let pod = Pod {
                plans: &plans,
                records,
                ending: None,
                is_restarting,
                deadline: None,
                limits: &limits,
                title: "p_ns(u)",
            };
            next(&pod, at(20))
        };
        assert_eq!(next(&records, false), Step { reset: Some(Reset::Begin), ..Step::default() });
        begin_reset(&mut records, at(20));
        assert_eq!(next(&records, true), Step { term: vec![2], wake_at: Some(at(22)), ..Step::default() });
        records[2] = ended(143);
        assert_eq!(next(&records, true), Step { reset: Some(Reset::Finish), ..Step::default() });
        let reset = |records: &mut [Record], now: i64| {
            finish_reset(&plans, records, &Limits::default(), "p_ns(u)", at(now))
        };
        assert_eq!(reset(&mut records, 20), [0; 0], "the first restart does not wait");
        assert_eq!(next(&records, false), starts(&[0]));
        assert_eq!(crate::phase::of(&plans, &records, false), crate::phase::Phase::Pending);
        assert_eq!(started(&mut records[0], at(20), &Limits::default()), 1);
        records[0].state = State::Terminated(crate::container::fixtures::end(0, 21));
        assert_eq!(next(&records, false), starts(&[1, 2]));

        // It ends in the same way again, and has to wait; the others need not.
        assert_eq!(started(&mut records[1], at(20), &Limits::default()), 1);
        records[1].state = State::Terminated(crate::container::fixtures::end(7, 20));
        assert_eq!(next(&records, false), Step { reset: Some(Reset::Begin), ..Step::default() });
        begin_reset(&mut records, at(20));
        assert_eq!(reset(&mut records, 20), [1]);
        let waiting = Waiting {
            reason: Some("CrashLoopBackOff"),
            message: "back-off 10s restarting failed container=c pod=p_ns(u)".into(),
            retry_at: Some(at(30)),
        };
        assert_eq!(records[1].state, State::Waiting(waiting));
        assert_eq!(next(&records, false), starts(&[0]));
        assert_eq!(started(&mut records[0], at(20), &Limits::default()), 2);
        records[0].state = State::Terminated(crate::container::fixtures::end(0, 20));
        assert_eq!(next(&records, false), Step { start: vec![2], wake_at: Some(at(30)), ..Step::default() });
        assert_eq!(started(&mut records[1], at(30), &Limits::default()), 2);
        records[1].state = State::Terminated(crate::container::fixtures::end(7, 31));
        assert_eq!(reset(&mut records, 31), [1]);
        let State::Waiting(waiting) = &records[1].state else { panic!("it waits") };
        assert_eq!(waiting.retry_at, Some(at(51)), "twice as long each time");
    }

    #[test]
    fn a_start_that_comes_to_nothing_is_tried_again_as_the_same_run() {
        let limits = Limits::default();
        let gone =
            || Waiting { reason: Some("CreateContainerError"), retry_at: Some(at(13)), ..Waiting::default() };
        let mut record = Record { is_inherited: true, ..ended(1) };
        for now in [11, 12, 13] {
            assert_eq!((record.next_run(), started(&mut record, at(now), &limits)), (1, 1));
            assert_eq!((record.restart_count, record.is_inherited), (1, false));
            not_started(&mut record, gone());
            assert_eq!((record.restart_count, record.is_inherited), (0, true));
            assert_eq!((&record.state, record.backoff), (&State::Waiting(gone()), Default::default()));
        }
        started(&mut record, at(14), &limits);
        assert_eq!(record.backoff.due(at(15), &limits), (at(25), Duration::from_secs(10)), "one restart");

        let mut first = waiting();
        assert_eq!((started(&mut first, at(1), &limits), first.restart_count), (0, 0));
        not_started(&mut first, gone());
        assert_eq!((first.next_run(), first.restart_count, first.was_begun()), (0, 0, false));
    }

    #[test]
    fn a_pod_that_died_with_its_agent_begins_anew_in_its_order() {
        use Kind::{Init, Main, Sidecar};
        let dead = |record: Record| Record { is_inherited: true, ..record };
        let rerun = |second| {
            let mut record = dead(ended(0));
            started(&mut record, at(second), &Limits::default());
            record
        };
        let begun = |second| Record {
            is_started: false,
            state: State::Running { started_at: at(second) },
            ..rerun(second)
        };
        for (containers, want) in [
            (vec![(Sidecar, dead(ended(137))), (Main, dead(ended(137)))], starts(&[0])),
            (vec![(Sidecar, begun(11)), (Main, dead(ended(137)))], starts(&[])),
            (vec![(Sidecar, running()), (Main, dead(ended(137)))], starts(&[1])),
            // From then on it is as always: the sidecar that ends is started again beside the others.
            (vec![(Sidecar, ended(137)), (Main, running())], starts(&[0])),
            (vec![(Sidecar, ended(137)), (Main, ended(137))], starts(&[0, 1])),
            // Init containers do their work again, before anything else.
            (vec![(Init, dead(ended(0))), (Main, dead(ended(137)))], starts(&[0])),
            (vec![(Init, rerun(11)), (Main, dead(ended(137)))], starts(&[])),
            (vec![(Init, begun(11)), (Main, dead(ended(137)))], starts(&[])),
            (vec![(Init, ended(0)), (Main, dead(ended(137)))], starts(&[1])),
            (
                vec![(Init, dead(ended(0))), (Sidecar, dead(ended(137))), (Main, dead(waiting()))],
                starts(&[0]),
            ),
            // What has done its work is done.
            (vec![(Init, dead(ended(0))), (Main, dead(ended(0)))], Step { is_over: true, ..Step::default() }),
            (vec![(Main, dead(ended(0))), (Main, dead(ended(137)))], starts(&[1])),
        ] {
            assert_eq!(step(OnFailure, &containers, None, None, 20), want, "{containers:?}");
        }
        // A pod that is not started again goes on where it was.
        let never = [(Init, dead(ended(0))), (Main, dead(waiting()))];
        assert_eq!(step(Never, &never, None, None, 20), starts(&[1]));
        let mut lost = rerun(11);
        not_started(&mut lost, Waiting { reason: Some("CreateContainerError"), ..Waiting::default() });
        let lost = [(Init, lost), (Main, dead(ended(137)))];
        assert_eq!(step(OnFailure, &lost, None, None, 20), starts(&[]), "its work was not done again");
    }

    fn termed(second: i64) -> Record {
        Record { term_sent_at: Some(at(second)), ..running() }
    }

    #[test]
    fn an_ending_asks_waits_and_kills_and_starts_nothing() {
        use Kind::{Init, Main};
        let ending = Some(Ending::new(Cause::Deleted, at(100), Duration::from_secs(30)));
        let wake = |second| Some(at(second));
        for (containers, now, want) in [
            (vec![(Main, waiting())], 100, Step { is_over: true, ..Step::default() }),
            (vec![(Init, ended(0)), (Main, waiting())], 100, Step { is_over: true, ..Step::default() }),
            (
                vec![(Main, running()), (Main, running())],
                100,
                Step { term: vec![0, 1], wake_at: wake(130), ..Step::default() },
            ),
            (vec![(Main, termed(100))], 129, Step { wake_at: wake(130), ..Step::default() }),
            (vec![(Main, termed(100))], 130, Step { kill: vec![0], ..Step::default() }),
            (vec![(Main, Record { is_kill_sent: true, ..termed(100) })], 131, Step::default()),
            (vec![(Main, ended(143)), (Main, ended(0))], 131, Step { is_over: true, ..Step::default() }),
            (
                vec![(Init, running()), (Main, waiting())],
                100,
                Step { term: vec![0], wake_at: wake(130), ..Step::default() },
            ),
        ] {
            assert_eq!(step(OnFailure, &containers, ending, None, now), want, "{containers:?} at {now}");
        }
    }

    #[test]
    fn sidecars_stop_last_first_after_the_main_containers_or_when_the_grace_is_gone() {
        use Kind::{Main, Sidecar};
        let ending = Some(Ending::new(Cause::Deleted, at(100), Duration::from_secs(30)));
        let wake = |second| Some(at(second));
        for (containers, now, want) in [
            (
                [(Sidecar, running()), (Sidecar, running()), (Main, running())],
                100,
                Step { term: vec![2], wake_at: wake(130), ..Step::default() },
            ),
            (
                [(Sidecar, running()), (Sidecar, running()), (Main, ended(0))],
                105,
                Step { term: vec![1], wake_at: wake(130), ..Step::default() },
            ),
            (
                [(Sidecar, running()), (Sidecar, ended(0)), (Main, ended(0))],
                106,
                Step { term: vec![0], wake_at: wake(130), ..Step::default() },
            ),
            // No time left: the sidecars are asked together and still get the least grace.
            (
                [(Sidecar, running()), (Sidecar, running()), (Main, termed(100))],
                130,
                Step { term: vec![0, 1], kill: vec![2], wake_at: wake(132), ..Step::default() },
            ),
            (
                [(Sidecar, termed(130)), (Sidecar, ended(0)), (Main, ended(137))],
                131,
                Step { wake_at: wake(132), ..Step::default() },
            ),
        ] {
            assert_eq!(step(Never, &containers, ending, None, now), want, "{containers:?} at {now}");
        }
    }

    #[test]
    fn a_pod_that_is_over_has_no_container_left_in_the_dark() {
        use Kind::{Init, Main, Sidecar};
        let lost = || Record {
            state: State::Terminated(End::unknown(
                at(50),
                "The container could not be located when the pod was terminated",
            )),
            ..Record::default()
        };
        for (before, after) in [
            (vec![(Main, waiting())], vec![lost()]),
            (vec![(Main, ended(0)), (Main, waiting())], vec![ended(0), lost()]),
            (vec![(Main, crate::container::fixtures::crashing(3))], vec![ended(3)]),
            (vec![(Init, waiting()), (Main, waiting())], vec![lost(), waiting()]),
            (
                vec![(Init, ended(1)), (Init, waiting()), (Main, waiting())],
                vec![ended(1), waiting(), waiting()],
            ),
            (vec![(Init, ended(0)), (Main, waiting())], vec![ended(0), lost()]),
            (vec![(Sidecar, ended(143)), (Main, waiting())], vec![ended(143), lost()]),
        ] {
            let plans: Vec<Plan> = before.iter().map(|(kind, _)| plan("c", *kind, Never)).collect();
            let mut records: Vec<Record> = before.iter().map(|(_, record)| record.clone()).collect();
            conclude(&plans, &mut records, at(50));
            assert_eq!(records, after, "{before:?}");
        }
    }

    #[test]
    fn the_grace_can_be_shortened_not_lengthened_and_two_seconds_remain() {
        let mut ending = Ending::new(Cause::Deleted, at(100), Duration::from_secs(30));
        ending.hasten(at(105), Duration::from_secs(60));
        assert_eq!(ending.kill_at, at(130));
        ending.hasten(at(105), Duration::from_secs(5));
        assert_eq!(ending.kill_at, at(110));
        let none = Some(Ending::new(Cause::Deleted, at(100), Duration::ZERO));
        let asked = step(Never, &[(Kind::Main, running())], none, None, 100);
        assert_eq!(asked, Step { term: vec![0], wake_at: Some(at(102)), ..Step::default() });
        let patient = step(Never, &[(Kind::Main, termed(100))], none, None, 101);
        assert_eq!(patient, Step { wake_at: Some(at(102)), ..Step::default() });
    }
}
