//! What the server takes from outside itself: the time and randomness. Both are injected, so that a run can be repeated.

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Gives random numbers, for UIDs and generated names.
pub trait Entropy: Send + Sync + 'static {
    /// 128 random bits.
    fn next(&self) -> u128;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The randomness of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next(&self) -> u128 {
        uuid::Uuid::new_v4().as_u128()
    }
}

/// A version 4 UUID from 128 random bits.
pub(crate) fn uid(bits: u128) -> String {
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
}

/// The longest base of a generated name: five random characters follow, and the whole stays a label of 63.
const GENERATED_BASE_MAX: usize = 58;
const SUFFIX_LENGTH: usize = 5;
/// No vowels and no digits that look like one: no words come out by chance.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// `base` with a random end, as `metadata.generateName` asks for.
pub(crate) fn generated_name(base: &str, bits: u128) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    // The low half of a version 4 UUID is random but for its two top bits.
    let mut bits = (bits as u64) & (u64::MAX >> 2);
    let mut name = base[..end].to_owned();
    for _ in 0..SUFFIX_LENGTH {
        name.push(char::from(SUFFIX_ALPHABET[(bits % SUFFIX_ALPHABET.len() as u64) as usize]));
        bits /= SUFFIX_ALPHABET.len() as u64;
    }
    name
}

/// A time as Kubernetes writes it: UTC, whole seconds.
pub(crate) fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
