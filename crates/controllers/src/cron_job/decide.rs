//! What happens to a CronJob now. Pure.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_api::cron::Schedule;

use super::times::{self, Missed, Since};

/// After a time of the schedule, so that a clock that is a little behind does not see it too early.
const PADDING: SignedDuration = SignedDuration::from_millis(100);

/// What is known of a Job that a CronJob owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
    pub(crate) end: Option<End>,
}

/// How a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Failed,
}

impl Child {
    /// The facts of a Job.
    pub(crate) fn of(job: &Job) -> Self {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let end = conditions.filter(|one| one.status == "True").find_map(|one| match &*one.type_ {
            "Complete" => Some(End::Complete),
            "Failed" => Some(End::Failed),
            _ => None,
        });
        Self {
            uid: job.metadata.uid.clone().unwrap_or_default(),
            name: job.metadata.name.clone().unwrap_or_default(),
            started: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            completed: status.and_then(|status| status.completion_time.as_ref()).map(|time| time.0),
            end,
        }
    }
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Finished Jobs beyond the limits, oldest first.
    pub(crate) prune: Vec<Child>,
    pub(crate) events: Vec<Said>,
    /// The status, without the Job that is to be started.
    pub(crate) status: CronJobStatus,
    /// A Job for this time.
    pub(crate) start: Option<Start>,
    /// When to look again.
    pub(crate) wake: Option<Timestamp>,
}

/// A Job to start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) time: Timestamp,
    /// The time as the annotation has it.
    pub(crate) stamp: String,
    /// Jobs to delete first.
    pub(crate) replaces: Vec<ObjectReference>,
}

/// What a decision is made of.
pub(crate) struct Observed<'a> {
    pub(crate) cron_job: &'a CronJob,
    pub(crate) children: &'a [Child],
    /// UIDs of active Jobs that the server does not have.
    pub(crate) missing: &'a BTreeSet<String>,
    /// The zone that is asked for, if there is such a zone; or this machine's.
    pub(crate) zone: Option<TimeZone>,
    pub(crate) now: Timestamp,
}

/// Decides.
pub(crate) fn decide(observed: &Observed<'_>) -> Plan {
    let spec = &observed.cron_job.spec;
    let status = observed.cron_job.status.clone().unwrap_or_default();
    let mut plan = Plan { prune: prune(spec, observed.children), status, ..Plan::default() };
    follow_children(observed, &mut plan);
    if observed.cron_job.metadata.deletion_timestamp.is_none() {
        start(observed, spec, &mut plan);
    }
    plan
}

fn prune(spec: &CronJobSpec, children: &[Child]) -> Vec<Child> {
    let limits =
        [(End::Complete, spec.successful_jobs_history_limit), (End::Failed, spec.failed_jobs_history_limit)];
    let mut pruned = Vec::new();
    for (end, limit) in limits {
        let Some(limit) = limit else { continue };
        let mut ended: Vec<&Child> = children.iter().filter(|child| child.end == Some(end)).collect();
        // Those that never started come last.
        ended.sort_by_key(|child| (child.started.is_none(), child.started, child.name.clone()));
        let too_many = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        pruned.extend(ended.into_iter().take(too_many).cloned());
    }
    pruned
}

/// Takes what became of the Jobs into the status.
fn follow_children(observed: &Observed<'_>, plan: &mut Plan) {
    let pruned: BTreeSet<&str> = plan.prune.iter().map(|child| child.uid.as_str()).collect();
    let status = &mut plan.status;
    let mut active = status.active.take().unwrap_or_default();
    active.retain(|one| !one.uid.as_deref().is_some_and(|uid| pruned.contains(uid)));
    for child in observed.children {
        let position = active.iter().position(|one| one.uid.as_deref() == Some(&child.uid));
        match (child.end, position) {
            (None, Some(_)) => {}
            (None, None) => {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {}", child.name);
                plan.events.push(Said { is_warning: true, reason: "UnexpectedJob", message });
            }
            (Some(end), position) => {
                if let Some(at) = position {
                    active.remove(at);
                    let message = format!("Saw completed job: {}, condition: {end:?}", child.name);
                    plan.events.push(Said { is_warning: false, reason: "SawCompletedJob", message });
                }
                if end == End::Complete {
                    let last = status.last_successful_time.as_ref().map(|time| time.0);
                    status.last_successful_time = last.max(child.completed).map(Time);
                }
            }
        }
    }
    active.retain(|one| {
        let is_missing = one.uid.as_deref().is_some_and(|uid| observed.missing.contains(uid));
        if is_missing {
            let message = format!("Active job went missing: {}", one.name.as_deref().unwrap_or_default());
            plan.events.push(Said { is_warning: false, reason: "MissingJob", message });
        }
        !is_missing
    });
    status.active = (!active.is_empty()).then_some(active);
}

