//! Index sets, compared with a plain ordered set over many random operations.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use windlass_api::indexes::IndexSet;

type Model = BTreeSet<u32>;

/// Indexes at and around the borders of chunks and words.
const INTERESTING: [u32; 14] =
    [0, 1, 63, 64, 4094, 4095, 4096, 4097, 8191, 8192, 12_287, 12_288, 20_479, 20_480];
const TOP: u32 = 24_600;

/// A small deterministic generator: the same operations in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    fn index(&mut self) -> u32 {
        match self.below(3) {
            0 => INTERESTING[self.below(INTERESTING.len() as u32) as usize],
            1 => self.below(TOP),
            _ => 4096 * self.below(6) + self.below(200),
        }
    }

    fn range(&mut self) -> RangeInclusive<u32> {
        let start = self.index();
        match self.below(4) {
            0 => start..=start + self.below(3),
            1 => start / 4096 * 4096..=start / 4096 * 4096 + 4095,
            2 => start..=self.index(),
            _ => start..=start + self.below(9000),
        }
    }

    /// A set with absent, partial and full chunks.
    fn pair(&mut self) -> (IndexSet, Model) {
        let (mut set, mut model) = (IndexSet::new(), Model::new());
        for _ in 0..self.below(6) {
            let range = self.range();
            set.insert_range(range.clone());
            model.extend(range);
        }
        for _ in 0..self.below(50) {
            let index = self.index();
            assert_eq!(set.insert(index), model.insert(index));
            let index = self.index();
            assert_eq!(set.remove(index), model.remove(&index));
        }
        (set, model)
    }
}

fn runs(model: &Model) -> Vec<RangeInclusive<u32>> {
    let mut runs: Vec<RangeInclusive<u32>> = Vec::new();
    for &index in model {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == index => *run = *run.start()..=index,
            _ => runs.push(index..=index),
        }
    }
    runs
}

fn assert_same(set: &IndexSet, model: &Model) {
    assert_eq!(set.len(), model.len() as u64);
    assert_eq!(set.is_empty(), model.is_empty());
    assert_eq!(set.first(), model.first().copied());
    assert_eq!(set.last(), model.last().copied());
    assert!(set.iter().eq(model.iter().copied()), "members of {set}");
    assert_eq!(set.ranges().collect::<Vec<_>>(), runs(model));
    let rebuilt: IndexSet = model.iter().copied().collect();
    assert_eq!(*set, rebuilt, "one form for one content");
}

#[test]
fn every_method_agrees_with_a_plain_ordered_set() {
    let mut random = Lcg(1);
    for _ in 0..200 {
        let (mut set, mut model) = random.pair();
        let (other, other_model) = random.pair();
        let (before, before_model) = (set.clone(), model.clone());

        for _ in 0..20 {
            let index = random.index();
            assert_eq!(set.contains(index), model.contains(&index));
            let absent = (index..).find(|index| !model.contains(index));
            assert_eq!(Some(set.next_absent(index)), absent, "from {index} in {set}");
        }
        let common: Vec<u32> = model.intersection(&other_model).copied().collect();
        assert_eq!(set.intersection_len(&other), common.len() as u64);
        assert_eq!(set.first_overlap(&other), common.first().copied());
        assert_eq!(set == other, model == other_model);

        match random.below(3) {
            0 => {
                set.union_with(&other);
                model.extend(other_model.iter());
            }
            1 => {
                set.difference_with(&other);
                model.retain(|index| !other_model.contains(index));
            }
            _ => {
                let completions = random.index();
                set.truncate(completions);
                model.retain(|&index| index < completions);
            }
        }
        assert_same(&set, &model);
        assert_same(&other, &other_model);
        assert_same(&before, &before_model);
    }
}

#[test]
fn a_clone_and_its_origin_change_apart() {
    let origin: IndexSet = (0..10_000).collect();
    let mut clone = origin.clone();
    assert_eq!(clone, origin);
    assert!(clone.remove(5000));
    assert!(clone.insert(10_001));
    assert!(!clone.insert(10_001));
    assert_eq!(clone.to_string(), "0-4999,5001-9999,10001");
    assert_eq!(origin.to_string(), "0-9999");
    assert_ne!(clone, origin);
}

#[test]
fn a_chunk_becomes_full_and_partial_again_by_every_way() {
    let full: IndexSet = (0..4096).collect();
    let mut by_range = IndexSet::new();
    by_range.insert_range(0..=4095);
    let mut by_union: IndexSet = (0..4096).step_by(2).collect();
    by_union.union_with(&(1..4096).step_by(2).collect());
    let mut by_single_steps = by_range.clone();
    assert!(by_single_steps.remove(77));
    assert_ne!(by_single_steps, full);
    assert!(by_single_steps.insert(77));
    assert_eq!((&by_range, &by_union, &by_single_steps), (&full, &full, &full));

    let mut none = full.clone();
    none.difference_with(&by_range);
    assert_eq!(none, IndexSet::new());
}

#[test]
fn ranges_that_hold_nothing_change_nothing() {
    let mut set: IndexSet = [3].into_iter().collect();
    #[allow(clippy::reversed_empty_ranges)]
    set.insert_range(9..=8);
    set.insert_range(1 << 31..=u32::MAX);
    assert_eq!(set.to_string(), "3");
}

#[test]
fn indexes_from_two_to_the_31_on_are_never_members() {
    let mut set = IndexSet::new();
    assert!(!set.insert(1 << 31));
    assert!(!set.insert(u32::MAX));
    assert_eq!(set, IndexSet::new());
    assert!(set.insert((1 << 31) - 1));
    set.insert_range((1 << 31) - 5000..=u32::MAX);
    assert_eq!(set.ranges().collect::<Vec<_>>(), [(1 << 31) - 5000..=(1 << 31) - 1]);
    assert_eq!(set.len(), 5000);
    assert_eq!(set.next_absent((1 << 31) - 10), 1 << 31);
    assert_eq!(set.next_absent(u32::MAX), u32::MAX);
    assert!(!set.contains(u32::MAX));
    assert!(!set.remove(u32::MAX));
}

#[test]
fn two_runs_whose_chunks_do_not_touch_stay_two() {
    let set: IndexSet = [4095, 8192].into_iter().collect();
    assert_eq!(set.ranges().collect::<Vec<_>>(), [4095..=4095, 8192..=8192]);
}

#[test]
fn a_set_unites_with_itself_and_its_clones_without_change() {
    let mut set: IndexSet = (0..9000).step_by(3).collect();
    let same = set.clone();
    set.union_with(&same);
    assert_eq!(set, same);
    let mut shared_bitmaps = same.clone();
    shared_bitmaps.insert(9001);
    shared_bitmaps.union_with(&same);
    assert_eq!(shared_bitmaps.len(), same.len() + 1);
}
