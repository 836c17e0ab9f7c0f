//! The identity of an object, small enough to keep a million of them.

use std::fmt;
use std::sync::Arc;

/// An object's UID. Kubernetes promises an opaque string and in practice gives a UUID, which fits in 16 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Uuid([u8; 16]),
    Other(Arc<str>),
}

const UUID_LEN: usize = 36;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// The UID written as `text`.
    pub fn new(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| Repr::Other(Arc::from(text)), Repr::Uuid))
    }

    /// The smallest UID: the start of a range over all UIDs.
    pub(crate) const MIN: Self = Self(Repr::Uuid([0; 16]));

    /// A number that depends on all of the UID, the same on every machine.
    pub(crate) fn fingerprint(&self) -> u64 {
        match &self.0 {
            Repr::Uuid(bytes) => fnv1a(bytes),
            Repr::Other(text) => fnv1a(text.as_bytes()),
        }
    }
}

/// FNV-1a: tiny and stable across versions, which a name that must be found again needs.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Only the canonical lower-case form: any other text must be given back as it came.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != UUID_LEN || HYPHENS.iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let mut digits = (0..UUID_LEN).filter(|at| !HYPHENS.contains(at)).map(|at| match text[at] {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    });
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    Some(bytes)
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Other(text) => f.write_str(text),
            Repr::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    write!(f, "{}{byte:02x}", if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back_as_it_was() {
        for text in [
            "9c1a5c6e-0d2f-4b6c-8a51-3f0e2d7b9a10",
            "9C1A5C6E-0D2F-4B6C-8A51-3F0E2D7B9A10",
            "9c1a5c6e-0d2f-4b6c-8a51-3f0e2d7b9a1g",
            "9c1a5c6e00d2f-4b6c-8a51-3f0e2d7b9a10",
            "",
            "pod-1",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
            assert_eq!(format!("{:?}", Uid::from(text)), text);
        }
    }

    #[test]
    fn a_uuid_takes_24_bytes() {
        assert_eq!(size_of::<Uid>(), 24);
    }

    #[test]
    fn fingerprints_differ_for_different_uids() {
        assert_ne!(Uid::new("a").fingerprint(), Uid::new("b").fingerprint());
        let uuid = Uid::new("9c1a5c6e-0d2f-4b6c-8a51-3f0e2d7b9a10");
        assert_ne!(uuid.fingerprint(), Uid::new("9c1a5c6e-0d2f-4b6c-8a51-3f0e2d7b9a11").fingerprint());
        assert!(Uid::MIN <= uuid && uuid < Uid::new("x"));
    }
}
