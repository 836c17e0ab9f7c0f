//! Rows of the database, and how to tell that they are what was written.

use std::collections::BTreeMap;

use bytes::Bytes;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::Key;
use crate::log::{Damage, Stored};

/// What the database must hold, kept apart from what it does hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) revision: u64,
    pub(crate) objects: u64,
    /// The sum of the checksums of all objects.
    pub(crate) digest: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, sum: u32) {
        self.objects = self.objects.wrapping_add(1);
        self.digest = self.digest.wrapping_add(u64::from(sum));
    }

    pub(crate) fn remove(&mut self, sum: u32) {
        self.objects = self.objects.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(u64::from(sum));
    }

    pub(crate) fn sum(&self) -> u32 {
        checksum(&[&self.revision.to_le_bytes(), &self.objects.to_le_bytes(), &self.digest.to_le_bytes()])
    }
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

pub(crate) fn object_sum(revision: u64, key: &[u8], bytes: &[u8]) -> u32 {
    checksum(&[&revision.to_le_bytes(), key, bytes])
}

/// SQLite's integers have a sign; ours use the same bits.
pub(crate) fn signed(value: u64) -> i64 {
    i64::from_ne_bytes(value.to_ne_bytes())
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::from_ne_bytes(value.to_ne_bytes())
}

/// Objects as they are read.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) whole: BTreeMap<Key, Stored>,
    pub(crate) damaged: Vec<Damage>,
    /// All rows, whole or not; the revision is not used.
    pub(crate) seen: Totals,
}

impl Found {
    pub(crate) fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let revision = unsigned(row.get(0)?);
        let (sum, key, bytes) = (row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?);
        let key = match key {
            ValueRef::Text(key) | ValueRef::Blob(key) => key,
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => b"",
        };
        let text = String::from_utf8_lossy(key);
        let whole = match (sum, bytes) {
            (ValueRef::Integer(sum), ValueRef::Blob(bytes))
                if sum == i64::from(object_sum(revision, key, bytes)) =>
            {
                Key::parse(&text)
                    .map(|key| (sum, Stored { key, revision, bytes: Bytes::copy_from_slice(bytes) }))
            }
            _ => None,
        };
        let Some((sum, stored)) = whole else {
            self.seen.add(0);
            self.damage(&text, revision, "checksum is wrong".to_owned());
            return Ok(());
        };
        self.seen.add(u32::try_from(sum).unwrap_or_default());
        if let Some(older) = self.whole.insert(stored.key.clone(), stored) {
            self.damage(&text, older.revision, format!("is still there beside revision {revision}"));
        }
        Ok(())
    }

    fn damage(&mut self, key: &str, revision: u64, reason: String) {
        self.damaged.push(Damage { key: Some(key.to_owned()), revision: Some(revision), reason });
    }
}
