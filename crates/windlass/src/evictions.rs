//! `--evict` and `--eviction-…`: when a node ends pods because it is short of something, in the words of the kubelet's flags.

use std::time::Duration;

use windlass_api::quantity::Quantity;
use windlass_node::pressure::{Level, Policy, Signal, Threshold};

use crate::durations;

/// What the flags say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// With Kubernetes' defaults.
    pub is_wanted: bool,
    /// `--eviction-hard`.
    pub hard: Option<String>,
    /// `--eviction-soft`.
    pub soft: Option<String>,
    /// `--eviction-soft-grace-period`.
    pub soft_grace: Option<String>,
    /// `--eviction-minimum-reclaim`.
    pub reclaim: Option<String>,
    /// `--eviction-max-pod-grace-period`.
    pub soft_grace_max: Duration,
    /// `--eviction-pressure-transition-period`.
    pub transition: Duration,
}

impl Flags {
    /// The policy; `None`: nothing is evicted. As the kubelet, what `--eviction-hard` says replaces the defaults.
    pub fn policy(&self) -> Result<Option<Policy>, String> {
        let mut thresholds = Vec::new();
        for (signal, text) in items("--eviction-hard", self.hard.as_deref(), '<')? {
            thresholds.extend(level("--eviction-hard", text)?.map(|level| Threshold::hard(signal, level)));
        }
        if self.hard.is_none() {
            thresholds.extend(Policy::default().thresholds);
        }
        let graces = items("--eviction-soft-grace-period", self.soft_grace.as_deref(), '=')?;
        for (signal, text) in items("--eviction-soft", self.soft.as_deref(), '<')? {
            let Some((_, grace)) = graces.iter().find(|(of, _)| *of == signal) else {
                let name = signal.name();
                return Err(format!(
                    "--eviction-soft {name} has no grace period\nhint: add --eviction-soft-grace-period {name}=1m30s"
                ));
            };
            let grace =
                durations::parse(grace).map_err(|error| format!("--eviction-soft-grace-period: {error}"))?;
            let level = level("--eviction-soft", text)?;
            thresholds.extend(level.map(|level| Threshold { signal, level, grace: Some(grace) }));
        }
        let mut reclaim = Vec::new();
        for (signal, text) in items("--eviction-minimum-reclaim", self.reclaim.as_deref(), '=')? {
            reclaim.extend(level("--eviction-minimum-reclaim", text)?.map(|level| (signal, level)));
        }
        let is_wanted = self.is_wanted || self.hard.is_some() || self.soft.is_some();
        let (soft_grace_max, transition) = (self.soft_grace_max, self.transition);
        Ok(is_wanted.then_some(Policy { thresholds, reclaim, soft_grace_max, transition }))
    }
}

/// The items of a list with commas: a signal, a sign, and what it is to be. No signal is there twice.
fn items<'a>(flag: &str, list: Option<&'a str>, sign: char) -> Result<Vec<(Signal, &'a str)>, String> {
    let mut found: Vec<(Signal, &str)> = Vec::new();
    for item in list.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let names = Signal::ALL.map(Signal::name).join(", ");
        let Some((name, value)) = item.split_once(sign) else {
            return Err(format!("{flag}: {item:?} is not of the form SIGNAL{sign}VALUE"));
        };
        let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.name() == name.trim()) else {
            return Err(format!(
                "{flag}: {:?} is no signal of this node\nhint: there are {names}",
                name.trim()
            ));
        };
        if found.iter().any(|(known, _)| *known == signal) {
            return Err(format!("{flag}: {} is there twice", signal.name()));
        }
        found.push((signal, value.trim()));
    }
    Ok(found)
}