/// Sees whether a Job is due.
fn start(observed: &Observed<'_>, spec: &CronJobSpec, plan: &mut Plan) {
    let warning = |reason, message| Said { is_warning: true, reason, message };
    let Some(zone) = &observed.zone else {
        let name = spec.time_zone.as_deref().unwrap_or_default();
        let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
        plan.events.push(warning("UnknownTimeZone", message));
        return;
    };
    if spec.suspend == Some(true) {
        return;
    }
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            plan.events.push(warning("UnparseableSchedule", message));
            return;
        }
    };
    let meta = &observed.cron_job.metadata;
    let since = Since {
        created: meta.creation_timestamp.as_ref().map_or(observed.now, |time| time.0),
        last: plan.status.last_schedule_time.as_ref().map(|time| time.0),
        deadline: spec.starting_deadline_seconds,
    };
    let (time, missed) = match times::due(&schedule, zone, &since, observed.now) {
        Ok(found) => found,
        Err(why) => {
            plan.events
                .push(warning("InvalidSchedule", format!("invalid schedule: {} : {why}", spec.schedule)));
            return;
        }
    };
    let after = |last: Option<Timestamp>| {
        let since = Since { last: last.or(since.last), ..since };
        times::wake(&schedule, zone, &since, observed.now).and_then(|at| at.checked_add(PADDING).ok())
    };
    plan.wake = after(None);
    let Some(time) = time else { return };
    if missed == Missed::Many {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push(warning("TooManyMissedTimes", message.to_owned()));
    }
    if let Some(said) = refusal(observed, spec, plan, time) {
        plan.events.extend(said);
        return;
    }
    plan.wake = after(Some(time));
    let replaces = match spec.concurrency_policy.as_deref() {
        Some("Replace") => plan.status.active.clone().unwrap_or_default(),
        _ => Vec::new(),
    };
    let stamped = if spec.time_zone.is_some() { zone.clone() } else { TimeZone::UTC };
    let name = job_name(meta.name.as_deref().unwrap_or_default(), time);
    plan.start = Some(Start { name, time, stamp: stamp(time, stamped), replaces });
}

/// Why a Job that is due is not started, with what is to be said about it.
fn refusal(
    observed: &Observed<'_>,
    spec: &CronJobSpec,
    plan: &Plan,
    time: Timestamp,
) -> Option<Option<Said>> {
    let is_late = spec.starting_deadline_seconds.is_some_and(|seconds| {
        time.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|limit| limit < observed.now)
    });
    if is_late {
        let when = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {when}");
        return Some(Some(Said { is_warning: true, reason: "MissSchedule", message }));
    }
    let active = plan.status.active.as_deref().unwrap_or_default();
    let name = job_name(observed.cron_job.metadata.name.as_deref().unwrap_or_default(), time);
    let is_last = plan.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == time);
    if is_last || active.iter().any(|one| one.name.as_deref() == Some(&name)) {
        return Some(None);
    }
    if spec.concurrency_policy.as_deref() == Some("Forbid") && !active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        return Some(Some(Said {
            is_warning: false,
            reason: "JobAlreadyActive",
            message: message.to_owned(),
        }));
    }
    None
}

/// The same name for the same time: a Job is never made twice for it.
fn job_name(cron_job: &str, time: Timestamp) -> String {
    format!("{cron_job}-{}", time.as_second().div_euclid(60))
}

