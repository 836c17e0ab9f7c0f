//! Node-pressure eviction: when the node is short of something, which pod has to go, and what it is told.
//!
//! Pure: signals and usage are read by [`Signals`], which a test can replace.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use crate::shutdown::CRITICAL_PRIORITY;

/// What can run short, as the API names the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// `memory.available`.
    Memory,
    /// `nodefs.available`.
    Disk,
    /// `nodefs.inodesFree`.
    Inodes,
    /// `pid.available`.
    Pids,
}

impl Signal {
    /// All, memory first: it is the most urgent.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Disk, Self::Inodes, Self::Pids];

    /// The condition of the node that shows it.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk | Self::Inodes => "DiskPressure",
            Self::Pids => "PIDPressure",
        }
    }

    /// What is short, in messages.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

/// How much there is and how much of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// All of it.
    pub capacity: i64,
    /// What is left.
    pub available: i64,
}

/// Where a signal is low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Less than this.
    Value(i64),
    /// Less than this part of the whole.
    Part(f64),
}

impl Threshold {
    /// In units of the signal.
    pub fn value(self, capacity: i64) -> i64 {
        match self {
            Self::Value(value) => value,
            // Far below 2^52 in any machine; what is lost is below a byte.
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            Self::Part(part) => (capacity as f64 * part) as i64,
        }
    }
}

/// Below which a pod has to go at once. Kubernetes' defaults for Linux; it has none for processes.
pub fn hard_defaults() -> Vec<(Signal, Threshold)> {
    vec![
        (Signal::Memory, Threshold::Value(100 << 20)),
        (Signal::Disk, Threshold::Part(0.10)),
        (Signal::Inodes, Threshold::Part(0.05)),
    ]
}

/// How long a condition stays after the last time that a signal was low (evictionPressureTransitionPeriod).
pub const TRANSITION: Duration = Duration::from_secs(300);

/// Reads what the machine has left, and what pods use of it.
pub trait Signals: Send + Sync {
    /// What is left; `None` when it can't be told.
    fn amount(&self, signal: Signal) -> Option<Amount>;
    /// What a container uses.
    fn used(&self, container: &Place<'_>, signal: Signal) -> i64;
}

/// Where a container can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The name of its pod.
    pub pod: &'a str,
    /// Its own.
    pub name: &'a str,
    /// Its main process, which leads the session of the others; `None` when it does not run.
    pub pid: Option<i32>,
    /// Its logs.
    pub logs: &'a std::path::Path,
}

/// A signal that is low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Which.
    pub signal: Signal,
    /// Where it begins.
    pub threshold: i64,
    /// What is left.
    pub available: i64,
}

/// The signals that are low, in the order in which they are dealt with.
pub fn shortages(
    thresholds: &[(Signal, Threshold)],
    amount: impl Fn(Signal) -> Option<Amount>,
) -> Vec<Shortage> {
    let mut low: Vec<Shortage> = thresholds
        .iter()
        .filter_map(|(signal, threshold)| {
            let Amount { capacity, available } = amount(*signal)?;
            let threshold = threshold.value(capacity);
            (available < threshold).then_some(Shortage { signal: *signal, threshold, available })
        })
        .collect();
    low.sort_by_key(|shortage| shortage.signal);
    low
}

/// A container of a pod that may have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it uses of what is short.
    pub used: i64,
    /// What it has a claim to.
    pub request: i64,
    /// The same, as it was written.
    pub request_text: String,
}

/// A pod that may have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub uid: String,
    /// `spec.priority`.
    pub priority: i32,
    /// Its containers.
    pub parts: Vec<Part>,
}

impl Candidate {
    fn used(&self) -> i64 {
        self.parts.iter().map(|part| part.used).sum()
    }

    fn excess(&self) -> i64 {
        self.used() - self.parts.iter().map(|part| part.request).sum::<i64>()
    }
}

