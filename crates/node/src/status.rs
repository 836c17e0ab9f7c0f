//! A pod's status as the API shows it, and the smallest patch that makes the API show it.
//!
//! Conditions are merged by type (strategic merge), and only our own are sent: what others wrote, such as
//! `DisruptionTarget`, stays. The phase is the caller's: it keeps back a terminal one while anything may run.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Map, Value, json};
use windlass_api::names;

use crate::container::{End, Kind, Plan, Record, State};
use crate::phase::Phase;

/// Every pod of this machine is reached here.
const LOOPBACK: &str = "127.0.0.1";
/// What the termination messages of all containers of a pod may have together.
const MESSAGE_BYTES_MAX: usize = 12 << 10;

/// Everything a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What its containers should do.
    pub plans: &'a [Plan],
    /// What they have done.
    pub records: &'a [Record],
    /// The phase to report.
    pub phase: Phase,
    /// `status.reason` and `status.message`.
    pub reason: Option<(&'a str, &'a str)>,
    /// The message of a `DisruptionTarget` condition that this node adds.
    pub disruption: Option<&'a str>,
    /// Whether all containers are being started again; `None` if no rule can do that.
    pub restart_all: Option<bool>,
    /// When the agent saw the pod first.
    pub start_time: Timestamp,
    /// The status that the API has.
    pub known: &'a PodStatus,
    /// The time.
    pub now: Timestamp,
}

/// The status of a pod, without what other components own.
pub fn build(view: &View<'_>) -> PodStatus {
    let spec = view.pod.spec.as_ref();
    let statuses = |is_main: bool| -> Option<Vec<ContainerStatus>> {
        let containers = view.plans.iter().zip(view.records);
        let wanted = containers.filter(|(plan, _)| (plan.kind == Kind::Main) == is_main);
        let list: Vec<_> = wanted.map(|(plan, record)| container_status(view, plan, record)).collect();
        (!list.is_empty()).then_some(list)
    };
    PodStatus {
        phase: Some(view.phase.as_str().into()),
        reason: view.reason.map(|(reason, _)| reason.into()),
        message: view.reason.map(|(_, message)| message.into()),
        start_time: Some(Time(view.start_time)),
        observed_generation: view.pod.metadata.generation,
        host_ip: Some(LOOPBACK.into()),
        host_ips: Some(vec![HostIP { ip: LOOPBACK.into() }]),
        pod_ip: Some(LOOPBACK.into()),
        pod_ips: Some(vec![PodIP { ip: LOOPBACK.into() }]),
        qos_class: view.known.qos_class.clone().or_else(|| spec.map(|spec| qos_class(spec).into())),
        init_container_statuses: statuses(false),
        container_statuses: statuses(true),
        conditions: Some(conditions(view)),
        ..PodStatus::default()
    }
}

fn container_status(view: &View<'_>, plan: &Plan, record: &Record) -> ContainerStatus {
    let spec = view.pod.spec.as_ref();
    let all = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let image = all.clone().find(|container| container.name == plan.name).and_then(|c| c.image.clone());
    ContainerStatus {
        name: plan.name.clone(),
        image: image.unwrap_or_default(),
        image_id: record.image_id.clone().unwrap_or_default(),
        ready: is_ready(plan, record),
        started: Some(matches!(record.state, State::Running { .. }) && record.is_started),
        restart_count: record.restart_count,
        container_id: (!record.container_id.is_empty()).then(|| record.container_id.clone()),
        state: Some(state(view.plans, &record.state)),
        last_state: Some(record.last.as_ref().map(|end| terminated(view.plans, end)).unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn is_ready(plan: &Plan, record: &Record) -> bool {
    match (&record.state, plan.kind) {
        (State::Terminated(end), Kind::Init) => end.exit_code == 0,
        (State::Running { .. }, Kind::Sidecar | Kind::Main) => record.is_ready,
        _ => false,
    }
}

fn state(plans: &[Plan], state: &State) -> ContainerState {
    let usual = match plans.iter().any(|plan| plan.kind != Kind::Main) {
        true => "PodInitializing",
        false => "ContainerCreating",
    };
    let waiting = |reason: &str, message: &str| ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.into()),
            message: (!message.is_empty()).then(|| message.into()),
        }),
        ..ContainerState::default()
    };
    match state {
        State::Waiting(why) => waiting(why.reason.unwrap_or(usual), &why.message),
        State::Starting => waiting(usual, ""),
        State::Running { started_at } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*started_at)) }),
            ..ContainerState::default()
        },
        State::Terminated(end) => terminated(plans, end),
    }
}

