//! What a created pod is called: a function of (Job, index, attempt), in Kubernetes' own look.
//!
//! A decision that is repeated on an old view asks for the same name again and meets `AlreadyExists`: it can't make a
//! twin. The five characters are `offset + attempt · stride` in a space of 27^5 names, with offset and stride taken from
//! the Job's UID and the index, so that no two attempts below 14 million share a name and the attempt can be read back
//! from it.

use crate::uid::Uid;

/// The characters of generated names: no vowels and nothing that looks like one, as upstream.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LEN: usize = 5;
/// 27^5.
const SPACE: u64 = 14_348_907;
/// Longest prefix that leaves room for the suffix in a DNS label.
const PREFIX_MAX: usize = 63 - SUFFIX_LEN;

/// The names of one Job's pods.
#[derive(Clone, Debug)]
pub struct PodNames {
    job: String,
    fingerprint: u64,
}

impl PodNames {
    /// The names of the pods of the Job `name` with `uid`.
    pub fn new(name: &str, uid: &Uid) -> Self {
        Self { job: name.to_owned(), fingerprint: uid.fingerprint() }
    }

    /// `metadata.generateName` of a pod: the name without its last five characters.
    pub fn prefix(&self, index: Option<u32>) -> String {
        let tail = index.map_or_else(|| "-".to_owned(), |index| format!("-{index}-"));
        let room = PREFIX_MAX.saturating_sub(tail.len()).min(self.job.len());
        // Job names are ASCII (a DNS subdomain); a name that is not must not be cut inside a character.
        let room = (0..=room).rev().find(|at| self.job.is_char_boundary(*at)).unwrap_or(0);
        format!("{}{tail}", &self.job[..room])
    }

    /// The name of the `attempt`th pod, of `index` if the Job is Indexed.
    pub fn name(&self, index: Option<u32>, attempt: u32) -> String {
        let (offset, stride) = self.walk(index);
        let mut rest = (offset + u64::from(attempt) * stride) % SPACE;
        let mut suffix = [0; SUFFIX_LEN];
        for letter in suffix.iter_mut().rev() {
            *letter = ALPHABET[(rest % 27) as usize];
            rest /= 27;
        }
        let mut name = self.prefix(index);
        name.extend(suffix.iter().map(|letter| char::from(*letter)));
        name
    }

    /// Which attempt has this name; for a name that is not ours, some number that no attempt of ours reaches soon.
    pub fn attempt(&self, index: Option<u32>, name: &str) -> Option<u32> {
        let suffix = name.strip_prefix(self.prefix(index).as_str())?.as_bytes();
        if suffix.len() != SUFFIX_LEN {
            return None;
        }
        let value = suffix.iter().try_fold(0, |value, letter| {
            let digit = ALPHABET.iter().position(|known| known == letter)?;
            Some(value * 27 + digit as u64)
        })?;
        let (offset, stride) = self.walk(index);
        let steps = (value + SPACE - offset) % SPACE * inverse(stride) % SPACE;
        u32::try_from(steps).ok()
    }

    /// Where the walk through the names starts and how far each step goes. A stride that is no multiple of 3 visits
    /// all 27^5 names before it repeats one.
    fn walk(&self, index: Option<u32>) -> (u64, u64) {
        let salt = index.map_or(0, |index| u64::from(index) + 1);
        let mixed = (self.fingerprint ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(31);
        (mixed % SPACE, 3 * ((mixed >> 32) % (SPACE / 3)) + 1)
    }
}

/// The multiplicative inverse of `stride` modulo 27^5: `stride^(φ−1)`, φ(3^15) = 2·3^14.
fn inverse(stride: u64) -> u64 {
    let (mut result, mut power, mut exponent) = (1, stride % SPACE, SPACE / 3 * 2 - 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * power % SPACE;
        }
        power = power * power % SPACE;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(job: &str) -> PodNames {
        PodNames::new(job, &Uid::new("9c1a5c6e-0d2f-4b6c-8a51-3f0e2d7b9a10"))
    }

    #[test]
    fn names_look_like_those_of_kubernetes() {
        let name = names("train").name(None, 0);
        assert_eq!(name.len(), "train-".len() + 5);
        assert!(name.starts_with("train-") && name[6..].bytes().all(|c| ALPHABET.contains(&c)), "{name}");
        assert!(names("train").name(Some(17), 3).starts_with("train-17-"));
    }

    #[test]
    fn the_same_attempt_always_has_the_same_name() {
        assert_eq!(names("a").name(Some(1), 2), names("a").name(Some(1), 2));
    }

    #[test]
    fn a_hundred_thousand_attempts_have_different_names_and_can_be_read_back() {
        let names = names("train");
        let mut seen = BTreeSet::new();
        for attempt in 0..100_000 {
            let name = names.name(None, attempt);
            if attempt % 997 == 0 {
                assert_eq!(names.attempt(None, &name), Some(attempt));
            }
            assert!(seen.insert(name));
        }
        assert_eq!(names.attempt(Some(9), &names.name(Some(9), 4)), Some(4));
    }

    #[test]
    fn foreign_names_have_no_attempt() {
        let names = names("train");
        for name in ["other-bcdfg", "train-bcdf", "train-bcdfgh", "train-aeiou", "train"] {
            assert_eq!(names.attempt(None, name), None, "{name}");
        }
    }

    #[test]
    fn a_long_job_name_is_cut_and_the_index_survives() {
        let job = "j".repeat(63);
        assert_eq!(names(&job).prefix(None).len(), 58);
        let prefix = names(&job).prefix(Some(12345));
        assert!(prefix.len() == 58 && prefix.ends_with("-12345-"), "{prefix}");
        assert_eq!(names(&job).name(Some(12345), 0).len(), 63);
    }

    #[test]
    fn a_name_that_is_not_ascii_is_cut_between_characters() {
        assert!(names(&"é".repeat(40)).prefix(None).len() <= 58);
    }
}
