//! Items found by UID in one step, each in a slot with a small number, so that sets of them can be bitmaps.
//!
//! The only hash tables of the core: they are asked and never walked, so their order can't matter, and their hash is fixed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::uid::Uid;

/// A set of UIDs.
#[derive(Clone, Debug, Default)]
pub(crate) struct UidSet<'a>(HashMap<&'a Uid, (), BuildHasherDefault<UidHasher>>);

impl UidSet<'_> {
    pub fn contains(&self, uid: &Uid) -> bool {
        self.0.contains_key(uid)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<&'a Uid> for UidSet<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Uid>>(uids: I) -> Self {
        Self(uids.into_iter().map(|uid| (uid, ())).collect())
    }
}

/// Items by UID and by slot.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    by_uid: HashMap<Uid, u32, BuildHasherDefault<UidHasher>>,
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { by_uid: HashMap::default(), items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// The slot of the item with this UID.
    pub fn find(&self, uid: &Uid) -> Option<u32> {
        self.by_uid.get(uid).copied()
    }

    /// The item in a slot that is in use.
    pub fn at(&self, slot: u32) -> &T {
        self.items[slot as usize].as_ref().expect("a slot in a set is in use")
    }

    /// The item in a slot that is in use.
    pub fn at_mut(&mut self, slot: u32) -> &mut T {
        self.items[slot as usize].as_mut().expect("a slot in a set is in use")
    }

    /// The item with this UID.
    pub fn get(&self, uid: &Uid) -> Option<&T> {
        self.find(uid).map(|slot| self.at(slot))
    }

    /// The item with this UID.
    pub fn get_mut(&mut self, uid: &Uid) -> Option<&mut T> {
        self.find(uid).map(|slot| self.at_mut(slot))
    }

    /// Puts a new item in a free slot.
    pub fn insert(&mut self, uid: Uid, item: T) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            u32::try_from(self.items.len() - 1).expect("a Job has fewer than 2^32 pods")
        });
        self.items[slot as usize] = Some(item);
        self.by_uid.insert(uid, slot);
        slot
    }

    /// Takes the item with this UID out and frees its slot.
    pub fn remove(&mut self, uid: &Uid) -> Option<(u32, T)> {
        let slot = self.by_uid.remove(uid)?;
        self.free.push(slot);
        self.items[slot as usize].take().map(|item| (slot, item))
    }

    /// All items, by slot.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }
}

/// A word is taken in by a rotation and a multiplication; the end spreads every bit over all of the hash, because the
/// table looks at the lowest bits and UIDs may differ in the highest only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UidHasher(u64);

impl UidHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for UidHasher {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn finish(&self) -> u64 {
        let mut hash = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ hash >> 33).wrapping_mul(factor);
        }
        hash ^ hash >> 33
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::Hash;

    use super::*;

    #[test]
    fn uids_that_differ_in_few_bits_differ_in_the_lowest_and_highest_of_their_hashes() {
        let hashes = (0..4096_u32).map(|n| {
            let mut hasher = UidHasher::default();
            Uid::new(&format!("00000000-0000-4000-8000-{n:012x}")).hash(&mut hasher);
            hasher.finish()
        });
        let (low, high): (BTreeSet<u64>, BTreeSet<u64>) =
            hashes.map(|hash| (hash & 0xfff, hash >> 52)).unzip();
        // 4096 balls in 4096 boxes leave about 1/e of them empty.
        assert!(low.len() > 2400 && high.len() > 2400, "{} {}", low.len(), high.len());
    }

    #[test]
    fn a_freed_slot_is_used_again_and_items_are_found_by_uid() {
        let mut slots = Slots::default();
        let first = slots.insert(Uid::new("a"), 1);
        let second = slots.insert(Uid::new("b"), 2);
        assert_eq!((slots.find(&Uid::new("a")), slots.get(&Uid::new("b"))), (Some(first), Some(&2)));
        assert_eq!(slots.remove(&Uid::new("a")), Some((first, 1)));
        assert_eq!(slots.remove(&Uid::new("a")), None);
        assert_eq!(slots.insert(Uid::new("c"), 3), first);
        *slots.at_mut(second) += 5;
        assert_eq!(slots.iter().copied().collect::<Vec<_>>(), [3, 7]);
        assert_eq!((slots.len(), slots.get_mut(&Uid::new("x"))), (2, None));
    }
}
