//! Node-pressure eviction: when the node is short of something, which pod has to go, and what it is told.
//!
//! Pure: signals and usage are read by [`Signals`], which a test can replace.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::backoff::add;
use crate::shutdown::CRITICAL_PRIORITY;

/// The condition of a node whose disk is short.
pub const DISK_PRESSURE: &str = "DiskPressure";

/// What can run short, as the API names the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// `memory.available`.
    Memory,
    /// `nodefs.available`.
    Disk,
    /// `nodefs.inodesFree`.
    Inodes,
    /// `imagefs.available`.
    Images,
    /// `imagefs.inodesFree`.
    ImageInodes,
    /// `pid.available`.
    Pids,
}

impl Signal {
    /// All, memory first: it is the most urgent.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::Disk, Self::Inodes, Self::Images, Self::ImageInodes, Self::Pids];

    /// The condition of the node that shows it.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk | Self::Inodes | Self::Images | Self::ImageInodes => DISK_PRESSURE,
            Self::Pids => "PIDPressure",
        }
    }

    /// As flags name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory.available",
            Self::Disk => "nodefs.available",
            Self::Inodes => "nodefs.inodesFree",
            Self::Images => "imagefs.available",
            Self::ImageInodes => "imagefs.inodesFree",
            Self::Pids => "pid.available",
        }
    }

    /// What is short, in messages.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk | Self::Images => "ephemeral-storage",
            Self::Inodes | Self::ImageInodes => "inodes",
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

/// How much of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// This much.
    Value(i64),
    /// This part of the whole, in millionths.
    Part(u32),
}

impl Level {
    /// In units of the signal.
    pub fn value(self, capacity: i64) -> i64 {
        match self {
            Self::Value(value) => value,
            Self::Part(part) => {
                let value = i128::from(capacity) * i128::from(part) / 1_000_000;
                i64::try_from(value).unwrap_or(i64::MAX)
            }
        }
    }
}

/// Below which a pod has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Of what.
    pub signal: Signal,
    /// With less than this left.
    pub level: Level,
    /// When it was so for this long, and then with the time that soft evictions give; `None`: at once (it is hard).
    pub grace: Option<Duration>,
}

impl Threshold {
    /// One that is met at once.
    pub fn hard(signal: Signal, level: Level) -> Self {
        Self { signal, level, grace: None }
    }
}

/// When pods have to go because the node is short of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where that begins.
    pub thresholds: Vec<Threshold>,
    /// A threshold that was met is met until this much more is left (evictionMinimumReclaim).
    pub reclaim: Vec<(Signal, Level)>,
    /// The longest that a pod has to end when a soft threshold is met (evictionMaxPodGracePeriod).
    pub soft_grace_max: Duration,
    /// How long a condition stays after the last time that a signal was low (evictionPressureTransitionPeriod).
    pub transition: Duration,
}

impl Default for Policy {
    /// Kubernetes' defaults for Linux; it has none for processes.
    fn default() -> Self {
        Self {
            thresholds: vec![
                Threshold::hard(Signal::Memory, Level::Value(100 << 20)),
                Threshold::hard(Signal::Disk, Level::Part(100_000)),
                Threshold::hard(Signal::Inodes, Level::Part(50_000)),
                Threshold::hard(Signal::Images, Level::Part(150_000)),
                Threshold::hard(Signal::ImageInodes, Level::Part(50_000)),
            ],
            reclaim: Vec::new(),
            soft_grace_max: Duration::ZERO,
            transition: Duration::from_secs(300),
        }
    }
}

impl Policy {
    fn reclaim(&self, signal: Signal, capacity: i64) -> i64 {
        let found = self.reclaim.iter().find(|(of, _)| *of == signal);
        found.map_or(0, |(_, level)| level.value(capacity))
    }
}

/// Reads what the machine has left, and what pods use of it.
pub trait Signals: Send + Sync {
    /// What is left; `None` when it can't be told.
    fn amount(&self, signal: Signal) -> Option<Amount>;
    /// What each of these uses.
    fn used(&self, places: &[Place<'_>], signal: Signal) -> Vec<i64>;
}

/// Where a container can be found, or the volumes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The name of the pod.
    pub pod: &'a str,
    /// The main process of the container, from which all others of it come; `None` when it does not run.
    pub pid: Option<i32>,
    /// What it has on the disk.
    pub paths: Vec<PathBuf>,
}

/// A signal that is low, and was for as long as it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Which.
    pub signal: Signal,
    /// Where it begins.
    pub threshold: i64,
    /// What is left.
    pub available: i64,
    /// How long a pod that has to go may take to end.
    pub grace: Duration,
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
    /// What its volumes take of what is short.
    pub volumes: i64,
}

