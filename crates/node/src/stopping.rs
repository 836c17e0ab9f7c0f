//! How one container is stopped: its `preStop` hook, SIGTERM when its turn has come, SIGKILL when time is up.

use std::time::Duration;

use jiff::Timestamp;

use crate::backoff::add;
use crate::container::{Plan, PreStop, Record, State};

/// The least time between SIGTERM and SIGKILL, whatever the grace period (upstream:
/// minimumGracePeriodInSeconds).
pub const GRACE_MIN: Duration = Duration::from_secs(2);

/// What to do to a container that has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Run its `preStop` hook.
    PreStop,
    /// Send it SIGTERM.
    Term,
    /// Send it SIGKILL.
    Kill,
    /// Wait.
    Nothing,
}

/// What to do now with a container that may run and has to be gone by `kill_at`, and when to ask again.
///
/// `is_turn`: nothing that has to stop before it runs any more. The hook does not wait for that.
pub fn next(
    plan: &Plan,
    record: &Record,
    kill_at: Timestamp,
    is_turn: bool,
    now: Timestamp,
) -> (Act, Option<Timestamp>) {
    if record.is_kill_sent {
        return (Act::Nothing, None);
    }
    if let Some(term_sent_at) = record.term_sent_at {
        let kill_at = kill_at.max(add(term_sent_at, GRACE_MIN));
        return if now >= kill_at { (Act::Kill, None) } else { (Act::Nothing, Some(kill_at)) };
    }
    if now < kill_at {
        let is_running = matches!(record.state, State::Running { .. });
        match record.pre_stop {
            PreStop::Idle if plan.checks.pre_stop && is_running => return (Act::PreStop, Some(kill_at)),
            PreStop::Running => return (Act::Nothing, Some(kill_at)),
            PreStop::Idle | PreStop::Done => {}
        }
        if !is_turn {
            return (Act::Nothing, Some(kill_at));
        }
    }
    (Act::Term, Some(kill_at.max(add(now, GRACE_MIN))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::fixtures::{at, plan, running};
    use crate::container::{Checks, Kind, RestartPolicy};

    #[test]
    fn hook_then_sigterm_then_sigkill() {
        let hooked = Plan {
            checks: Checks { pre_stop: true, ..Checks::default() },
            ..plan("c", Kind::Main, RestartPolicy::Never)
        };
        let with = |pre_stop| Record { pre_stop, ..running() };
        let termed = |second, is_kill_sent| Record {
            pre_stop: PreStop::Done,
            term_sent_at: Some(at(second)),
            is_kill_sent,
            ..running()
        };
        let starting = Record { state: State::Starting, ..Record::default() };
        for (record, is_turn, now, want) in [
            (with(PreStop::Idle), true, 100, (Act::PreStop, Some(130))),
            (with(PreStop::Idle), false, 100, (Act::PreStop, Some(130))),
            (with(PreStop::Running), true, 110, (Act::Nothing, Some(130))),
            (with(PreStop::Done), false, 110, (Act::Nothing, Some(130))),
            (with(PreStop::Done), true, 110, (Act::Term, Some(130))),
            // A hook that takes all the time leaves two seconds.
            (with(PreStop::Running), true, 130, (Act::Term, Some(132))),
            (with(PreStop::Idle), true, 130, (Act::Term, Some(132))),
            (starting, true, 100, (Act::Term, Some(130))),
            (termed(110, false), true, 129, (Act::Nothing, Some(130))),
            (termed(110, false), true, 130, (Act::Kill, None)),
            (termed(130, false), true, 131, (Act::Nothing, Some(132))),
            (termed(130, false), true, 132, (Act::Kill, None)),
            (termed(110, true), true, 140, (Act::Nothing, None)),
        ] {
            let (act, wake) = next(&hooked, &record, at(130), is_turn, at(now));
            assert_eq!((act, wake), (want.0, want.1.map(at)), "{record:?} {is_turn} at {now}");
        }
    }
}
