//! CronJobs: defaults, a schedule that can be read, a time zone that exists, and a valid Job to make.

use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};
use serde_json::{Value, json};
use windlass_api::cron::Schedule;
use windlass_api::field::{Error, Errors, Path};
use windlass_api::{defaults, validation};

use super::{Context, Warnings, finish, new_meta, same_meta};
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;
use crate::view;

/// A Job has the name of its CronJob and eleven characters more, and 63 in all.
const NAME_MAX: usize = 52;
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];
/// upstream: the longest part of the name of a time zone.
const ZONE_PART_MAX: usize = 14;

fn resource() -> &'static Resource {
    resources::find("batch", "v1", "cronjobs").expect("a row of the table")
}

fn default(job: &mut CronJob) {
    let spec = &mut job.spec;
    if spec.concurrency_policy.as_deref().unwrap_or_default().is_empty() {
        spec.concurrency_policy = Some("Allow".to_owned());
    }
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
    let template = spec.job_template.spec.get_or_insert_default();
    defaults::pod::default_pod_template(&mut template.template);
    let rules = template.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        pattern.status.get_or_insert_with(|| "True".to_owned());
    }
}

pub(super) fn create(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    object.remove("status");
    let job = view::edit(resource(), object, default)?;
    object.insert("status", json!({}));
    let mut errors = new_meta(resource(), object)?;
    errors.extend(check(&job.spec, None));
    if object.name().len() > NAME_MAX {
        let path = Path::new("metadata").child("name");
        errors.push(Error::invalid(
            &path,
            object.name(),
            format!("must be no more than {NAME_MAX} characters"),
        ));
    }
    finish(resource(), object, &errors)
}

pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let job = view::edit(resource(), object, default)?;
    let before: CronJob = view::read(resource(), old)?;
    let mut errors = same_meta(resource(), object, old)?;
    errors.extend(check(&job.spec, Some(&before.spec)));
    if !object.is_same(old, "spec") {
        object.bump_generation();
    }
    finish(resource(), object, &errors)
}

pub(super) fn status(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let errors = same_meta(resource(), object, old)?;
    finish(resource(), object, &errors)
}

fn check(spec: &CronJobSpec, old: Option<&CronJobSpec>) -> Errors {
    let path = Path::new("spec");
    let mut errors = check_schedule(spec, old, &path.child("schedule"));
    errors.extend(not_negative(spec.starting_deadline_seconds, &path.child("startingDeadlineSeconds")));
    if old.is_none_or(|old| old.time_zone != spec.time_zone)
        && let Some(zone) = &spec.time_zone
    {
        errors.extend(check_zone(zone, &path.child("timeZone")));
    }
    let policy = spec.concurrency_policy.as_deref().unwrap_or_default();
    if !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(&path.child("concurrencyPolicy"), policy, &POLICIES));
    }
    let template = spec.job_template.spec.clone().unwrap_or_default();
    let at = path.child("jobTemplate").child("spec");
    errors.extend(validation::job::validate_template_spec(&template, &at));
    for (field, limit) in [
        ("successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
        ("failedJobsHistoryLimit", spec.failed_jobs_history_limit),
    ] {
        errors.extend(not_negative(limit, &path.child(field)));
    }
    errors
}

fn not_negative(value: Option<impl Into<i64>>, path: &Path) -> Option<Error> {
    let value = value?.into();
    (value < 0).then(|| Error::invalid(path, value, "must be greater than or equal to 0"))
}

fn check_schedule(spec: &CronJobSpec, old: Option<&CronJobSpec>, path: &Path) -> Errors {
    let schedule = spec.schedule.as_str();
    if schedule.is_empty() {
        return vec![Error::required(path, "")];
    }
    let mut errors = Errors::new();
    if let Err(why) = Schedule::parse(schedule) {
        errors.push(Error::invalid(path, schedule, why));
    }
    // upstream: one that had a zone in it before it was forbidden may keep it
    let had_zone = old.is_some_and(|old| old.schedule.contains("TZ"));
    if schedule.contains("TZ") {
        if !had_zone {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(Error::invalid(path, schedule, why));
        } else if spec.time_zone.is_some() {
            let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(Error::invalid(path, schedule, why));
        }
    }
    errors
}

fn check_zone(zone: &str, path: &Path) -> Errors {
    let unknown = |why: String| vec![Error::invalid(path, zone, why)];
    if zone.is_empty() {
        return unknown("timeZone must be nil or non-empty string".to_owned());
    }
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= ZONE_PART_MAX
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte))
    };
    if !zone.split('/').all(is_part) {
        return unknown(format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return unknown(why.to_owned());
    }
    match TimeZone::get(zone) {
        Ok(_) => Errors::new(),
        Err(_) => unknown(format!("unknown time zone {zone}")),
    }
}

/// A number in a status that counts something.
pub(super) fn counts(status: Option<&Value>, fields: &[&str], path: &Path) -> Errors {
    let number = |field: &str| status.and_then(|status| status.get(field)).and_then(Value::as_i64);
    fields.iter().filter_map(|field| not_negative(number(field), &path.child(field))).collect()
}