/// RFC 3339 as Go writes it.
fn stamp(time: Timestamp, zone: TimeZone) -> String {
    let time = time.to_zoned(zone);
    let format = if time.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn cron_job(spec: Value, status: Value) -> CronJob {
        let mut spec = spec;
        spec["jobTemplate"] = json!({});
        serde_json::from_value(json!({
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": spec, "status": status,
        }))
        .expect("a CronJob")
    }

    fn look(cron_job: &CronJob, children: &[Child], now: &str) -> Plan {
        let zone = match cron_job.spec.time_zone.as_deref() {
            Some(name) => TimeZone::get(name).ok(),
            None => Some(TimeZone::UTC),
        };
        let missing = BTreeSet::from(["lost".to_owned()]);
        decide(&Observed { cron_job, children, missing: &missing, zone, now: time(now) })
    }

    fn child(name: &str, end: Option<End>, started: &str) -> Child {
        let completed = (end == Some(End::Complete)).then(|| time(started));
        Child { uid: name.to_owned(), name: name.to_owned(), started: Some(time(started)), completed, end }
    }

    fn said(plan: &Plan) -> Vec<String> {
        let kind = |said: &Said| if said.is_warning { "Warning" } else { "Normal" };
        plan.events.iter().map(|said| format!("{} {}: {}", kind(said), said.reason, said.message)).collect()
    }

    #[test]
    fn a_job_is_started_for_the_last_time_that_is_due_under_a_name_of_that_time() {
        let plan =
            look(&cron_job(json!({"schedule": "*/10 * * * *"}), json!({})), &[], "2026-01-01T00:25:00Z");
        let start = plan.start.expect("a Job is due");
        assert_eq!((start.name.as_str(), start.time), ("c-29453780", time("2026-01-01T00:20:00Z")));
        assert_eq!(start.stamp, "2026-01-01T00:20:00Z");
        assert_eq!(start.replaces, []);
        assert_eq!(plan.wake, Some(time("2026-01-01T00:30:00.1Z")));
    }

    #[test]
    fn the_stamp_is_in_the_zone_that_was_asked_for() {
        let spec = json!({"schedule": "0 9 * * *", "timeZone": "Asia/Tokyo"});
        let plan = look(&cron_job(spec, json!({})), &[], "2026-01-02T00:00:00Z");
        assert_eq!(plan.start.expect("a Job is due").stamp, "2026-01-02T09:00:00+09:00");
    }

    #[test]
    fn why_no_job_is_started_is_said() {
        let active = json!({"active": [{"uid": "a", "name": "a"}]});
        let cases = [
            (json!({"schedule": "0 * * * *", "suspend": true}), json!({}), vec![], None),
            (
                json!({"schedule": "0 * * * *", "timeZone": "No/Where"}),
                json!({}),
                vec!["Warning UnknownTimeZone: invalid timeZone: \"No/Where\": unknown time zone No/Where"],
                None,
            ),
            (
                json!({"schedule": "0 * * *"}),
                json!({}),
                vec![
                    "Warning UnparseableSchedule: unparseable schedule: \"0 * * *\" : \
                     expected exactly 5 fields, found 4: [0 * * *]",
                ],
                None,
            ),
            (
                json!({"schedule": "59 23 31 2 *"}),
                json!({}),
                vec![
                    "Warning InvalidSchedule: invalid schedule: 59 23 31 2 * : \
                     time difference between two schedules is less than 1 second",
                ],
                None,
            ),
            (
                json!({"schedule": "0 * * * *", "concurrencyPolicy": "Forbid"}),
                active,
                vec![
                    "Normal JobAlreadyActive: Not starting job because prior execution is running and \
                     concurrency policy is Forbid",
                ],
                Some("2026-01-01T02:00:00.1Z"),
            ),
            (
                json!({"schedule": "0 * * * *"}),
                json!({"lastScheduleTime": "2026-01-01T01:00:00Z"}),
                vec![],
                Some("2026-01-01T02:00:00.1Z"),
            ),
            (
                json!({"schedule": "0 * * * *"}),
                json!({"active": [{"uid": "b", "name": "c-29453820"}]}),
                vec![],
                Some("2026-01-01T02:00:00.1Z"),
            ),
        ];
        for (spec, status, events, wake) in cases {
            let plan = look(&cron_job(spec.clone(), status.clone()), &[], "2026-01-01T01:30:00Z");
            assert_eq!(plan.start, None, "{spec} {status}");
            assert_eq!(said(&plan), events, "{spec} {status}");
            assert_eq!(plan.wake, wake.map(time), "{spec} {status}");
        }
    }

    #[test]
    fn a_time_is_not_made_up_for_after_its_deadline() {
        let spec = json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 10});
        let plan = look(&cron_job(spec.clone(), json!({})), &[], "2026-01-01T01:00:09Z");
        assert!(plan.start.is_some(), "just in time");
        let plan = look(&cron_job(spec, json!({})), &[], "2026-01-01T01:00:10Z");
        assert_eq!((plan.start, plan.wake), (None, Some(time("2026-01-01T02:00:00.1Z"))));
    }

    #[test]
    fn more_than_a_hundred_missed_times_are_told_and_the_job_is_started_all_the_same() {
        let plan = look(&cron_job(json!({"schedule": "* * * * *"}), json!({})), &[], "2026-01-01T02:00:00Z");
        assert_eq!(
            said(&plan),
            ["Warning TooManyMissedTimes: too many missed start times. \
              Set or decrease .spec.startingDeadlineSeconds or check clock skew"]
        );
        assert_eq!(plan.start.expect("a Job is due").time, time("2026-01-01T02:00:00Z"));
    }

    #[test]
    fn replace_names_the_jobs_that_go_first() {
        let active = json!([{"uid": "a", "name": "a"}]);
        let spec = json!({"schedule": "0 * * * *", "concurrencyPolicy": "Replace"});
        let plan = look(&cron_job(spec, json!({"active": active})), &[], "2026-01-01T01:00:00Z");
        let replaces = plan.start.expect("a Job is due").replaces;
        assert_eq!(replaces.iter().map(|one| one.name.as_deref()).collect::<Vec<_>>(), [Some("a")]);
    }

    #[test]
    fn what_became_of_the_jobs_is_taken_into_the_status() {
        let active = ["done", "broken", "lost", "runs"].map(|name| json!({"uid": name, "name": name}));
        let status = json!({"active": active, "lastSuccessfulTime": "2026-01-01T00:00:31Z"});
        let cron_job = cron_job(json!({"schedule": "0 * * * *"}), status);
        let children = [
            child("done", Some(End::Complete), "2026-01-01T00:01:00Z"),
            child("broken", Some(End::Failed), "2026-01-01T00:02:00Z"),
            child("runs", None, "2026-01-01T00:03:00Z"),
            child("alien", None, "2026-01-01T00:04:00Z"),
        ];
        let plan = look(&cron_job, &children, "2026-01-01T00:10:00Z");
        let left: Vec<_> = plan.status.active.iter().flatten().map(|one| one.name.as_deref()).collect();
        assert_eq!(left, [Some("runs")]);
        assert_eq!(plan.status.last_successful_time, Some(Time(time("2026-01-01T00:01:00Z"))));
        assert_eq!(
            said(&plan),
            [
                "Normal SawCompletedJob: Saw completed job: done, condition: Complete",
                "Normal SawCompletedJob: Saw completed job: broken, condition: Failed",
                "Warning UnexpectedJob: Saw a job that the controller did not create or forgot: alien",
                "Normal MissingJob: Active job went missing: lost",
            ]
        );
    }

    #[test]
    fn the_oldest_finished_jobs_beyond_the_limits_are_pruned() {
        let spec = json!({
            "schedule": "0 * * * *", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0,
        });
        let children = [
            child("young", Some(End::Complete), "2026-01-01T00:03:00Z"),
            child("old", Some(End::Complete), "2026-01-01T00:01:00Z"),
            child("failed", Some(End::Failed), "2026-01-01T00:02:00Z"),
            child("runs", None, "2026-01-01T00:00:40Z"),
        ];
        let plan = look(&cron_job(spec, json!({})), &children, "2026-01-01T00:10:00Z");
        assert_eq!(plan.prune.iter().map(|child| child.name.as_str()).collect::<Vec<_>>(), ["old", "failed"]);
    }

    #[test]
    fn nothing_is_started_for_a_cron_job_that_is_deleted() {
        let mut doomed = cron_job(json!({"schedule": "0 * * * *"}), json!({}));
        doomed.metadata.deletion_timestamp = Some(Time(time("2026-01-01T01:00:00Z")));
        let plan = look(&doomed, &[], "2026-01-01T01:30:00Z");
        assert_eq!((plan.start, plan.wake, plan.events), (None, None, Vec::new()));
    }
}