/// A quantity, or a percentage; `None` for 0 % and 100 %, which ask for nothing, as with the kubelet.
fn level(flag: &str, text: &str) -> Result<Option<Level>, String> {
    let wrong =
        || format!("{flag}: {text:?} is neither a quantity such as 100Mi nor a percentage such as 10%");
    let Some(percent) = text.strip_suffix('%') else {
        let value = text.parse::<Quantity>().map_err(|_| wrong())?.value();
        return if value < 0 { Err(wrong()) } else { Ok(Some(Level::Value(value))) };
    };
    let percent: f64 = percent.parse().map_err(|_| wrong())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    // Between 0 and a million.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let part = (percent * 10_000.0).round() as u32;
    Ok(Some(Level::Part(part)).filter(|_| part != 0 && part != 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hard(text: &str) -> Flags {
        Flags { hard: Some(text.to_owned()), ..Flags::default() }
    }

    #[test]
    fn nothing_is_evicted_unless_it_is_asked_for() {
        assert_eq!(Flags::default().policy(), Ok(None));
        let wanted = Flags { is_wanted: true, transition: Policy::default().transition, ..Flags::default() };
        assert_eq!(wanted.policy(), Ok(Some(Policy::default())));
    }

    #[test]
    fn thresholds_are_read_as_the_kubelet_reads_them() {
        let flags = Flags {
            soft: Some("memory.available<1Gi".to_owned()),
            soft_grace: Some("memory.available=1m30s".to_owned()),
            reclaim: Some("nodefs.available=5%".to_owned()),
            soft_grace_max: Duration::from_secs(7),
            transition: Duration::from_secs(8),
            ..hard("memory.available<300Mi, nodefs.available<7.5%,nodefs.inodesFree<0%,pid.available<100%")
        };
        let soft = Threshold {
            signal: Signal::Memory,
            level: Level::Value(1 << 30),
            grace: Some(Duration::from_secs(90)),
        };
        let want = Policy {
            thresholds: vec![
                Threshold::hard(Signal::Memory, Level::Value(300 << 20)),
                Threshold::hard(Signal::Disk, Level::Part(75_000)),
                soft,
            ],
            reclaim: vec![(Signal::Disk, Level::Part(50_000))],
            soft_grace_max: Duration::from_secs(7),
            transition: Duration::from_secs(8),
        };
        assert_eq!(flags.policy(), Ok(Some(want)));
        // Soft ones come beside the defaults, as long as nobody replaces these.
        let beside = Flags { hard: None, ..flags }.policy().expect("read").expect("wanted").thresholds;
        assert_eq!(beside, [Policy::default().thresholds, vec![soft]].concat());
        assert_eq!(hard("").policy().map(|policy| policy.map(|policy| policy.thresholds)), Ok(Some(vec![])));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (flags, want) in [
            (
                hard("memory.available=1"),
                "--eviction-hard: \"memory.available=1\" is not of the form SIGNAL<VALUE",
            ),
            (
                hard("cpu.available<1"),
                "--eviction-hard: \"cpu.available\" is no signal of this node\nhint: there are memory.available, \
                 nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available",
            ),
            (
                hard("memory.available<x"),
                "--eviction-hard: \"x\" is neither a quantity such as 100Mi nor a percentage such as 10%",
            ),
            (
                hard("memory.available<101%"),
                "--eviction-hard: \"101%\" is neither a quantity such as 100Mi nor a percentage such as 10%",
            ),
            (
                hard("memory.available<-1"),
                "--eviction-hard: \"-1\" is neither a quantity such as 100Mi nor a percentage such as 10%",
            ),
            (hard("pid.available<1,pid.available<2"), "--eviction-hard: pid.available is there twice"),
            (
                Flags { soft: Some("memory.available<1Gi".to_owned()), ..Flags::default() },
                "--eviction-soft memory.available has no grace period\n\
                 hint: add --eviction-soft-grace-period memory.available=1m30s",
            ),
            (
                Flags {
                    soft: Some("memory.available<1Gi".to_owned()),
                    soft_grace: Some("memory.available=1".to_owned()),
                    ..Flags::default()
                },
                "--eviction-soft-grace-period: \"1\" has no unit; write it as in 100ms, 10s or 1h30m",
            ),
        ] {
            assert_eq!(flags.policy(), Err(want.to_owned()));
        }
    }
}
