//! The order in which a node that shuts down ends its pods: by priority, the lowest first.

use std::time::Duration;

use crate::pod::Order;

/// Pods of this priority and above, up to the next group, get this much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The lowest priority of the group.
    pub priority: i32,
    /// How long its pods may take to end.
    pub grace: Duration,
}

/// The priority from which on a pod is critical.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// How long pods may take to end when nobody says how long; Kubernetes' own grace period of a pod that names none.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// A Node with this annotation, `true`, does as if it shut down: it ends its pods and takes no others.
pub const ANNOTATION: &str = "windlass.dev/shutdown";

/// Why a pod ends that a shutdown ends.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Kubernetes' form with two periods: the last `critical` of `total` is for critical pods.
pub fn of_periods(total: Duration, critical: Duration) -> Vec<Group> {
    let group = |priority, grace| Group { priority, grace };
    vec![group(0, total.saturating_sub(critical)), group(CRITICAL_PRIORITY, critical)]
}

/// What a pod that ends with its node is told.
pub(crate) fn order(grace: Duration) -> Order {
    Order { grace, reason: "Terminated", message: MESSAGE.into(), disruption: Some(MESSAGE.into()) }
}

/// The pods in the order in which they end. A pod goes with the highest group that is not above it, one below all
/// with the lowest. Groups without pods are left out.
pub fn turns<P>(groups: &[Group], pods: impl IntoIterator<Item = (i32, P)>) -> Vec<(Duration, Vec<P>)> {
    let mut groups = groups.to_vec();
    groups.sort_by_key(|group| group.priority);
    let mut turns: Vec<(Duration, Vec<P>)> = groups.iter().map(|group| (group.grace, Vec::new())).collect();
    for (priority, pod) in pods {
        let place = groups.iter().rposition(|group| group.priority <= priority).unwrap_or(0);
        if let Some((_, turn)) = turns.get_mut(place) {
            turn.push(pod);
        }
    }
    turns.retain(|(_, pods)| !pods.is_empty());
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_end_by_priority_the_lowest_first() {
        let second = Duration::from_secs;
        let group = |priority, seconds| Group { priority, grace: second(seconds) };
        let groups = [group(100, 10), group(0, 20), group(1000, 5)];
        for (pods, want) in [
            (vec![], vec![]),
            (vec![(0, 'a'), (99, 'b')], vec![(second(20), vec!['a', 'b'])]),
            (vec![(-5, 'a'), (5000, 'b')], vec![(second(20), vec!['a']), (second(5), vec!['b'])]),
            (
                vec![(1000, 'a'), (100, 'b'), (0, 'c')],
                vec![(second(20), vec!['c']), (second(10), vec!['b']), (second(5), vec!['a'])],
            ),
        ] {
            assert_eq!(turns(&groups, pods.clone()), want, "{pods:?}");
        }
        assert_eq!(of_periods(second(30), second(10)), [group(0, 20), group(2_000_000_000, 10)]);
    }
}
