//! Sets of completion indexes: small, quick, cheap to clone, and with the text form of `completedIndexes`.
//!
//! Measured on one core with 10^6 indexes, every other one of 2 * 10^6 (a run of 10^6 in brackets): 266 kB
//! (4.5 kB), a clone 14 ns, the first change of a clone 7 us and any other 20 ns, a walk over all 8 ms (0.24
//! ms), `next_absent` at most 0.2 us. Of 10^5 alternating indexes, printing takes 1.6 ms and either parser
//! 1.9 ms.

mod absent;
mod builder;
mod chunk;
mod text;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use chunk::{BITS, Chunk};
pub use text::ParseError;

/// The highest index: `completions` is an `i32`.
const MAX: u32 = i32::MAX as u32;

/// A set of completion indexes. An index is below 2^31; greater ones are never members.
///
/// A clone shares everything and copies what it changes: the list of chunks (16 bytes for 4096 indexes) and
/// the one bitmap (512 bytes) that the change is in.
#[derive(Clone, Default)]
pub struct IndexSet {
    /// In ascending order of keys.
    chunks: Arc<Vec<Chunk>>,
    len: u64,
}

impl IndexSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many members there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `index` is a member.
    pub fn contains(&self, index: u32) -> bool {
        self.chunk(index / BITS).is_some_and(|chunk| chunk.contains(index % BITS))
    }

    /// Adds `index`; says whether it was absent.
    pub fn insert(&mut self, index: u32) -> bool {
        let (key, bit) = (index / BITS, index % BITS);
        match self.position(key) {
            _ if index > MAX => return false,
            Ok(at) if self.chunks[at].contains(bit) => return false,
            Ok(at) => self.chunks_mut()[at].insert(bit),
            Err(at) => self.chunks_mut().insert(at, Chunk::run(key, bit, bit)),
        }
        self.len += 1;
        true
    }

    /// Takes `index` away; says whether it was a member.
    pub fn remove(&mut self, index: u32) -> bool {
        let bit = index % BITS;
        let at = match self.position(index / BITS) {
            Ok(at) if self.chunks[at].contains(bit) => at,
            Ok(_) | Err(_) => return false,
        };
        if self.chunks[at].count == 1 {
            self.chunks_mut().remove(at);
        } else {
            self.chunks_mut()[at].remove(bit);
        }
        self.len -= 1;
        true
    }

    /// Adds every index of `range`, none if its end lies before its start.
    pub fn insert_range(&mut self, range: RangeInclusive<u32>) {
        let (low, high) = (*range.start(), MAX.min(*range.end()));
        if range.is_empty() || low > high {
            return;
        }
        if low / BITS == high / BITS {
            self.insert_chunk(Chunk::run(low / BITS, low % BITS, high % BITS));
        } else {
            self.union_with(&Self::run(low, high));
        }
    }

    /// Adds the members of `chunk`.
    fn insert_chunk(&mut self, chunk: Chunk) {
        match self.position(chunk.key) {
            Ok(at) => {
                let mine = &mut Arc::make_mut(&mut self.chunks)[at];
                let before = mine.count;
                mine.union(&chunk);
                self.len += u64::from(mine.count - before);
            }
            Err(at) => {
                self.len += u64::from(chunk.count);
                self.chunks_mut().insert(at, chunk);
            }
        }
    }

    /// The lowest member.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest member.
    pub fn last(&self) -> Option<u32> {
        self.chunks.last().map(|chunk| chunk.base() + chunk.last_one())
    }

    /// All members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flatten()
    }

    /// The longest runs of consecutive members in ascending order.
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges { chunks: &self.chunks, bit: 0 }
    }

    /// The lowest index at or above `from` that is not a member.
    pub fn next_absent(&self, from: u32) -> u32 {
        let Ok(at) = self.position(from / BITS) else { return from };
        let mut bit = from % BITS;
        let mut key = from / BITS;
        for chunk in self.chunks[at..].iter() {
            if chunk.key != key {
                break;
            }
            if let Some(zero) = chunk.next_zero(bit) {
                return chunk.base() + zero;
            }
            key += 1;
            bit = 0;
        }
        key * BITS
    }

    /// Adds all members of `other`.
    pub fn union_with(&mut self, other: &Self) {
        let Some(first) = other.chunks.first() else { return };
        if self.is_empty() || Arc::ptr_eq(&self.chunks, &other.chunks) {
            *self = other.clone();
            return;
        }
        // What lies before the first chunk of `other` stays where it is: appending runs costs no more than
        // the runs.
        let (Ok(at) | Err(at)) = self.position(first.key);
        let chunks = self.chunks_mut();
        let tail = chunks.split_off(at);
        let before = count(&tail);
        let mut theirs = other.chunks.iter().peekable();
        for mut chunk in tail {
            while let Some(their) = theirs.next_if(|their| their.key < chunk.key) {
                chunks.push(their.clone());
            }
            if let Some(their) = theirs.next_if(|their| their.key == chunk.key) {
                chunk.union(their);
            }
            chunks.push(chunk);
        }
        chunks.extend(theirs.cloned());
        let after = count(&chunks[at..]);
        self.len += after - before;
    }

    /// Takes away all members of `other`.
    pub fn difference_with(&mut self, other: &Self) {
        if self.first_overlap(other).is_none() {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.retain_mut(|chunk| {
            let Some(their) = other.chunk(chunk.key) else { return true };
            let common = chunk.common(their);
            self.len -= u64::from(common);
            if common == chunk.count {
                return false;
            }
            chunk.subtract(their);
            true
        });
    }

    /// How many members both sets have.
    pub fn intersection_len(&self, other: &Self) -> u64 {
        self.pairs(other).map(|(mine, their)| u64::from(mine.common(their))).sum()
    }

    /// The lowest index that is a member of both.
    pub fn first_overlap(&self, other: &Self) -> Option<u32> {
        self.pairs(other).find_map(|(mine, their)| mine.first_common(their))
    }

    /// Drops every member at or above `completions`.
    pub fn truncate(&mut self, completions: u32) {
        if self.last().is_none_or(|last| last < completions) {
            return;
        }
        let (Ok(mut at) | Err(mut at)) = self.position(completions / BITS);
        let bit = completions % BITS;
        let chunks = Arc::make_mut(&mut self.chunks);
        if let Some(chunk) = chunks.get_mut(at)
            && chunk.key == completions / BITS
            && chunk.next_one(0).is_some_and(|first| first < bit)
        {
            self.len -= u64::from(chunk.count);
            chunk.keep_below(bit);
            self.len += u64::from(chunk.count);
            at += 1;
        }
        self.len -= count(&chunks[at..]);
        chunks.truncate(at);
    }

    /// The set `low..=high`.
    fn run(low: u32, high: u32) -> Self {
        let chunks = (low / BITS..=high / BITS).map(|key| {
            let base = key * BITS;
            Chunk::run(key, low.saturating_sub(base), (high - base).min(BITS - 1))
        });
        Self { chunks: Arc::new(chunks.collect()), len: u64::from(high - low + 1) }
    }

    /// Where the chunk `key` is, or where it would be. A chunk stands no later than its key says, and exactly
    /// there if none before it is missing; this is the usual case and needs no search.
    fn position(&self, key: u32) -> Result<usize, usize> {
        let bound = self.chunks.len().min(key as usize + 1);
        let chunks = &self.chunks[..bound];
        if chunks.last().is_some_and(|chunk| chunk.key == key) {
            return Ok(bound - 1);
        }
        chunks.binary_search_by_key(&key, |chunk| chunk.key)
    }

    fn chunk(&self, key: u32) -> Option<&Chunk> {
        self.position(key).ok().map(|at| &self.chunks[at])
    }

    fn chunks_mut(&mut self) -> &mut Vec<Chunk> {
        Arc::make_mut(&mut self.chunks)
    }

    /// The chunks that both sets have, in ascending order.
    fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Chunk, &'a Chunk)> {
        let (few, many) = if self.chunks.len() <= other.chunks.len() { (self, other) } else { (other, self) };
        few.chunks.iter().filter_map(move |chunk| many.chunk(chunk.key).map(|their| (chunk, their)))
    }
}

