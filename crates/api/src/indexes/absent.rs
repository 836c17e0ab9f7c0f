//! The indexes that none of several sets has: what is left to do when some are done, some busy and some given up.

use super::chunk::{BITS, Chunk, scan};
use super::{IndexSet, MAX};

impl IndexSet {
    /// The indexes that are in none of `sets`, ascending. Costs a look at the words of one chunk an index at the most,
    /// and nothing for chunks that one of the sets has in full.
    pub fn absent_from_all<'a>(sets: &'a [&'a Self]) -> impl Iterator<Item = u32> + 'a {
        let mut from = 0;
        std::iter::from_fn(move || {
            while from <= MAX {
                let key = from / BITS;
                match absent_in_chunk(sets, key, from % BITS) {
                    Some(bit) => {
                        let index = key * BITS + bit;
                        from = index + 1;
                        return Some(index);
                    }
                    None => from = (key + 1) * BITS,
                }
            }
            None
        })
    }
}

fn absent_in_chunk(sets: &[&IndexSet], key: u32, from: u32) -> Option<u32> {
    let chunks = || sets.iter().filter_map(|set| set.chunk(key));
    if chunks().any(Chunk::is_full) {
        return None;
    }
    scan(from, |at| !chunks().fold(0, |taken, chunk| taken | chunk.word(at)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn with_no_sets_every_index_is_absent() {
        assert!(IndexSet::absent_from_all(&[]).take(3).eq([0, 1, 2]));
    }

    #[test]
    fn what_one_of_the_sets_has_is_passed_over_also_across_chunks() {
        let mut done = IndexSet::new();
        done.insert_range(0..=BITS + 5);
        let busy: IndexSet = (BITS + 6..BITS + 200).filter(|i| i % 2 == 0).collect();
        let given_up: IndexSet = [BITS + 7, 3 * BITS].into_iter().collect();
        let sets = [&done, &busy, &given_up];
        let taken: BTreeSet<u32> = sets.iter().flat_map(|set| set.iter()).collect();
        let want: Vec<u32> = (0..4 * BITS).filter(|i| !taken.contains(i)).collect();
        let got: Vec<u32> = IndexSet::absent_from_all(&sets).take_while(|i| *i < 4 * BITS).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn it_ends_when_all_indexes_are_taken() {
        let mut all = IndexSet::new();
        all.insert_range(0..=MAX);
        assert_eq!(IndexSet::absent_from_all(&[&all]).next(), None);
        all.remove(MAX);
        assert!(IndexSet::absent_from_all(&[&all]).eq([MAX]));
    }
}
