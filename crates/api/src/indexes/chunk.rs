//! One piece of 4096 indexes of a set: a shared bitmap, or nothing at all where every index is there.

use std::sync::Arc;

/// How many indexes a chunk covers.
pub(super) const BITS: u32 = 4096;
pub(super) const WORDS: usize = (BITS / 64) as usize;

/// The members among the indexes `key * BITS ..= key * BITS + BITS - 1`.
///
/// One form for one content: `words` is `None` exactly when all are there, and a set holds no chunk without
/// members.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) key: u32,
    pub(super) count: u32,
    words: Option<Arc<[u64; WORDS]>>,
}

impl Chunk {
    /// The chunk with these members, if there are any.
    pub(super) fn new(key: u32, words: [u64; WORDS]) -> Option<Self> {
        let count = ones(&words);
        let words = (count < BITS).then(|| Arc::new(words));
        (count > 0).then_some(Self { key, count, words })
    }

    /// The chunk with the members `low..=high`, counted within it.
    pub(super) fn run(key: u32, low: u32, high: u32) -> Self {
        let count = high - low + 1;
        let words = (count < BITS).then(|| Arc::new(std::array::from_fn(|i| mask(i, low, high))));
        Self { key, count, words }
    }

    /// The index of this chunk's bit 0.
    pub(super) fn base(&self) -> u32 {
        self.key * BITS
    }

    pub(super) fn is_full(&self) -> bool {
        self.words.is_none()
    }

    pub(super) fn contains(&self, bit: u32) -> bool {
        match &self.words {
            None => true,
            Some(words) => words[(bit / 64) as usize] >> (bit % 64) & 1 == 1,
        }
    }

    /// Adds a bit that is absent.
    pub(super) fn insert(&mut self, bit: u32) {
        self.count += 1;
        if self.count == BITS {
            self.words = None;
        } else if let Some(words) = &mut self.words {
            Arc::make_mut(words)[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Takes away a bit that is present.
    pub(super) fn remove(&mut self, bit: u32) {
        self.count -= 1;
        let words = self.words.get_or_insert_with(|| Arc::new([u64::MAX; WORDS]));
        Arc::make_mut(words)[(bit / 64) as usize] &= !(1 << (bit % 64));
    }

    /// Keeps only what lies below `bit`, which is not 0.
    pub(super) fn keep_below(&mut self, bit: u32) {
        self.change(|i, word| word & mask(i, 0, bit - 1));
    }

    pub(super) fn union(&mut self, other: &Self) {
        if !self.same_words(other) {
            self.change(|i, word| word | other.word(i));
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.change(|i, word| word & !other.word(i));
    }

    /// How many members both have.
    pub(super) fn common(&self, other: &Self) -> u32 {
        match (&self.words, &other.words) {
            (None, _) => other.count,
            (_, None) => self.count,
            (Some(a), Some(b)) => a.iter().zip(b.iter()).map(|(a, b)| (a & b).count_ones()).sum(),
        }
    }

    /// The lowest index that both have.
    pub(super) fn first_common(&self, other: &Self) -> Option<u32> {
        scan(0, |i| self.word(i) & other.word(i)).map(|bit| self.base() + bit)
    }

    /// The lowest member bit at or above `from`.
    pub(super) fn next_one(&self, from: u32) -> Option<u32> {
        match &self.words {
            None => Some(from),
            Some(words) => scan(from, |i| words[i]),
        }
    }

    /// The lowest absent bit at or above `from`; a full chunk answers without looking at words.
    pub(super) fn next_zero(&self, from: u32) -> Option<u32> {
        self.words.as_ref().and_then(|words| scan(from, |i| !words[i]))
    }

    /// The highest member bit.
    pub(super) fn last_one(&self) -> u32 {
        let top = (0..WORDS).rev().find(|&i| self.word(i) != 0).unwrap_or(0);
        top as u32 * 64 + 63 - self.word(top).leading_zeros()
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.count == other.count
            && (self.same_words(other) || self.words == other.words)
    }

    fn same_words(&self, other: &Self) -> bool {
        match (&self.words, &other.words) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// The members among the indexes of word `i`.
    pub(super) fn word(&self, i: usize) -> u64 {
        self.words.as_ref().map_or(u64::MAX, |words| words[i])
    }

    /// Replaces each word by `f` of it. `f` only adds or only takes away, so an equal count means nothing
    /// changed and the bitmap stays shared.
    fn change(&mut self, f: impl Fn(usize, u64) -> u64) {
        let words: [u64; WORDS] = std::array::from_fn(|i| f(i, self.word(i)));
        let count = ones(&words);
        if count != self.count {
            self.store(words, count);
        }
    }

    fn store(&mut self, new: [u64; WORDS], count: u32) {
        self.count = count;
        if count == BITS {
            self.words = None;
        } else if let Some(own) = self.words.as_mut().and_then(Arc::get_mut) {
            *own = new;
        } else {
            self.words = Some(Arc::new(new));
        }
    }
}

fn ones(words: &[u64; WORDS]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// The bits of `low..=high` that lie in word `i`.
pub(super) fn mask(i: usize, low: u32, high: u32) -> u64 {
    let base = i as u32 * 64;
    if high < base || low > base + 63 {
        return 0;
    }
    (u64::MAX << low.saturating_sub(base)) & (u64::MAX >> (63 - (high - base).min(63)))
}

/// The lowest bit at or above `from` that is set in the words that `word` gives.
pub(super) fn scan(from: u32, word: impl Fn(usize) -> u64) -> Option<u32> {
    let start = (from / 64) as usize;
    let first = word(start) & (u64::MAX << (from % 64));
    if first != 0 {
        return Some(start as u32 * 64 + first.trailing_zeros());
    }
    (start + 1..WORDS).find_map(|i| match word(i) {
        0 => None,
        bits => Some(i as u32 * 64 + bits.trailing_zeros()),
    })
}