/// The pod that has to go: those that use more than they asked for first, then by priority, then by how much more. For
/// processes by priority and number alone. Critical pods stay.
pub fn choose(signal: Signal, pods: &[Candidate]) -> Option<&Candidate> {
    let by = |a: &&Candidate, b: &&Candidate| -> Ordering {
        let by_priority = a.priority.cmp(&b.priority);
        match signal {
            Signal::Pids => by_priority.then(b.used().cmp(&a.used())),
            Signal::Memory | Signal::Disk | Signal::Inodes => {
                (b.excess() > 0).cmp(&(a.excess() > 0)).then(by_priority).then(b.excess().cmp(&a.excess()))
            }
        }
    };
    pods.iter().filter(|pod| pod.priority < CRITICAL_PRIORITY).min_by(by)
}

/// What the pod is told, upstream's text.
pub fn message(shortage: &Shortage, pod: &Candidate) -> String {
    let resource = shortage.signal.resource();
    let amount = |value: i64| match shortage.signal {
        Signal::Memory | Signal::Disk => binary(value),
        Signal::Inodes | Signal::Pids => value.to_string(),
    };
    let mut text = format!("The node was low on resource: {resource}. ");
    text += &format!(
        "Threshold quantity: {}, available: {}. ",
        amount(shortage.threshold),
        amount(shortage.available)
    );
    let is_told = matches!(shortage.signal, Signal::Memory | Signal::Disk);
    for part in pod.parts.iter().filter(|part| is_told && part.used > part.request) {
        text += &format!(
            "Container {} was using {}, request is {}, has larger consumption of {resource}. ",
            part.name,
            amount(part.used),
            part.request_text
        );
    }
    text
}

/// A number of bytes as a quantity: in the greatest unit of 1024 in which it is whole.
fn binary(bytes: i64) -> String {
    let (mut value, mut unit) = (bytes, 0);
    while value != 0 && value % 1024 == 0 && unit < 6 {
        (value, unit) = (value / 1024, unit + 1);
    }
    format!("{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][unit])
}

/// A limit, as a number and as it was written.
pub type Limit = (i64, String);

/// What a pod has on the disk of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Its directories with a limit: name, used, limit as a number and as written.
    pub directories: Vec<(String, i64, i64, String)>,
    /// Its containers: name, used, limit.
    pub containers: Vec<(String, i64, Option<Limit>)>,
    /// What all its directories hold.
    pub in_directories: i64,
}

/// What a pod is told that keeps more than it may; `None` when it does not. No disruption: it is its own doing.
pub fn excess(stored: &Stored) -> Option<String> {
    if let Some((name, _, _, limit)) = stored.directories.iter().find(|(_, used, limit, _)| used > limit) {
        return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit {limit:?}. "));
    }
    let limits: Vec<i64> =
        stored.containers.iter().filter_map(|(_, _, limit)| Some(limit.as_ref()?.0)).collect();
    let total: i64 = limits.iter().sum();
    let used = stored.in_directories + stored.containers.iter().map(|(_, used, _)| used).sum::<i64>();
    // The pod has a limit if each of its containers has one.
    if !limits.is_empty() && limits.len() == stored.containers.len() && used > total {
        let total = binary(total);
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
        ));
    }
    stored.containers.iter().find_map(|(name, used, limit)| {
        let (limit, text) = limit.as_ref()?;
        (used > limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit {text:?}. "))
    })
}

/// Which conditions of pressure a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    last_low: std::collections::BTreeMap<&'static str, Timestamp>,
}

impl Pressure {
    /// Takes note of what is low now.
    pub fn observe(&mut self, shortages: &[Shortage], now: Timestamp) {
        for shortage in shortages {
            self.last_low.insert(shortage.signal.condition(), now);
        }
        self.last_low.retain(|_, last| crate::backoff::add(*last, TRANSITION) > now);
    }

    /// The conditions that are true.
    pub fn conditions(&self) -> Vec<&'static str> {
        self.last_low.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::fixtures::at;

    fn pod(uid: &str, priority: i32, parts: &[(i64, i64)]) -> Candidate {
        let parts = parts.iter().enumerate().map(|(place, (used, request))| Part {
            name: format!("c{place}"),
            used: *used,
            request: *request,
            request_text: request.to_string(),
        });
        Candidate { uid: uid.into(), priority, parts: parts.collect() }
    }