/// The end of a container. All messages of a pod together are bounded (upstream: MaxPodTerminationMessageLogLength).
fn terminated(plans: &[Plan], end: &End) -> ContainerState {
    let limit = end.message.floor_char_boundary(MESSAGE_BYTES_MAX / plans.len().max(1));
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: end.exit_code,
            reason: Some(end.reason.clone()),
            message: (!end.message.is_empty()).then(|| end.message[..limit].to_owned()),
            started_at: end.started_at.map(Time),
            finished_at: Some(Time(end.finished_at)),
            container_id: (!end.container_id.is_empty()).then(|| end.container_id.clone()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// A condition before it has a time.
struct Claim {
    type_: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Claim {
    fn holds(type_: &'static str) -> Self {
        Self { type_, holds: true, reason: None, message: None }
    }

    fn fails(type_: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self { type_, holds: false, reason: Some(reason), message }
    }
}

fn conditions(view: &View<'_>) -> Vec<PodCondition> {
    let mut claims = vec![
        Claim { holds: !view.phase.is_terminal(), ..Claim::holds("PodReadyToStartContainers") },
        initialized(view),
        ready(view),
        readiness(view, "ContainersReady"),
        Claim::holds("PodScheduled"),
    ];
    claims.extend(view.restart_all.map(|is_restarting| match is_restarting {
        true => Claim {
            type_: "AllContainersRestarting",
            holds: true,
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".into()),
        },
        false => Claim { holds: false, ..Claim::holds("AllContainersRestarting") },
    }));
    // Sent in the very patch that makes the phase terminal.
    if let Some(message) = view.disruption.filter(|_| view.phase.is_terminal()) {
        claims.push(Claim {
            type_: names::DISRUPTION_TARGET,
            holds: true,
            reason: Some(names::disruption::TERMINATION_BY_KUBELET),
            message: Some(message.into()),
        });
    }
    claims.into_iter().map(|claim| dated(view, claim)).collect()
}

/// Keeps the time of the last transition while the status stays the same.
fn dated(view: &View<'_>, claim: Claim) -> PodCondition {
    let status = if claim.holds { "True" } else { "False" };
    let known = view.known.conditions.iter().flatten().find(|known| known.type_ == claim.type_);
    let since =
        known.filter(|known| known.status == status).and_then(|known| known.last_transition_time.clone());
    PodCondition {
        type_: claim.type_.into(),
        status: status.into(),
        reason: claim.reason.map(Into::into),
        message: claim.message,
        last_transition_time: Some(since.unwrap_or(Time(view.now))),
        observed_generation: view.pod.metadata.generation,
        last_probe_time: None,
    }
}

fn initialized(view: &View<'_>) -> Claim {
    let type_ = "Initialized";
    if view.phase == Phase::Succeeded {
        return Claim { reason: Some("PodCompleted"), ..Claim::holds(type_) };
    }
    let containers = || view.plans.iter().zip(view.records);
    let incomplete: Vec<&str> = containers()
        .filter(|(plan, record)| match plan.kind {
            Kind::Init => !is_ready(plan, record),
            Kind::Sidecar => !record.is_started,
            Kind::Main => false,
        })
        .map(|(plan, _)| plan.name.as_str())
        .collect();
    let main_started = containers().any(|(plan, record)| plan.kind == Kind::Main && record.has_started());
    if incomplete.is_empty() || main_started {
        return Claim::holds(type_);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Claim::fails(type_, "ContainersNotInitialized", Some(message))
}

/// Containers first, then the gates that others hold.
fn ready(view: &View<'_>) -> Claim {
    let containers = readiness(view, "Ready");
    let gates = view.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    if !containers.holds {
        return containers;
    }
    let conditions = || view.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let closed: Vec<String> = gates
        .filter_map(|gate| {
            let gate = &gate.condition_type;
            match conditions().find(|condition| condition.type_ == *gate) {
                Some(condition) if condition.status == "True" => None,
                Some(condition) => Some(format!(
                    "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                    condition.status
                )),
                None => {
                    Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist."))
                }
            }
        })
        .collect();
    match closed.is_empty() {
        true => containers,
        false => Claim::fails("Ready", "ReadinessGatesNotReady", Some(closed.join(", "))),
    }
}

fn readiness(view: &View<'_>, type_: &'static str) -> Claim {
    match view.phase {
        Phase::Succeeded => return Claim::fails(type_, "PodCompleted", None),
        Phase::Failed => return Claim::fails(type_, "PodFailed", None),
        Phase::Pending | Phase::Running => {}
    }
    let containers = view.plans.iter().zip(view.records).filter(|(plan, _)| plan.kind != Kind::Init);
    let unready: Vec<&str> = containers
        .filter(|(plan, record)| !is_ready(plan, record))
        .map(|(plan, _)| plan.name.as_str())
        .collect();
    if unready.is_empty() {
        return Claim::holds(type_);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Claim::fails(type_, "ContainersNotReady", Some(message))
}

/// `Guaranteed` when every container has equal requests and limits of cpu and memory, `BestEffort` when none
/// has any.
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let amount = |container: &Container, is_limit: bool, resource: &str| {
        let resources = container.resources.as_ref()?;
        let list = if is_limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
        let quantity: windlass_api::quantity::Quantity = list?.get(resource)?.0.parse().ok()?;
        (!quantity.is_zero()).then_some(quantity)
    };
    let compute = ["cpu", "memory"];
    let is_guaranteed = containers().all(|container| {
        compute.iter().all(|resource| {
            let limit = amount(container, true, resource);
            // Defaulting makes the request equal to the limit when only the limit is given.
            limit.is_some() && amount(container, false, resource).is_none_or(|request| Some(request) == limit)
        })
    });
    let has_any = containers().any(|container| {
        let any = |resource: &&str| {
            amount(container, true, resource).is_some() || amount(container, false, resource).is_some()
        };
        compute.iter().any(any)
    });
    match (is_guaranteed, has_any) {
        (true, _) => "Guaranteed",
        (false, true) => "Burstable",
        (false, false) => "BestEffort",
    }
}

/// The strategic merge patch from the status that the API has to the one it should have; `None` if nothing
/// differs.
pub fn patch(uid: &str, known: &PodStatus, wanted: &PodStatus) -> Option<Value> {
    let mut status = own_fields(known, wanted);
    let mut conditions = Vec::new();
    for wanted in wanted.conditions.iter().flatten() {
        let known = known.conditions.iter().flatten().find(|known| known.type_ == wanted.type_);
        if known.is_none_or(|known| !is_same(known, wanted)) {
            conditions.push(condition_patch(known, wanted));
        }
    }
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
    // The UID makes the patch fail on a pod of the same name that came after this one.
    (!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status}))
}

/// A merge keeps what it is not told to drop.
fn condition_patch(known: Option<&PodCondition>, wanted: &PodCondition) -> Value {
    let mut patch = json!(wanted);
    let known = known.map(|known| [("reason", &known.reason), ("message", &known.message)]);
    for (field, value) in known.into_iter().flatten() {
        if value.is_some() && patch.get(field).is_none() {
            patch[field] = Value::Null;
        }
    }
    patch
}

/// Upstream's rule of what is a change of a condition: a newer generation alone is none.
fn is_same(known: &PodCondition, wanted: &PodCondition) -> bool {
    known.type_ == wanted.type_
        && known.status == wanted.status
        && known.reason.as_deref().unwrap_or_default() == wanted.reason.as_deref().unwrap_or_default()
        && known.message.as_deref().unwrap_or_default() == wanted.message.as_deref().unwrap_or_default()
}

/// Whether a status shows the phase and the conditions that are known, as far as a change of them counts. Cheap: most
/// that is heard of a pod is what its own agent wrote.
pub fn is_known(known: &PodStatus, shown: &PodStatus) -> bool {
    let count = |status: &PodStatus| status.conditions.as_ref().map_or(0, Vec::len);
    let has = |shown: &PodCondition| known.conditions.iter().flatten().any(|known| is_same(known, shown));
    known.phase == shown.phase && count(known) == count(shown) && shown.conditions.iter().flatten().all(has)
}

/// The fields that the node agent owns and that differ, besides its conditions.
fn own_fields(known: &PodStatus, wanted: &PodStatus) -> Map<String, Value> {
    let mut fields = Map::new();
    put(&mut fields, "phase", &known.phase, &wanted.phase);
    put(&mut fields, "reason", &known.reason, &wanted.reason);
    put(&mut fields, "message", &known.message, &wanted.message);
    put(&mut fields, "startTime", &known.start_time, &wanted.start_time);
    put(&mut fields, "observedGeneration", &known.observed_generation, &wanted.observed_generation);
    put(&mut fields, "hostIP", &known.host_ip, &wanted.host_ip);
    put(&mut fields, "hostIPs", &known.host_ips, &wanted.host_ips);
    put(&mut fields, "podIP", &known.pod_ip, &wanted.pod_ip);
    put(&mut fields, "podIPs", &known.pod_ips, &wanted.pod_ips);
    put(&mut fields, "qosClass", &known.qos_class, &wanted.qos_class);
    let (old, new) = (&known.init_container_statuses, &wanted.init_container_statuses);
    put(&mut fields, "initContainerStatuses", old, new);
    put(&mut fields, "containerStatuses", &known.container_statuses, &wanted.container_statuses);
    fields
}

/// Puts a field into the patch if the API would show another one: it has whole seconds only.
fn put<T: Serialize + PartialEq>(
    fields: &mut Map<String, Value>,
    name: &str,
    known: &Option<T>,
    wanted: &Option<T>,
) {
    if known == wanted {
        return;
    }
    let value = json!(wanted);
    if value != json!(known) {
        fields.insert(name.to_owned(), value);
    }
}

/// What the API has after the patch: the wanted fields, and our conditions among those of others.
pub fn after_patch(known: &PodStatus, wanted: PodStatus) -> PodStatus {
    let mut conditions = known.conditions.clone().unwrap_or_default();
    for condition in wanted.conditions.iter().flatten() {
        match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
            Some(known) if is_same(known, condition) => {}
            Some(known) => *known = condition.clone(),
            None => conditions.push(condition.clone()),
        }
    }
    PodStatus { conditions: Some(conditions), ..wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::RestartPolicy::Never;
    use crate::container::Waiting;
    use crate::container::fixtures::{at, crashing, ended, plan, running, waiting};

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    fn simple() -> Pod {
        pod(json!({
            "metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"containers": [{"name": "c", "image": "host"}]},
        }))
    }

    fn status_of(
        pod: &Pod,
        containers: &[(&str, Kind, Record)],
        phase: Phase,
        known: &PodStatus,
    ) -> PodStatus {
        let plans: Vec<Plan> = containers.iter().map(|(name, kind, _)| plan(name, *kind, Never)).collect();
        let records: Vec<Record> = containers.iter().map(|(_, _, record)| record.clone()).collect();
        build(&View {
            pod,
            plans: &plans,
            records: &records,
            phase,
            reason: None,
            disruption: None,
            restart_all: None,
            start_time: at(1),
            known,
            now: at(100),
        })
    }

    fn brief(status: &PodStatus) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let conditions = status.conditions.iter().flatten();
        conditions
            .map(|c| {
                format!("{}={} {} {}", c.type_, c.status, text(&c.reason), text(&c.message)).trim().to_owned()
            })
            .collect()
    }

    #[test]
    fn a_running_pod_is_shown_whole() {
        let record = Record { container_id: "host://7".into(), ..running() };
        let got = status_of(&simple(), &[("c", Kind::Main, record)], Phase::Running, &PodStatus::default());
        let holds = |type_| json!({"type": type_, "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z", "observedGeneration": 1});
        let types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
        let conditions = types.map(holds);
        let want = json!({
            "phase": "Running", "startTime": "1970-01-01T00:00:01Z", "observedGeneration": 1,
            "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
            "qosClass": "BestEffort",
            "conditions": conditions,
            "containerStatuses": [{
                "name": "c", "image": "host", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "containerID": "host://7", "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}, "lastState": {},
            }],
        });
        assert_eq!(json!(got), want);
    }

    #[test]
    fn conditions_follow_phase_and_containers() {
        let (a, c) = (("a", Kind::Init), ("c", Kind::Main));
        let with = |(name, kind): (&'static str, Kind), record: Record| (name, kind, record);
        for (containers, phase, want) in [
            (
                vec![with(a, running()), with(c, waiting())],
                Phase::Pending,
                [
                    "PodReadyToStartContainers=True",
                    "Initialized=False ContainersNotInitialized containers with incomplete status: [a]",
                    "Ready=False ContainersNotReady containers with unready status: [c]",
                    "ContainersReady=False ContainersNotReady containers with unready status: [c]",
                    "PodScheduled=True",
                ],
            ),
            (
                vec![with(a, ended(0)), with(c, ended(0))],
                Phase::Succeeded,
                [
                    "PodReadyToStartContainers=False",
                    "Initialized=True PodCompleted",
                    "Ready=False PodCompleted",
                    "ContainersReady=False PodCompleted",
                    "PodScheduled=True",
                ],
            ),
            (
                vec![with(c, ended(1))],
                Phase::Failed,
                [
                    "PodReadyToStartContainers=False",
                    "Initialized=True",
                    "Ready=False PodFailed",
                    "ContainersReady=False PodFailed",
                    "PodScheduled=True",
                ],
            ),
        ] {
            let status = status_of(&simple(), &containers, phase, &PodStatus::default());
            assert_eq!(brief(&status), want, "{containers:?}");
        }
    }

    #[test]
    fn container_states_have_the_reasons_of_the_api() {
        let stuck = Waiting { reason: Some("ImagePullBackOff"), message: "no".into(), retry_at: None };
        let stuck = Record { state: State::Waiting(stuck), ..Record::default() };
        let end = json!({
            "terminated": {
                "exitCode": 3, "reason": "Error", "startedAt": "1970-01-01T00:00:00Z",
                "finishedAt": "1970-01-01T00:00:10Z", "containerID": "host://1",
            }
        });
        for (record, state, last) in [
            (waiting(), json!({"waiting": {"reason": "ContainerCreating"}}), json!({})),
            (stuck, json!({"waiting": {"reason": "ImagePullBackOff", "message": "no"}}), json!({})),
            (ended(3), end.clone(), json!({})),
            (crashing(3), json!({"waiting": {"reason": "ContainerCreating"}}), end),
        ] {
            let status =
                status_of(&simple(), &[("c", Kind::Main, record)], Phase::Pending, &PodStatus::default());
            let first = json!(status.container_statuses)[0].clone();
            assert_eq!((&first["state"], &first["lastState"]), (&state, &last));
        }
    }

    #[test]
    fn a_patch_holds_only_what_changed_and_leaves_conditions_of_others_alone() {
        let foreign =
            PodCondition { type_: "DisruptionTarget".into(), status: "True".into(), ..Default::default() };
        let known = PodStatus { conditions: Some(vec![foreign]), ..PodStatus::default() };
        let run = status_of(&simple(), &[("c", Kind::Main, running())], Phase::Running, &known);
        let known = after_patch(&known, run.clone());
        assert_eq!(patch("u", &known, &run), None);

        let done = status_of(&simple(), &[("c", Kind::Main, ended(0))], Phase::Succeeded, &known);
        let patch = patch("u", &known, &done).expect("much has changed");
        let status = patch["status"].as_object().expect("an object");
        let keys: Vec<&str> = status.keys().map(String::as_str).collect();
        assert_eq!(keys, ["conditions", "containerStatuses", "phase"]);
        let types: Vec<&Value> =
            status["conditions"].as_array().expect("a list").iter().map(|c| &c["type"]).collect();
        assert_eq!(types, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]);
        assert_eq!(patch["metadata"], json!({"uid": "u"}));
        let all = brief(&after_patch(&known, done));
        assert_eq!(all[0], "DisruptionTarget=True");
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn what_others_make_of_a_condition_is_seen_and_put_right() {
        let fresh = PodStatus::default();
        let run = status_of(&simple(), &[("c", Kind::Main, running())], Phase::Running, &fresh);
        // The API has whole seconds, and its own order.
        let mut shown = run.clone();
        shown.conditions.iter_mut().for_each(|conditions| conditions.reverse());
        shown.conditions.iter_mut().flatten().for_each(|condition| condition.last_transition_time = None);
        assert!(is_known(&run, &shown));
        let with = |condition: PodCondition| {
            let mut status = run.clone();
            let conditions = status.conditions.get_or_insert_default();
            conditions.retain(|known| known.type_ != condition.type_);
            conditions.push(condition);
            status
        };
        let condition = |type_: &str, status: &str, second: i64| PodCondition {
            type_: type_.into(),
            status: status.into(),
            last_transition_time: Some(Time(at(second))),
            ..PodCondition::default()
        };
        let silent = with(condition("Ready", "False", 50));
        assert!(!is_known(&run, &silent));
        assert!(!is_known(&run, &PodStatus { phase: Some("Failed".into()), ..run.clone() }));
        let wanted = status_of(&simple(), &[("c", Kind::Main, running())], Phase::Running, &silent);
        let patch = patch("u", &silent, &wanted).expect("a change");
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z", "observedGeneration": 1,
        });
        assert_eq!(patch["status"], json!({"conditions": [ready]}));

        // What they say of a disruption is since when they say it.
        let disrupted = with(condition(names::DISRUPTION_TARGET, "True", 50));
        assert!(!is_known(&run, &disrupted));
        let (pod, plans) = (simple(), [plan("c", Kind::Main, Never)]);
        let ended = build(&View {
            pod: &pod,
            plans: &plans,
            records: &[ended(143)],
            phase: Phase::Failed,
            reason: None,
            disruption: Some("bye"),
            restart_all: None,
            start_time: at(1),
            known: &disrupted,
            now: at(100),
        });
        let mut conditions = ended.conditions.iter().flatten();
        let since = conditions.find(|condition| condition.type_ == names::DISRUPTION_TARGET);
        assert_eq!(since.and_then(|condition| condition.last_transition_time.clone()), Some(Time(at(50))));
    }

    #[test]
    fn a_condition_that_holds_again_loses_its_reason() {
        let pending =
            status_of(&simple(), &[("c", Kind::Main, waiting())], Phase::Pending, &PodStatus::default());
        let running = status_of(&simple(), &[("c", Kind::Main, running())], Phase::Running, &pending);
        let patch = patch("u", &pending, &running).expect("a change");
        let ready = json!({
            "type": "Ready", "status": "True", "reason": null, "message": null,
            "lastTransitionTime": "1970-01-01T00:01:40Z", "observedGeneration": 1,
        });
        assert_eq!(patch["status"]["conditions"][0], ready);
    }

    #[test]
    fn a_reason_that_no_longer_holds_is_taken_away() {
        let known = PodStatus { reason: Some("Old".into()), ..PodStatus::default() };
        let patch = patch("u", &known, &PodStatus::default()).expect("a change");
        assert_eq!(patch["status"], json!({"reason": null}));
    }

    #[test]
    fn the_disruption_of_a_shutdown_comes_with_the_terminal_phase() {
        let (pod, plans, known) = (simple(), [plan("c", Kind::Main, Never)], PodStatus::default());
        for (phase, want) in
            [(Phase::Running, None), (Phase::Failed, Some("DisruptionTarget=True TerminationByKubelet bye"))]
        {
            let status = build(&View {
                pod: &pod,
                plans: &plans,
                records: &[running()],
                phase,
                reason: Some(("Terminated", "bye")),
                disruption: Some("bye"),
                restart_all: None,
                start_time: at(1),
                known: &known,
                now: at(2),
            });
            assert_eq!(brief(&status).get(5).map(String::as_str), want);
        }
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let both = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        for (resources, want) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1"}}), "Burstable"),
            (both("1"), "Guaranteed"),
            (both("2"), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        ] {
            let pod = pod(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}));
            assert_eq!(qos_class(&pod.spec.expect("a spec")), want, "{resources}");
        }
    }
}
