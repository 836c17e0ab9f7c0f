//! Builds a set from runs that mostly come in ascending order, as in its text form.

use super::IndexSet;
use super::chunk::{BITS, Chunk, WORDS, mask};

/// Gathers the runs of one chunk before it touches the set, which spares the counting of references at each.
pub(super) struct Builder {
    set: IndexSet,
    key: u32,
    words: [u64; WORDS],
}

impl Default for Builder {
    fn default() -> Self {
        Self { set: IndexSet::new(), key: 0, words: [0; WORDS] }
    }
}

impl Builder {
    /// Adds `low..=high`, nothing if that holds nothing.
    pub(super) fn push(&mut self, low: u32, high: u32) {
        let key = low / BITS;
        if key != high / BITS {
            self.set.insert_range(low..=high);
            return;
        }
        if key != self.key {
            self.flush();
            self.key = key;
        }
        for i in low % BITS / 64..=high % BITS / 64 {
            self.words[i as usize] |= mask(i as usize, low % BITS, high % BITS);
        }
    }

    pub(super) fn finish(mut self) -> IndexSet {
        self.flush();
        self.set
    }

    fn flush(&mut self) {
        if let Some(chunk) = Chunk::new(self.key, self.words) {
            self.set.insert_chunk(chunk);
            self.words = [0; WORDS];
        }
    }
}
