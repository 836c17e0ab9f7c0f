//! How fast nodes may be given up, zone by zone. Pure.
//!
//! When all nodes are silent it is we who are cut off: nothing is given up until one is heard of again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

/// What is given up, and how fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Nodes a second.
    pub(crate) rate: f64,
    /// In a large zone that is partly disrupted.
    pub(crate) secondary_rate: f64,
    /// So many nodes are not a large zone yet.
    pub(crate) large: usize,
    /// This share of nodes that are not ready is a partial disruption.
    pub(crate) threshold: f64,
}

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Initial,
    Normal,
    Partial,
    Full,
}

/// Nodes of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
}

impl Count {
    pub(crate) fn size(self) -> usize {
        self.ready + self.not_ready
    }

    fn state(self, limits: &Limits) -> State {
        let share = as_f64(self.not_ready) / as_f64(self.size().max(1));
        match self {
            Self { ready: 0, not_ready: 1.. } => State::Full,
            Self { not_ready: 3.., .. } if share >= limits.threshold => State::Partial,
            Self { .. } => State::Normal,
        }
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Limits {
    fn rate(&self, state: State, size: usize) -> f64 {
        match state {
            State::Initial | State::Normal | State::Full => self.rate,
            State::Partial if size > self.large => self.secondary_rate,
            State::Partial => 0.0,
        }
    }
}

/// What follows from how the zones are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Turn {
    /// These zones have another rate now.
    Rates(Vec<(String, f64)>),
    /// Everybody is silent: nothing is given up any more, and what was is taken back.
    Entered,
    /// Somebody is heard of again: every node's time starts anew.
    Exited(Vec<(String, f64)>),
}

/// All zones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones(BTreeMap<String, State>);

impl Zones {
    /// Whether the zone is new.
    pub(crate) fn add(&mut self, zone: &str) -> bool {
        let is_new = !self.0.contains_key(zone);
        if is_new {
            self.0.insert(zone.to_owned(), State::Initial);
        }
        is_new
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Takes in how many nodes are ready. A zone without nodes is forgotten.
    pub(crate) fn judge(&mut self, counts: &BTreeMap<String, Count>, limits: &Limits) -> Turn {
        let new: BTreeMap<&String, State> =
            counts.iter().map(|(zone, count)| (zone, count.state(limits))).collect();
        counts.keys().for_each(|zone| _ = self.add(zone));
        self.0.retain(|zone, _| counts.contains_key(zone));
        let are_all_full = new.values().all(|state| *state == State::Full);
        let were_all_full = self.0.values().all(|state| *state == State::Full);
        if are_all_full && were_all_full {
            return Turn::Rates(Vec::new());
        }
        if are_all_full {
            self.0.values_mut().for_each(|state| *state = State::Full);
            return Turn::Entered;
        }
        let mut rates = Vec::new();
        for (zone, state) in &mut self.0 {
            let (Some(now), Some(count)) = (new.get(zone), counts.get(zone)) else { continue };
            if were_all_full || state != now {
                rates.push((zone.clone(), limits.rate(*now, count.size())));
                *state = *now;
            }
        }
        if were_all_full { Turn::Exited(rates) } else { Turn::Rates(rates) }
    }
}

/// The zone of a node: region and zone. upstream: GetZoneKey.
pub(crate) fn zone_of(node: &Node) -> String {
    let label = |old: &str, new: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(old).or_else(|| labels.get(new))).map_or("", String::as_str)
    };
    let zone = label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    let region = label("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { rate: 0.1, secondary_rate: 0.01, large: 50, threshold: 0.55 };

    fn count(ready: usize, not_ready: usize) -> Count {
        Count { ready, not_ready }
    }

    #[test]
    fn a_zone_is_disrupted_in_part_or_in_full_by_how_many_of_its_nodes_are_silent() {
        let cases = [
            (count(1, 0), State::Normal),
            (count(0, 0), State::Normal),
            (count(0, 1), State::Full),
            (count(0, 9), State::Full),
            (count(1, 2), State::Normal),
            (count(2, 3), State::Partial),
            (count(3, 3), State::Normal),
            (count(45, 55), State::Partial),
            (count(46, 54), State::Normal),
        ];
        for (count, expected) in cases {
            assert_eq!(count.state(&LIMITS), expected, "{count:?}");
        }
    }

    #[test]
    fn the_rate_follows_the_state_and_a_small_zone_in_part_disrupted_stands_still() {
        let cases = [
            (State::Normal, 10, 0.1),
            (State::Partial, 50, 0.0),
            (State::Partial, 51, 0.01),
            (State::Full, 10, 0.1),
        ];
        for (state, size, expected) in cases {
            assert!((LIMITS.rate(state, size) - expected).abs() < 1e-9, "{state:?} {size}");
        }
    }

    #[test]
    fn when_all_are_silent_nothing_is_given_up_until_one_is_heard_of() {
        let mut zones = Zones::default();
        let mut judge = |a: Count, b: Option<Count>| {
            let b = b.map(|b| ("b".to_owned(), b));
            let counts = [("a".to_owned(), a)].into_iter().chain(b).collect();
            zones.judge(&counts, &LIMITS)
        };
        let rates = |rates: &[(&str, f64)]| {
            rates.iter().map(|(zone, rate)| ((*zone).to_owned(), *rate)).collect::<Vec<_>>()
        };
        assert_eq!(judge(count(2, 0), Some(count(1, 0))), Turn::Rates(rates(&[("a", 0.1), ("b", 0.1)])));
        assert_eq!(judge(count(2, 0), Some(count(1, 0))), Turn::Rates(vec![]));
        assert_eq!(
            judge(count(0, 2), Some(count(1, 0))),
            Turn::Rates(rates(&[("a", 0.1)])),
            "another zone is well"
        );
        assert_eq!(judge(count(0, 2), Some(count(0, 1))), Turn::Entered);
        assert_eq!(judge(count(0, 2), Some(count(0, 1))), Turn::Rates(vec![]));
        assert_eq!(judge(count(0, 2), Some(count(1, 0))), Turn::Exited(rates(&[("a", 0.1), ("b", 0.1)])));
        assert_eq!(
            judge(count(2, 4), None),
            Turn::Exited(rates(&[("a", 0.0)])),
            "a zone without nodes is forgotten, and the one that was left was disrupted"
        );
        assert_eq!(zones.names().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_cluster_of_one_silent_node_is_disrupted_at_once() {
        let counts = BTreeMap::from([(String::new(), count(0, 1))]);
        assert_eq!(Zones::default().judge(&counts, &LIMITS), Turn::Entered);
        assert_eq!(Zones::default().judge(&BTreeMap::new(), &LIMITS), Turn::Rates(vec![]));
    }

    #[test]
    fn a_zone_is_named_by_region_and_zone() {
        let zone = |labels: serde_json::Value| {
            let node = serde_json::json!({"metadata": {"labels": labels}});
            zone_of(&serde_json::from_value(node).expect("a node"))
        };
        assert_eq!(zone(serde_json::json!({})), "");
        assert_eq!(zone(serde_json::json!({"topology.kubernetes.io/zone": "z"})), ":\0:z");
        let both = serde_json::json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r",
                                      "failure-domain.beta.kubernetes.io/zone": "old"});
        assert_eq!(zone(both), "r:\0:old");
    }
}