impl Candidate {
    fn used(&self) -> i64 {
        self.volumes + self.parts.iter().map(|part| part.used).sum::<i64>()
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
            Signal::Memory | Signal::Disk | Signal::Inodes | Signal::Images | Signal::ImageInodes => {
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
        Signal::Memory | Signal::Disk | Signal::Images => binary(value),
        Signal::Inodes | Signal::ImageInodes | Signal::Pids => value.to_string(),
    };
    let mut text = format!("The node was low on resource: {resource}. ");
    text += &format!(
        "Threshold quantity: {}, available: {}. ",
        amount(shortage.threshold),
        amount(shortage.available)
    );
    let is_told = matches!(shortage.signal, Signal::Memory | Signal::Disk | Signal::Images);
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
    /// What the limits of all containers allow together; `None`: there are none.
    pub limit: Option<i64>,
}

/// What a pod is told that keeps more than it may; `None` when it does not. No disruption: it is its own doing.
pub fn excess(stored: &Stored) -> Option<String> {
    if let Some((name, _, _, limit)) = stored.directories.iter().find(|(_, used, limit, _)| used > limit) {
        return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit {limit:?}. "));
    }
    let used = stored.in_directories + stored.containers.iter().map(|(_, used, _)| used).sum::<i64>();
    if let Some(limit) = stored.limit.filter(|limit| used > *limit) {
        let limit = binary(limit);
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ));
    }
    stored.containers.iter().find_map(|(name, used, limit)| {
        let (limit, text) = limit.as_ref()?;
        (used > limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit {text:?}. "))
    })
}

/// The time that a pod has which has to go at once; two seconds remain at least.
pub const HARD_GRACE: Duration = Duration::from_secs(1);

/// What is low, and since when; which conditions of pressure the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Thresholds that are met, by their place in the policy.
    met_since: BTreeMap<usize, Timestamp>,
    /// By condition.
    last_low: BTreeMap<&'static str, Timestamp>,
}

impl Pressure {
    /// Takes note of what is low now. Returns what a pod has to go for, in the order in which it is dealt with.
    pub fn observe(
        &mut self,
        policy: &Policy,
        amount: impl Fn(Signal) -> Option<Amount>,
        now: Timestamp,
    ) -> Vec<Shortage> {
        let mut urgent = Vec::new();
        for (place, Threshold { signal, level, grace }) in policy.thresholds.iter().copied().enumerate() {
            let Some(shortage) = amount(signal).and_then(|amount| {
                let threshold = level.value(amount.capacity);
                let was_met = self.met_since.contains_key(&place);
                let more = if was_met { policy.reclaim(signal, amount.capacity) } else { 0 };
                let grace = if grace.is_some() { policy.soft_grace_max } else { HARD_GRACE };
                let is_low = amount.available < threshold.saturating_add(more);
                is_low.then_some(Shortage { signal, threshold, available: amount.available, grace })
            }) else {
                self.met_since.remove(&place);
                continue;
            };
            let since = *self.met_since.entry(place).or_insert(now);
            self.last_low.insert(signal.condition(), now);
            if add(since, grace.unwrap_or_default()) <= now {
                urgent.push((signal, grace.is_some(), shortage));
            }
        }
        self.last_low.retain(|_, last| add(*last, policy.transition) > now);
        urgent.sort_by_key(|(signal, is_soft, _)| (*signal, *is_soft));
        urgent.into_iter().map(|(_, _, shortage)| shortage).collect()
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
        Candidate { uid: uid.into(), priority, parts: parts.collect(), volumes: 0 }
    }

    /// Amounts of a machine that has this much memory left, and plenty of all else.
    fn memory_left(available: i64) -> impl Fn(Signal) -> Option<Amount> {
        move |signal| match signal {
            Signal::Memory => Some(Amount { capacity: 1000, available }),
            Signal::Disk | Signal::Inodes => Some(Amount { capacity: 1000, available: 1000 }),
            Signal::Images | Signal::ImageInodes | Signal::Pids => None,
        }
    }

    fn soft(level: i64, seconds: u64) -> Threshold {
        let grace = Some(Duration::from_secs(seconds));
        Threshold { signal: Signal::Memory, level: Level::Value(level), grace }
    }

    #[test]
    fn a_signal_is_low_below_its_threshold_and_memory_is_dealt_with_first() {
        let amounts = |signal| match signal {
            Signal::Memory => Some(Amount { capacity: 8 << 30, available: (100 << 20) - 1 }),
            Signal::Disk => Some(Amount { capacity: 1000, available: 99 }),
            Signal::Inodes => Some(Amount { capacity: 1000, available: 50 }),
            Signal::Images => Some(Amount { capacity: 1000, available: 150 }),
            Signal::ImageInodes | Signal::Pids => None,
        };
        let mut policy = Policy::default();
        policy.thresholds.reverse();
        let shortage =
            |signal, threshold, available| Shortage { signal, threshold, available, grace: HARD_GRACE };
        let want = [shortage(Signal::Memory, 100 << 20, (100 << 20) - 1), shortage(Signal::Disk, 100, 99)];
        assert_eq!(Pressure::default().observe(&policy, amounts, at(0)), want);
    }

