//! What is known about the containers of one pod: what they should do (`Plan`) and what they have done
//! (`Record`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, PodSpec};

use crate::backoff::Backoff;

/// Why a container's end is not known, and its exit code: the one of SIGKILL.
pub const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// Why a container ended that had to, for all of its pod is started again.
pub const RESTARTING_ALL: &str = "RestartingAllContainers";
/// A process of the container was killed because its memory limit was reached.
pub const OOM_KILLED: &str = "OOMKilled";
/// The exit code of a container that could not be found.
pub const UNKNOWN_EXIT_CODE: i32 = 137;

/// The part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in order, kept until the main containers are
    /// done.
    Sidecar,
    /// One of `spec.containers`.
    Main,
}

/// When a container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// After every end.
    Always,
    /// After an end with an exit code other than 0.
    OnFailure,
    /// After none.
    Never,
}

impl RestartPolicy {
    /// Reads the API's word; whatever is not known counts as the API's default.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `exit_code` is started again.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// A restart rule of a container: exit codes that restart it whatever its policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// True for `In`, false for `NotIn`.
    pub is_in: bool,
    /// The exit codes.
    pub codes: Vec<i32>,
    /// What then: [`AfterExit::Restart`] or [`AfterExit::RestartAll`].
    pub then: AfterExit,
}

/// What follows the end of a container in a pod that is not being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    /// Nothing.
    Stay,
    /// It is started again.
    Restart,
    /// All containers of the pod are started again, init containers first.
    RestartAll,
}

/// What else is to be done for a container, besides running its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Checks {
    /// It has a `startupProbe`.
    pub startup: bool,
    /// It has a `readinessProbe`.
    pub readiness: bool,
    /// It has a `lifecycle.postStart`.
    pub post_start: bool,
    /// It has a `lifecycle.preStop`.
    pub pre_stop: bool,
}

impl Checks {
    fn of(container: &Container) -> Self {
        let hooks = container.lifecycle.as_ref();
        Self {
            startup: container.startup_probe.is_some(),
            readiness: container.readiness_probe.is_some(),
            post_start: hooks.is_some_and(|hooks| hooks.post_start.is_some()),
            pre_stop: hooks.is_some_and(|hooks| hooks.pre_stop.is_some()),
        }
    }
}

/// What one container of a pod should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its part.
    pub kind: Kind,
    /// Its own restart policy if it has one, else the pod's.
    pub policy: RestartPolicy,
    /// Looked at before the policy.
    pub rules: Vec<RestartRule>,
    /// Its probes and hooks.
    pub checks: Checks,
}

impl Plan {
    /// The plans of all containers of a pod: init containers in their order, then main containers.
    pub fn of(spec: &PodSpec) -> Vec<Self> {
        let pod = RestartPolicy::parse(spec.restart_policy.as_deref());
        let inits = spec.init_containers.iter().flatten().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            Self::of_container(container, if is_sidecar { Kind::Sidecar } else { Kind::Init }, pod)
        });
        let mains = spec.containers.iter().map(|container| Self::of_container(container, Kind::Main, pod));
        inits.chain(mains).collect()
    }

    fn of_container(container: &Container, kind: Kind, pod: RestartPolicy) -> Self {
        let own = container.restart_policy.as_deref();
        let policy = match (kind, own, pod) {
            (_, Some(own), _) => RestartPolicy::parse(Some(own)),
            // An init container that has succeeded is done, also in a pod that restarts always.
            (Kind::Init, None, RestartPolicy::Always) => RestartPolicy::OnFailure,
            (_, None, pod) => pod,
        };
        // Rules count only beside a policy of the container's own.
        let rules = container.restart_policy_rules.iter().flatten().filter(|_| own.is_some());
        let action = |action: &str| match action {
            "RestartAllContainers" => AfterExit::RestartAll,
            _ => AfterExit::Restart,
        };
        let rules = rules.filter_map(|rule| Some((rule.exit_codes.as_ref()?, action(&rule.action))));
        let rules = rules.map(|(codes, then)| RestartRule {
            is_in: codes.operator == "In",
            codes: codes.values.clone().unwrap_or_default(),
            then,
        });
        let checks = Checks::of(container);
        Self { name: container.name.clone(), kind, policy, rules: rules.collect(), checks }
    }

    /// What follows when it ends with `exit_code` in a pod that is not being ended: the first rule that fits, else
    /// its policy.
    pub fn after(&self, exit_code: i32) -> AfterExit {
        let rule = self.rules.iter().find(|rule| rule.codes.contains(&exit_code) == rule.is_in);
        match rule {
            Some(rule) => rule.then,
            None if self.policy.restarts(exit_code) => AfterExit::Restart,
            None => AfterExit::Stay,
        }
    }

    /// Whether the container is started again after it ended with `exit_code` in a pod that is not being
    /// ended.
    pub fn restarts(&self, exit_code: i32) -> bool {
        self.after(exit_code) != AfterExit::Stay
    }

    /// The same for an end, which may have been no doing of its own.
    pub fn restarts_after(&self, end: &End) -> bool {
        end.reason == RESTARTING_ALL || self.restarts(end.exit_code)
    }
}

