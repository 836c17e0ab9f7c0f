//! Bearer tokens: random texts, of which the server keeps only the hash.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use aws_lc_rs::{constant_time, digest, rand};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::Shared;
use crate::serve::files;
use crate::service_account::{self, ISSUER, Refusal};

/// 256 bits: nobody guesses one.
const TOKEN_BYTES: usize = 32;

/// The file of the tokens.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// SHA-256 of the token. A slow hash would add nothing: the token is 256 random bits.
    sha256: String,
    user: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
}

/// The tokens of a server. The file is read again when it changes: a token that is taken out stops to count.
#[derive(Debug)]
pub struct Tokens {
    path: Option<PathBuf>,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    stamp: Option<(SystemTime, u64)>,
    entries: Vec<([u8; digest::SHA256_OUTPUT_LEN], Identity)>,
}

impl Tokens {
    /// The tokens of a file, which need not be there.
    pub fn of_file(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), read: Mutex::default() }
    }

    /// No tokens at all.
    pub fn none() -> Self {
        Self { path: None, read: Mutex::default() }
    }

    /// The user of a token.
    pub fn find(&self, token: &str) -> Option<Identity> {
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(path) = &self.path {
            read.refresh(path);
        }
        let hash = digest::digest(&digest::SHA256, token.as_bytes());
        // All are looked at, so that the time tells nothing.
        let mut found = None;
        for (known, identity) in &read.entries {
            if constant_time::verify_slices_are_equal(known, hash.as_ref()).is_ok() {
                found = Some(identity);
            }
        }
        found.cloned()
    }
}

impl Read {
    /// A file that can't be read lets nobody in.
    fn refresh(&mut self, path: &Path) {
        let stamp = std::fs::metadata(path).and_then(|meta| Ok((meta.modified()?, meta.len()))).ok();
        if stamp == self.stamp {
            return;
        }
        let file = load(path).unwrap_or_else(|error| {
            tracing::warn!("read tokens from {}: {error}; none of them counts", path.display());
            File::default()
        });
        let entry = |entry: Entry| Some((unhex(&entry.sha256)?, Identity::new(entry.user, entry.groups)));
        self.entries = file.tokens.into_iter().filter_map(entry).collect();
        self.stamp = stamp;
    }
}

/// The user of a token of any kind, and for whom of `wanted` it is. The error is upstream's text.
pub(crate) fn identify(
    shared: &Shared,
    tokens: &Tokens,
    token: &str,
    wanted: &[String],
) -> Result<(Identity, Vec<String>), String> {
    const INVALID: &str = "invalid bearer token";
    match service_account::authenticate(shared, token, wanted) {
        Ok(found) => Ok(found),
        Err(Refusal::Invalid(why)) => Err(format!("[{INVALID}, {why}]")),
        // A token that names nobody is for this server alone.
        Err(Refusal::Unknown) => {
            let own: Vec<String> = wanted.iter().filter(|one| *one == ISSUER).cloned().collect();
            match tokens.find(token) {
                Some(who) if !own.is_empty() => Ok((who, own)),
                Some(_) | None => Err(INVALID.to_owned()),
            }
        }
    }
}

/// Makes a token for a user and adds its hash to the file. The text is shown this once and kept nowhere.
pub fn issue(path: &Path, user: &str, groups: &[String]) -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random numbers to be had"))?;
    // Of letters and digits alone: what begins with a hyphen looks like a flag where it is typed.
    let token = hex(&bytes);
    let mut file = load(path)?;
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    file.tokens.push(Entry { sha256: hex(hash.as_ref()), user: user.to_owned(), groups: groups.to_vec() });
    let text = serde_json::to_string_pretty(&file).map_err(io::Error::other)?;
    files::write_private(path, text.as_bytes())?;
    Ok(token)
}

fn load(path: &Path) -> io::Result<File> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(File::default()),
        Err(error) => Err(error),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
