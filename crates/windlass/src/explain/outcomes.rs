//! How pods end, as users write it on the command line.

use windlass_job::analysis::table::{CODES, DISRUPTION, Sign};
use windlass_job::analysis::timeline::End;
use windlass_job::analysis::{Role, Subject};

/// What a process exits with that SIGTERM ended.
const SIGTERM_CODE: i32 = 143;
/// An outcome may be repeated so often.
const REPEATS_MAX: usize = 100;

const HINT_OUTCOMES: &str = "an outcome is an exit code (0 is success), CONTAINER:CODE, or a condition such as \
    DisruptionTarget; *3 repeats it; for example 1*3,DisruptionTarget,0";

/// A pod that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// Of which container.
    pub container: Option<String>,
    /// Its conditions, as `Type` or `Type=Status`.
    pub conditions: Vec<String>,
    /// Its `status.reason`.
    pub reason: Option<String>,
}

impl Question {
    /// The signs of the pod; `None` if nothing is asked.
    pub fn signs(&self, subject: &Subject) -> Result<Option<Vec<Sign>>, String> {
        let mut signs = Vec::new();
        match (self.exit_code, &self.container) {
            (Some(code), container) => signs.push(exit(subject, container.as_deref(), code)?),
            (None, Some(_)) => {
                return Err("--container says nothing without an exit code\nhint: add --exit-code".to_owned());
            }
            (None, None) => {}
        }
        signs.extend(self.conditions.iter().map(|text| condition(text)));
        signs.extend(self.reason.clone().map(Sign::Reason));
        Ok((!signs.is_empty()).then_some(signs))
    }
}

fn exit(subject: &Subject, container: Option<&str>, code: i32) -> Result<Sign, String> {
    let names: Vec<&str> = subject.containers.iter().map(|(name, _)| name.as_str()).collect();
    let main = subject.containers.iter().find(|(_, role)| *role == Role::Main).map(|(name, _)| name.as_str());
    let container = container.or(main).unwrap_or_default();
    if !names.contains(&container) {
        return Err(format!(
            "there is no container {container:?}\nhint: the containers are {}",
            names.join(", ")
        ));
    }
    if !CODES.contains(&code) {
        return Err(format!(
            "{code} is no exit code of a failure\nhint: exit codes of failures are 1 to 255"
        ));
    }
    Ok(Sign::Exit { container: container.to_owned(), code })
}

fn condition(text: &str) -> Sign {
    let (kind, status) = text.split_once('=').unwrap_or((text, "True"));
    Sign::Condition { kind: kind.to_owned(), status: status.to_owned() }
}

/// Reads `1*3,main:42,DisruptionTarget,0`.
pub fn parse(text: &str, subject: &Subject) -> Result<Vec<End>, String> {
    let mut ends = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (outcome, times) = match item.split_once('*') {
            Some((outcome, times)) => {
                (outcome, times.parse().ok().filter(|times| (1..=REPEATS_MAX).contains(times)))
            }
            None => (item, Some(1)),
        };
        let times = times.ok_or_else(|| format!("{item:?} is repeated strangely\nhint: {HINT_OUTCOMES}"))?;
        let end = end(outcome, subject)?;
        ends.extend(std::iter::repeat_n(end, times));
    }
    Ok(ends)
}

fn end(outcome: &str, subject: &Subject) -> Result<End, String> {
    let code = |text: &str| {
        text.parse::<i32>().map_err(|_| format!("{text:?} is no exit code\nhint: {HINT_OUTCOMES}"))
    };
    if outcome.is_empty() {
        return Err(format!("an outcome is missing\nhint: {HINT_OUTCOMES}"));
    }
    if let Some((container, text)) = outcome.split_once(':') {
        return Ok(End::Failure(vec![exit(subject, Some(container), code(text)?)?]));
    }
    if outcome.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return match code(outcome)? {
            0 => Ok(End::Success),
            code => Ok(End::Failure(vec![exit(subject, None, code)?])),
        };
    }
    let sign = condition(outcome);
    let is_disruption =
        matches!(&sign, Sign::Condition { kind, status } if kind == DISRUPTION && status == "True");
    let ended = is_disruption.then(|| exit(subject, None, SIGTERM_CODE)).transpose()?;
    Ok(End::Failure(ended.into_iter().chain([sign]).collect()))
}