/// How one run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code; 128 + N for signal N.
    pub exit_code: i32,
    /// `Completed`, `Error`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// The termination message; may be empty.
    pub message: String,
    /// When it started; `None` if it never ran.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// The id of the run; empty if it never ran.
    pub container_id: String,
}

impl End {
    /// Whether an init container that ended so has done its work; one of which a part ran out of memory has not.
    pub fn is_success(&self) -> bool {
        self.exit_code == 0 && self.reason != OOM_KILLED
    }

    /// The end of a container of which nothing is known but that it does not run.
    pub fn unknown(now: Timestamp, message: &str) -> Self {
        Self {
            exit_code: UNKNOWN_EXIT_CODE,
            reason: STATUS_UNKNOWN.into(),
            message: message.into(),
            started_at: None,
            finished_at: now,
            container_id: String::new(),
        }
    }
}

/// What a container does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started, or not started again.
    Waiting(Waiting),
    /// A start was asked for and is not yet confirmed; reported as waiting.
    Starting,
    /// It runs.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// It has ended.
    Terminated(End),
}

/// Why a container is not running yet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Waiting {
    /// The API's reason; `None` for the usual one of a container whose turn has not come.
    pub reason: Option<&'static str>,
    /// More about it.
    pub message: String,
    /// When to try again; `None` when nothing is to be tried by time.
    pub retry_at: Option<Timestamp>,
}

/// How far the `preStop` hook of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PreStop {
    /// Not begun.
    #[default]
    Idle,
    /// Begun.
    Running,
    /// Over, well or not.
    Done,
}

/// What a start changes besides the state, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Before {
    /// How often the container was started again.
    pub restart_count: i32,
    /// How long its next restart had to wait.
    pub backoff: Backoff,
    /// Whether an agent before this one started it last.
    pub is_inherited: bool,
}

/// What one container has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it does now.
    pub state: State,
    /// The end of the run before.
    pub last: Option<End>,
    /// How often it was started again.
    pub restart_count: i32,
    /// How long the next restart has to wait.
    pub backoff: Backoff,
    /// What is told here was done under an agent before this one, and died with it.
    pub is_inherited: bool,
    /// What the last start has changed, should it come to nothing.
    pub before: Before,
    /// The id of the run that is going on, or of the last one.
    pub container_id: String,
    /// The image of that run, by its digest.
    pub image_id: Option<String>,
    /// When SIGTERM was sent to this run.
    pub term_sent_at: Option<Timestamp>,
    /// SIGKILL was sent to this run.
    pub is_kill_sent: bool,
    /// When the process of this run was there; its `postStart` hook may still be under way.
    pub began_at: Option<Timestamp>,
    /// It runs, and its startup probe has succeeded if it has one.
    pub is_started: bool,
    /// It is started, and its readiness probe says so if it has one.
    pub is_ready: bool,
    /// How far its `preStop` hook is.
    pub pre_stop: PreStop,
    /// This run has to end by itself, whatever the pod does, and gets SIGKILL at this time.
    pub stop_by: Option<Timestamp>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            state: State::Waiting(Waiting::default()),
            last: None,
            restart_count: 0,
            backoff: Backoff::default(),
            is_inherited: false,
            before: Before::default(),
            container_id: String::new(),
            image_id: None,
            term_sent_at: None,
            is_kill_sent: false,
            began_at: None,
            is_started: false,
            is_ready: false,
            pre_stop: PreStop::Idle,
            stop_by: None,
        }
    }
}

impl Record {
    /// What an agent that has just started makes of a status that its predecessor wrote: nothing of it runs
    /// any more.
    pub fn inherited(status: &ContainerStatus, now: Timestamp) -> Self {
        let last = status.last_state.as_ref().and_then(end_of);
        let record = Self {
            restart_count: status.restart_count,
            container_id: status.container_id.clone().unwrap_or_default(),
            image_id: Some(status.image_id.clone()).filter(|id| !id.is_empty()),
            is_inherited: true,
            last,
            ..Self::default()
        };
        let Some(state) = &status.state else { return record };
        if let Some(end) = end_of(state) {
            return Self { state: State::Terminated(end), ..record };
        }
        if state.running.is_some() {
            let message = "The container could not be located when the pod was deleted.  The container used to be Running";
            return Self { state: State::Terminated(End::unknown(now, message)), ..record };
        }
        record
    }