fn count(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| u64::from(chunk.count)).sum()
}

impl PartialEq for IndexSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.chunks, &other.chunks)
            || (self.len == other.len
                && self.chunks.len() == other.chunks.len()
                && self.chunks.iter().zip(other.chunks.iter()).all(|(mine, their)| mine.same(their)))
    }
}

impl Eq for IndexSet {}

impl fmt::Debug for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexSet({self})")
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<T: IntoIterator<Item = u32>>(indexes: T) -> Self {
        let mut set = Self::new();
        set.extend(indexes);
        set
    }
}

impl Extend<u32> for IndexSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, indexes: T) {
        for index in indexes {
            self.insert(index);
        }
    }
}

/// The runs of a set; see [`IndexSet::ranges`].
#[derive(Clone)]
pub struct Ranges<'a> {
    chunks: &'a [Chunk],
    /// The first bit of the first chunk that is still to be looked at.
    bit: u32,
}

impl Iterator for Ranges<'_> {
    type Item = RangeInclusive<u32>;

    fn next(&mut self) -> Option<RangeInclusive<u32>> {
        let start = loop {
            let (chunk, rest) = self.chunks.split_first()?;
            if let Some(one) = chunk.next_one(self.bit) {
                self.bit = one;
                break chunk.base() + one;
            }
            self.chunks = rest;
            self.bit = 0;
        };
        let mut key = start / BITS;
        while let Some((chunk, rest)) = self.chunks.split_first()
            && chunk.key == key
        {
            if let Some(zero) = chunk.next_zero(self.bit) {
                self.bit = zero;
                return Some(start..=chunk.base() + zero - 1);
            }
            key += 1;
            self.chunks = rest;
            self.bit = 0;
        }
        Some(start..=key * BITS - 1)
    }
}