    #[test]
    fn a_signal_is_low_below_its_threshold_and_memory_is_dealt_with_first() {
        let low = shortages(&hard_defaults(), |signal| match signal {
            Signal::Memory => Some(Amount { capacity: 8 << 30, available: (100 << 20) - 1 }),
            Signal::Disk => Some(Amount { capacity: 1000, available: 99 }),
            Signal::Inodes => Some(Amount { capacity: 1000, available: 50 }),
            Signal::Pids => None,
        });
        let want = [
            Shortage { signal: Signal::Memory, threshold: 100 << 20, available: (100 << 20) - 1 },
            Shortage { signal: Signal::Disk, threshold: 100, available: 99 },
        ];
        assert_eq!(low, want);
    }

    #[test]
    fn the_pod_that_has_to_go_uses_more_than_it_asked_for_and_matters_least() {
        let within = pod("within", 0, &[(10, 20)]);
        let over = pod("over", 10, &[(30, 20)]);
        let much_over = pod("much", 10, &[(90, 20)]);
        let critical = pod("critical", CRITICAL_PRIORITY, &[(900, 0)]);
        let low = pod("low", -5, &[(25, 20)]);
        for (signal, pods, want) in [
            (Signal::Memory, vec![&within, &over], Some("over")),
            (Signal::Memory, vec![&within, &over, &much_over], Some("much")),
            (Signal::Memory, vec![&over, &much_over, &low], Some("low")),
            (Signal::Memory, vec![&critical, &within], Some("within")),
            (Signal::Memory, vec![&critical], None),
            (Signal::Pids, vec![&within, &over, &much_over], Some("within")),
            (Signal::Pids, vec![&over, &much_over], Some("much")),
        ] {
            let pods: Vec<Candidate> = pods.into_iter().cloned().collect();
            assert_eq!(choose(signal, &pods).map(|pod| pod.uid.as_str()), want, "{signal:?}");
        }
    }

    #[test]
    fn the_message_is_that_of_kubernetes() {
        let shortage = Shortage { signal: Signal::Memory, threshold: 100 << 20, available: 50 << 20 };
        let text = message(&shortage, &pod("p", 0, &[(1 << 30, 0), (1, 2)]));
        assert_eq!(
            text,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c0 was using 1Gi, request is 0, has larger consumption of memory. "
        );
    }

    #[test]
    fn who_keeps_more_than_it_may_is_told_where() {
        let limit = |bytes: i64| Some((bytes, binary(bytes)));
        let container = |name: &str, used, limit| (name.to_owned(), used, limit);
        let directory = |used| ("v".to_owned(), used, 1024, "1Ki".to_owned());
        for (stored, want) in [
            (Stored::default(), None),
            (Stored { directories: vec![directory(1024)], in_directories: 1024, ..Stored::default() }, None),
            (
                Stored { directories: vec![directory(1025)], ..Stored::default() },
                Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Ki\". "),
            ),
            (
                Stored {
                    containers: vec![container("a", 10, limit(1024)), container("b", 0, limit(1024))],
                    in_directories: 2048,
                    ..Stored::default()
                },
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 2Ki. "),
            ),
            (
                Stored {
                    containers: vec![container("a", 1025, limit(1024)), container("b", 0, None)],
                    ..Stored::default()
                },
                Some("Container a exceeded its local ephemeral storage limit \"1Ki\". "),
            ),
        ] {
            assert_eq!(excess(&stored).as_deref(), want, "{stored:?}");
        }
    }

    #[test]
    fn bytes_are_written_in_the_unit_in_which_they_are_whole() {
        for (bytes, want) in [(0, "0"), (1000, "1000"), (1024, "1Ki"), (1536, "1536"), (5 << 30, "5Gi")] {
            assert_eq!(binary(bytes), want);
        }
    }

    #[test]
    fn a_condition_stays_for_five_minutes() {
        let shortage = Shortage { signal: Signal::Inodes, threshold: 2, available: 1 };
        let mut pressure = Pressure::default();
        pressure.observe(&[shortage], at(0));
        pressure.observe(&[], at(299));
        assert_eq!(pressure.conditions(), ["DiskPressure"]);
        pressure.observe(&[], at(300));
        assert_eq!(pressure.conditions(), [""; 0]);
    }
}