    /// The number of the run that comes next, from 0.
    pub fn next_run(&self) -> i32 {
        self.restart_count + i32::from(self.newest_end().is_some())
    }

    /// The record of a container with runs that were begun by agents that died before they could say so: one each, of
    /// agents that died one after the other. `is_begun` knows of a run by its number.
    pub fn with_unreported(self, is_begun: impl Fn(i32) -> bool, now: Timestamp) -> Self {
        let mut record = self;
        while is_begun(record.next_run()) {
            record = record.lost_before_report(now);
        }
        record
    }

    fn lost_before_report(self, now: Timestamp) -> Self {
        let restart_count = self.next_run();
        let last = self.newest_end().cloned();
        let message =
            "The container could not be located when the pod was deleted.  The container used to be Running";
        let state = State::Terminated(End::unknown(now, message));
        Self { state, last, restart_count, is_inherited: true, ..self }
    }

    /// Whether a process of it may be there.
    pub fn may_run(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { .. })
    }

    /// The end of the newest run, if that run is over.
    pub fn newest_end(&self) -> Option<&End> {
        match &self.state {
            State::Terminated(end) => Some(end),
            State::Waiting(_) | State::Starting => self.last.as_ref(),
            State::Running { .. } => None,
        }
    }

    /// Whether a start of it has been asked for since the pod began, or began anew.
    pub fn was_begun(&self) -> bool {
        let is_behind = |end: &End| end.reason == RESTARTING_ALL;
        !matches!(self.state, State::Waiting(_)) || self.last.as_ref().is_some_and(|end| !is_behind(end))
    }

    /// The same, by this agent.
    pub fn was_begun_here(&self) -> bool {
        self.was_begun() && !self.is_inherited
    }

    /// Whether it has to stop, or was asked to: people know it then.
    pub fn is_stopping(&self) -> bool {
        self.stop_by.is_some() || self.pre_stop != PreStop::Idle || self.term_sent_at.is_some()
    }

    /// Whether it has ever been started.
    pub fn has_started(&self) -> bool {
        !matches!(self.state, State::Waiting(_) | State::Starting) || self.last.is_some()
    }
}

fn end_of(state: &ContainerState) -> Option<End> {
    let ended = state.terminated.as_ref()?;
    let finished_at = ended.finished_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(End {
        exit_code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone().unwrap_or_default(),
        started_at: ended.started_at.as_ref().map(|time| time.0),
        finished_at,
        container_id: ended.container_id.clone().unwrap_or_default(),
    })
}