    #[test]
    fn a_soft_threshold_is_shown_at_once_and_acted_on_when_its_time_is_over() {
        let policy = Policy {
            thresholds: vec![soft(200, 30), Threshold::hard(Signal::Memory, Level::Value(50))],
            soft_grace_max: Duration::from_secs(7),
            ..Policy::default()
        };
        let mut pressure = Pressure::default();
        let mut urgent = |available, second| -> Vec<(i64, u64)> {
            let found = pressure.observe(&policy, memory_left(available), at(second));
            found.into_iter().map(|shortage| (shortage.threshold, shortage.grace.as_secs())).collect()
        };
        assert_eq!(urgent(199, 0), []);
        assert_eq!(urgent(199, 29), []);
        assert_eq!(urgent(199, 30), [(200, 7)]);
        // The time begins anew when there was enough in between.
        assert_eq!(urgent(200, 40), []);
        assert_eq!(urgent(199, 50), []);
        assert_eq!(urgent(49, 60), [(50, 1)], "the hard one does not wait");
        assert_eq!(urgent(49, 80), [(50, 1), (200, 7)], "and comes first");
        let mut fresh = Pressure::default();
        fresh.observe(&policy, memory_left(199), at(0));
        assert_eq!(fresh.conditions(), ["MemoryPressure"]);
    }

    #[test]
    fn what_was_low_is_low_until_enough_is_reclaimed() {
        let policy = Policy {
            thresholds: vec![Threshold::hard(Signal::Memory, Level::Value(100))],
            reclaim: vec![(Signal::Memory, Level::Part(50_000))],
            ..Policy::default()
        };
        let mut pressure = Pressure::default();
        let mut is_low = |available| !pressure.observe(&policy, memory_left(available), at(0)).is_empty();
        for (available, want) in [(120, false), (99, true), (149, true), (150, false), (120, false)] {
            assert_eq!(is_low(available), want, "{available}");
        }
    }

    #[test]
    fn the_pod_that_has_to_go_uses_more_than_it_asked_for_and_matters_least() {
        let within = pod("within", 0, &[(10, 20)]);
        let over = pod("over", 10, &[(30, 20)]);
        let much_over = pod("much", 10, &[(90, 20)]);
        let critical = pod("critical", CRITICAL_PRIORITY, &[(900, 0)]);
        let low = pod("low", -5, &[(25, 20)]);
        let with_volumes = Candidate { volumes: 100, ..pod("volumes", 10, &[(1, 20)]) };
        for (signal, pods, want) in [
            (Signal::Memory, vec![&within, &over], Some("over")),
            (Signal::Memory, vec![&within, &over, &much_over], Some("much")),
            (Signal::Memory, vec![&over, &much_over, &low], Some("low")),
            (Signal::Memory, vec![&critical, &within], Some("within")),
            (Signal::Memory, vec![&critical], None),
            (Signal::Pids, vec![&within, &over, &much_over], Some("within")),
            (Signal::Pids, vec![&over, &much_over], Some("much")),
            (Signal::Disk, vec![&much_over, &with_volumes], Some("volumes")),
        ] {
            let pods: Vec<Candidate> = pods.into_iter().cloned().collect();
            assert_eq!(choose(signal, &pods).map(|pod| pod.uid.as_str()), want, "{signal:?}");
        }
    }

    #[test]
    fn the_message_is_that_of_kubernetes() {
        let (threshold, available) = (100 << 20, 50 << 20);
        let shortage = Shortage { signal: Signal::Memory, threshold, available, grace: HARD_GRACE };
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
                    containers: vec![container("a", 10, limit(2048)), container("b", 0, None)],
                    in_directories: 2048,
                    limit: Some(2048),
                    ..Stored::default()
                },
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 2Ki. "),
            ),
            (
                Stored {
                    containers: vec![container("a", 1025, limit(1024)), container("b", 0, limit(1024))],
                    limit: Some(2048),
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
        let (policy, mut pressure) = (Policy::default(), Pressure::default());
        let inodes = |available| move |_| Some(Amount { capacity: 8 << 30, available });
        pressure.observe(&policy, inodes(1), at(0));
        assert_eq!(pressure.conditions(), ["DiskPressure", "MemoryPressure"]);
        pressure.observe(&policy, inodes(8 << 30), at(299));
        assert_eq!(pressure.conditions(), ["DiskPressure", "MemoryPressure"]);
        pressure.observe(&policy, inodes(8 << 30), at(300));
        assert_eq!(pressure.conditions(), [""; 0]);
    }
}
