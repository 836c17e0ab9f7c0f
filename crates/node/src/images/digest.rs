//! Content digests: `sha256:<hex>` and `sha512:<hex>`.

use std::fmt;

use aws_lc_rs::digest::{Algorithm, Context, SHA256, SHA512};
use serde::{Deserialize, Serialize};

/// A digest whose algorithm is known and whose length fits it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Why a text is no digest (the texts of the Go library that Kubernetes uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not `algorithm:hex`.
    #[error("invalid checksum digest format")]
    Format,
    /// An algorithm that is not known.
    #[error("unsupported digest algorithm")]
    Algorithm,
    /// Too short or too long for its algorithm.
    #[error("invalid checksum digest length")]
    Length,
}

impl Digest {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (algorithm, hex) = text.split_once(':').ok_or(Error::Format)?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(Error::Algorithm),
        };
        if hex.len() != length {
            return Err(Error::Length);
        }
        if !hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return Err(Error::Format);
        }
        Ok(Self(text.to_owned()))
    }

    /// The SHA-256 of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// What comes after the algorithm: safe as the name of a file.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &str {
        self.0.split_once(':').map_or("", |(algorithm, _)| algorithm)
    }

    /// A hasher of the same kind.
    pub fn hasher(&self) -> Hasher {
        if self.algorithm() == "sha512" { Hasher::new("sha512", &SHA512) } else { Hasher::sha256() }
    }

    /// Whether it is the digest of these bytes.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish() == *self
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// A digest that is being computed.
pub struct Hasher {
    algorithm: &'static str,
    context: Context,
}

impl Hasher {
    fn new(name: &'static str, algorithm: &'static Algorithm) -> Self {
        Self { algorithm: name, context: Context::new(algorithm) }
    }

    /// SHA-256.
    pub fn sha256() -> Self {
        Self::new("sha256", &SHA256)
    }

    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The digest of all of them.
    pub fn finish(self) -> Digest {
        let mut text = format!("{}:", self.algorithm);
        for byte in self.context.finish().as_ref() {
            use fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
        }
        Digest(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_checked_when_they_are_read() {
        let (fine, long) = ("a".repeat(64), "0".repeat(128));
        for (text, want) in [
            (format!("sha256:{fine}"), Ok(())),
            (format!("sha512:{long}"), Ok(())),
            (format!("sha256:{long}"), Err(Error::Length)),
            (format!("md5:{}", "a".repeat(32)), Err(Error::Algorithm)),
            (format!("sha256:{}", "A".repeat(64)), Err(Error::Format)),
            (format!("sha256:{}/..", "a".repeat(61)), Err(Error::Format)),
            (fine, Err(Error::Format)),
        ] {
            assert_eq!(Digest::parse(&text).map(drop), want, "{text}");
        }
    }

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert!(Digest::of(b"x").is_of(b"x") && !Digest::of(b"x").is_of(b"y"));
    }
}