/// Short ways to write plans and records in tables.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time of this age")
    }

    pub(crate) fn plan(name: &str, kind: Kind, policy: RestartPolicy) -> Plan {
        Plan { name: name.into(), kind, policy, rules: Vec::new(), checks: Checks::default() }
    }

    pub(crate) fn end(exit_code: i32, finished: i64) -> End {
        End {
            exit_code,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
            message: String::new(),
            started_at: Some(at(0)),
            finished_at: at(finished),
            container_id: "host://1".into(),
        }
    }

    pub(crate) fn waiting() -> Record {
        Record::default()
    }

    pub(crate) fn running() -> Record {
        let began_at = Some(at(0));
        Record {
            state: State::Running { started_at: at(0) },
            began_at,
            is_started: true,
            is_ready: true,
            ..Record::default()
        }
    }

    pub(crate) fn ended(exit_code: i32) -> Record {
        Record { state: State::Terminated(end(exit_code, 10)), ..Record::default() }
    }

    pub(crate) fn crashing(exit_code: i32) -> Record {
        Record { last: Some(end(exit_code, 10)), ..Record::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fixtures::at;
    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).expect("a pod spec")
    }

    #[test]
    fn plans_stand_in_the_order_of_starting_with_the_policy_that_counts() {
        let spec = spec(json!({
            "restartPolicy": "Always",
            "initContainers": [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}, {"name": "c", "restartPolicy": "Never"}],
            "containers": [{"name": "d"}, {"name": "e", "restartPolicy": "OnFailure"}],
        }));
        let got: Vec<_> =
            Plan::of(&spec).into_iter().map(|plan| (plan.name, plan.kind, plan.policy)).collect();
        assert_eq!(
            got,
            [
                ("a".into(), Kind::Init, RestartPolicy::OnFailure),
                ("b".into(), Kind::Sidecar, RestartPolicy::Always),
                ("c".into(), Kind::Init, RestartPolicy::Never),
                ("d".into(), Kind::Main, RestartPolicy::Always),
                ("e".into(), Kind::Main, RestartPolicy::OnFailure),
            ]
        );
    }

    #[test]
    fn restart_is_decided_by_rules_then_by_policy() {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42, 43]}}]);
        let others = json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [1]}}]);
        for (pod, own, rules, code, want) in [
            ("Never", None, json!(null), 1, false),
            ("OnFailure", None, json!(null), 0, false),
            ("OnFailure", None, json!(null), 1, true),
            ("Always", None, json!(null), 0, true),
            ("Never", Some("Never"), rules.clone(), 42, true),
            ("Never", Some("Never"), rules.clone(), 1, false),
            ("Never", Some("Never"), others.clone(), 1, false),
            ("Never", Some("Never"), others, 2, true),
            ("Never", None, rules, 42, false),
            ("Always", Some("Never"), json!(null), 1, false),
        ] {
            let spec = spec(json!({
                "restartPolicy": pod,
                "containers": [{"name": "c", "restartPolicy": own, "restartPolicyRules": rules}],
            }));
            assert_eq!(Plan::of(&spec)[0].restarts(code), want, "{pod} {own:?} {rules} {code}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_says_what_follows() {
        let rule = |action: &str, operator: &str, codes: &[i32]| json!({"action": action, "exitCodes": {"operator": operator, "values": codes}});
        let spec = spec(json!({
            "restartPolicy": "Never",
            "containers": [{"name": "c", "restartPolicy": "OnFailure", "restartPolicyRules": [
                rule("RestartAllContainers", "In", &[7]), rule("Restart", "In", &[0, 7]),
            ]}],
        }));
        let plan = &Plan::of(&spec)[0];
        for (code, want) in [(7, AfterExit::RestartAll), (0, AfterExit::Restart), (1, AfterExit::Restart)] {
            assert_eq!(plan.after(code), want, "{code}");
        }
    }

    #[test]
    fn a_predecessors_running_container_has_an_unknown_end_and_an_end_stays() {
        let status = |value| serde_json::from_value::<ContainerStatus>(value).expect("a container status");
        let base = json!({"name": "c", "image": "host", "imageID": "", "ready": true, "restartCount": 2});
        let with = |state: serde_json::Value| {
            let mut value = base.clone();
            value["state"] = state;
            status(value)
        };
        let lost = Record::inherited(&with(json!({"running": {"startedAt": "1970-01-01T00:00:05Z"}})), at(9));
        let message =
            "The container could not be located when the pod was deleted.  The container used to be Running";
        assert_eq!(lost.state, State::Terminated(End::unknown(at(9), message)));
        assert_eq!(lost.restart_count, 2);

        let ended =
            json!({"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "1970-01-01T00:00:07Z"}});
        let State::Terminated(end) = Record::inherited(&with(ended), at(9)).state else { panic!("ended") };
        assert_eq!((end.exit_code, end.finished_at), (3, at(7)));

        let fresh = Record::inherited(&with(json!({"waiting": {"reason": "ContainerCreating"}})), at(9));
        assert_eq!(fresh.state, State::Waiting(Waiting::default()));
        assert!([&lost, &fresh].iter().all(|record| record.is_inherited && !record.was_begun_here()));
        let unknown = || End::unknown(at(9), message);
        for (runs, want) in [
            (2..2, (State::Waiting(Waiting::default()), None, 2)),
            (2..3, (State::Terminated(unknown()), None, 2)),
            (2..5, (State::Terminated(unknown()), Some(unknown()), 4)),
        ] {
            let record = fresh.clone().with_unreported(|run| runs.contains(&run), at(9));
            assert_eq!((record.state, record.last, record.restart_count), want);
        }
    }

    #[test]
    fn a_run_that_only_its_log_tells_of_is_none_of_this_agent() {
        let record = Record::default().with_unreported(|run| run == 0, at(9));
        assert!(record.was_begun() && !record.was_begun_here());
        assert!(!Record::default().with_unreported(|_| false, at(9)).is_inherited);
    }

    #[test]
    fn a_container_is_stopping_from_the_first_thing_that_is_done_about_it() {
        use super::fixtures::running;
        assert!(!running().is_stopping());
        for record in [
            Record { stop_by: Some(at(9)), ..running() },
            Record { pre_stop: PreStop::Running, ..running() },
            Record { pre_stop: PreStop::Done, ..running() },
            Record { term_sent_at: Some(at(9)), ..running() },
        ] {
            assert!(record.is_stopping(), "{record:?}");
        }
    }
}
