//! The log in a SQLite database: one row an object, found by the revision that made it.
//!
//! The index in memory knows which revision a write supersedes, so the database needs no index of its own: a write is
//! an insert at the end of the table and a delete by row id. Nothing superseded is kept, so there is nothing to compact
//! but free pages.
//!
//! SQLite does not protect the content of pages, so each row carries a checksum, and one row of its own says how many
//! objects there are, what their checksums add up to, and the last revision. What a flipped bit in the structure of a
//! page makes disappear is missed there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::directory::Directory;
use crate::log::{Damage, Log, LogError, Recovery, Write};
use crate::open::OpenError;
use crate::reserve::Reserve;
use crate::rows::{Found, Totals, object_sum, signed, unsigned};
use crate::{Change, wal};

/// The name of the database in the data directory.
const FILE: &str = "store.db";
/// The name of a database that is being made.
const NEW: &str = "store.db.new";
/// Changes when the tables below change their meaning.
const FORMAT: i64 = 1;
/// "Wdls": tells our files from other people's databases.
const APPLICATION: i64 = 0x5764_6c73;
/// How much may be in the write-ahead log before it is copied to the database.
const CHECKPOINT_BYTES: u64 = 16 << 20;
/// Free pages are given back when there are more than this, and more than pages in use.
const FREE_PAGES_MAX: i64 = 1024;
/// So many at a time: writers wait meanwhile.
const VACUUM_PAGES: i64 = 4096;

const SCHEMA: &str = "
    CREATE TABLE objects (
        revision INTEGER PRIMARY KEY, sum INTEGER NOT NULL, key TEXT NOT NULL, bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE damaged (revision INTEGER, sum INTEGER, key BLOB, bytes BLOB) STRICT;
    CREATE TABLE totals (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL, objects INTEGER NOT NULL, digest INTEGER NOT NULL, sum INTEGER NOT NULL
    ) STRICT;";

/// The pages in the write-ahead log.
struct Frames {
    /// All of them, since it last began anew.
    written: u32,
    /// Those that the database has too. When it has all of them, the next write begins the log anew.
    copied: u32,
}

impl Frames {
    fn bytes(&self) -> u64 {
        wal::bytes(u64::from(self.written))
    }
}

pub(crate) struct SqliteLog {
    connection: Connection,
    file: PathBuf,
    /// As of the last sync.
    totals: Totals,
    /// As of the last append.
    pending: Totals,
    reserve: Reserve,
    /// See [`CHECKPOINT_BYTES`].
    checkpoint_bytes: u64,
    /// Whether the write-ahead log is to be copied as soon as possible, however little is in it.
    is_checkpoint_due: bool,
    /// After an error of which SQLite cannot say what it left, the files are not touched any more.
    is_broken: bool,
    /// Released last.
    _directory: Directory,
}

impl SqliteLog {
    pub(crate) fn open(directory: Directory) -> Result<Self, OpenError> {
        Self::open_with(directory, CHECKPOINT_BYTES)
    }

    /// With another size of the write-ahead log at which it is copied.
    pub(crate) fn open_with(directory: Directory, checkpoint_bytes: u64) -> Result<Self, OpenError> {
        let file = directory.file(FILE);
        // A write-ahead log without its database is what is left of something, and not made anew.
        if is_missing_or_empty(&file) && is_missing_or_empty(&wal::path(&file)) {
            make(&directory, &file)?;
        }
        directory.private_file(FILE)?;
        wal::check(&file)?;
        let failed = |error: rusqlite::Error| open_error(&file, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags).map_err(failed)?;
        configure(&connection).map_err(failed)?;
        check_durable(&connection, &file)?;
        check_format(&connection, &file)?;
        directory.sync()?;
        let mut log = Self {
            connection,
            file: file.clone(),
            totals: Totals::default(),
            pending: Totals::default(),
            reserve: Reserve::new(wal::path(&file)),
            checkpoint_bytes,
            is_checkpoint_due: false,
            is_broken: false,
            _directory: directory,
        };
        // What a killed process has written but not synced is served from now on, so it has to be synced first. The
        // log also starts anew, so that no remains of an unfinished write are left in it.
        match log.checkpoint("TRUNCATE") {
            Ok(_) => {
                log.reserve.keep_ahead(1, checkpoint_bytes);
                Ok(log)
            }
            Err(LogError::Full(_)) => Ok(log),
            Err(LogError::Failed(reason) | LogError::Refused(reason)) => {
                Err(OpenError::Database { file, reason })
            }
        }
    }

    /// Copies the write-ahead log to the database, or with `NOOP` only tells what is in it.
    fn checkpoint(&self, mode: &str) -> Result<Frames, LogError> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let mut statement = self.connection.prepare_cached(&sql).map_err(|error| log_error(&error))?;
        let frames = statement.query_row([], |row| Ok(Frames { written: row.get(1)?, copied: row.get(2)? }));
        frames.map_err(|error| log_error(&error))
    }

    /// Copies the write-ahead log when there is much in it, or sees to it that it has room.
    fn tidy(&mut self) -> Result<(), LogError> {
        let frames = self.checkpoint("NOOP")?;
        if frames.bytes() < self.checkpoint_bytes && !self.is_checkpoint_due {
            self.reserve.keep_ahead(frames.bytes(), self.checkpoint_bytes);
            return Ok(());
        }
        if frames.written > frames.copied {
            self.is_checkpoint_due = false;
            self.give_back_free_pages().map_err(|error| log_error(&error))?;
            self.checkpoint("PASSIVE")?;
        }
        Ok(())
    }

    /// Undoes the batch. If that is not possible, or the error is not about space, nothing is certain any more.
    fn undo(&mut self, error: &rusqlite::Error) -> LogError {
        self.pending = self.totals;
        let is_undone = self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_ok();
        match log_error(error) {
            full @ LogError::Full(_) if is_undone => {
                // Copying the write-ahead log lets its room be used again; it is tried as soon as a write fits.
                self.is_checkpoint_due = true;
                full
            }
            LogError::Full(reason) | LogError::Failed(reason) | LogError::Refused(reason) => {
                self.is_broken = true;
                LogError::Failed(reason)
            }
        }
    }

    fn insert(&mut self, write: &Write<'_>) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        let key = write.key.as_str();
        if let Some((revision, bytes)) = write.previous {
            let mut delete = self.connection.prepare_cached("DELETE FROM objects WHERE revision = ?1")?;
            delete.execute([signed(revision)])?;
            self.pending.remove(object_sum(revision, key.as_bytes(), bytes));
        }
        self.pending.revision = write.revision;
        match write.change {
            Change::Created | Change::Updated => {
                let sum = object_sum(write.revision, key.as_bytes(), write.bytes);
                let mut insert = self.connection.prepare_cached(
                    "INSERT INTO objects (revision, sum, key, bytes) VALUES (?1, ?2, ?3, ?4)",
                )?;
                insert.execute(params![signed(write.revision), sum, key, &write.bytes[..]])?;
                self.pending.add(sum);
            }
            Change::Deleted => {}
        }
        Ok(())
    }

    fn commit(&self) -> rusqlite::Result<()> {
        self.write_totals(&self.pending)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn write_totals(&self, totals: &Totals) -> rusqlite::Result<()> {
        let mut update = self.connection.prepare_cached(
            "UPDATE totals SET revision = ?1, objects = ?2, digest = ?3, sum = ?4 WHERE id = 1",
        )?;
        let Totals { revision, objects, digest } = *totals;
        update.execute(params![signed(revision), signed(objects), signed(digest), totals.sum()])?;
        Ok(())
    }

    fn read_totals(&self) -> Result<Totals, OpenError> {
        let sql = "SELECT revision, objects, digest, sum FROM totals WHERE id = 1";
        let read = self.connection.query_row(sql, [], |row| {
            let totals = Totals {
                revision: unsigned(row.get(0)?),
                objects: unsigned(row.get(1)?),
                digest: unsigned(row.get(2)?),
            };
            Ok((totals, row.get::<_, i64>(3)?))
        });
        match read {
            Ok((totals, sum)) if i64::from(totals.sum()) == sum => Ok(totals),
            Ok(_) => Err(self.corrupt("checksum of the totals is wrong")),
            Err(rusqlite::Error::QueryReturnedNoRows) => Err(self.corrupt("the totals are missing")),
            Err(error) => Err(open_error(&self.file, &error)),
        }
    }

    fn corrupt(&self, reason: &str) -> OpenError {
        OpenError::Corrupt { file: self.file.clone(), reason: reason.to_owned() }
    }

    fn read_objects(&self) -> rusqlite::Result<Found> {
        let mut found = Found::default();
        let sql = "SELECT revision, sum, key, bytes FROM objects ORDER BY revision";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.take(row)?;
        }
        Ok(found)
    }

    fn move_aside(&mut self, damaged: &[Damage]) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        for revision in damaged.iter().filter_map(|damage| damage.revision) {
            transaction.execute(
                "INSERT INTO damaged SELECT revision, sum, CAST(key AS BLOB), bytes FROM objects WHERE revision = ?1",
                [signed(revision)],
            )?;
            transaction.execute("DELETE FROM objects WHERE revision = ?1", [signed(revision)])?;
        }
        let mut totals = Totals { revision: self.totals.revision, ..Totals::default() };
        for stored in self.read_objects()?.whole.into_values() {
            totals.add(object_sum(stored.revision, stored.key.as_str().as_bytes(), &stored.bytes));
        }
        self.write_totals(&totals)?;
        transaction.commit()?;
        (self.totals, self.pending) = (totals, totals);
        Ok(())
    }

    fn give_back_free_pages(&self) -> rusqlite::Result<()> {
        let count = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let free = count("freelist_count")?;
        if free > FREE_PAGES_MAX && free * 2 > count("page_count")? {
            let mut vacuum =
                self.connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
            let mut steps = vacuum.query([])?;
            while steps.next()?.is_some() {}
        }
        Ok(())
    }
}

impl Log for SqliteLog {
    fn recover(&mut self) -> Result<Recovery, OpenError> {
        let totals = self.read_totals()?;
        let Found { whole, mut damaged, seen } =
            self.read_objects().map_err(|error| open_error(&self.file, &error))?;
        if whole.values().any(|stored| stored.revision > totals.revision) {
            return Err(self.corrupt("an object is newer than the last revision"));
        }
        if seen.objects != totals.objects {
            damaged.push(Damage {
                key: None,
                revision: None,
                reason: format!("{} objects were written, {} are there", totals.objects, seen.objects),
            });
        } else if damaged.is_empty() && seen.digest != totals.digest {
            damaged.push(Damage {
                key: None,
                revision: None,
                reason: "an object is not the one that was written last".to_owned(),
            });
        }
        (self.totals, self.pending) = (totals, totals);
        Ok(Recovery { revision: totals.revision, objects: whole.into_values().collect(), damaged })
    }

    fn set_aside(&mut self, damaged: &[Damage]) -> Result<(), LogError> {
        self.move_aside(damaged).map_err(|error| self.undo(&error))
    }

    fn append(&mut self, write: &Write<'_>) -> Result<(), LogError> {
        self.insert(write).map_err(|error| self.undo(&error))
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.commit().map_err(|error| self.undo(&error))?;
        self.totals = self.pending;
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), LogError> {
        match self.tidy() {
            // Without room the write-ahead log stays as it is, and is copied another time.
            Ok(()) | Err(LogError::Full(_)) => Ok(()),
            Err(error @ (LogError::Failed(_) | LogError::Refused(_))) => {
                self.is_broken = true;
                Err(error)
            }
        }
    }
}

/// A store that was closed has nothing to recover, so it opens faster.
impl Drop for SqliteLog {
    fn drop(&mut self) {
        if !self.is_broken {
            // If it fails, the write-ahead log is still there.
            let _ = self.checkpoint("TRUNCATE");
        }
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // Nobody else opens the file, so that the index of the write-ahead log can be kept in memory.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cell_size_check", "ON")?;
    connection.pragma_update(None, "cache_size", -8192)?;
    // A batch is written at its end and in the order of pages, or not at all; `wal::check` relies on it.
    connection.pragma_update(None, "cache_spill", "OFF")?;
    // A failed checkpoint must not go unnoticed, and not touch the files of a broken store on closing.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// SQLite ignores settings that it does not know or cannot follow, and everything we promise depends on these.
fn check_durable(connection: &Connection, file: &Path) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| open_error(file, &error);
    let journal: String =
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(failed)?;
    let synchronous: i64 =
        connection.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(failed)?;
    if (journal.as_str(), synchronous) == ("wal", 2) {
        return Ok(());
    }
    let reason = format!("the database would not be durable: journal {journal}, synchronous {synchronous}");
    Err(OpenError::Database { file: file.to_path_buf(), reason })
}

/// Refuses a database that is not ours to read.
fn check_format(connection: &Connection, file: &Path) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| open_error(file, &error);
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, format) = (read("application_id")?, read("user_version")?);
    if application == APPLICATION && format == FORMAT {
        return Ok(());
    }
    let found = if application == APPLICATION { format.to_string() } else { "of another program".to_owned() };
    Err(OpenError::Format { file: file.to_path_buf(), found, known: FORMAT })
}

fn is_missing_or_empty(file: &Path) -> bool {
    std::fs::metadata(file).map_or_else(|error| error.kind() == ErrorKind::NotFound, |found| found.len() == 0)
}

/// Makes an empty database under another name, and gives it its own once it is whole: SQLite would wait for the disk a
/// dozen times to be safe at every step of it. What a process that died on the way left is thrown away.
fn make(directory: &Directory, file: &Path) -> Result<(), OpenError> {
    let beside = directory.file(NEW);
    let failed = |operation: &'static str| {
        let path = beside.clone();
        move |source| OpenError::Io { operation, path, source }
    };
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove")(error)),
        Ok(()) | Err(_) => {}
    }
    // Made by us, because SQLite would let others read it; its write-ahead log gets the same mode.
    let made = directory.private_file(NEW)?;
    fill(&beside).map_err(|error| open_error(&beside, &error))?;
    made.sync_all().map_err(failed("sync"))?;
    std::fs::rename(&beside, file).map_err(failed("name"))
}

fn fill(file: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "journal_mode", "MEMORY")?;
    // Both take effect only before the first table is made.
    connection.pragma_update(None, "page_size", wal::PAGE)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let empty = Totals::default();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {SCHEMA} INSERT INTO totals VALUES (1, 0, 0, 0, {}); PRAGMA application_id = {APPLICATION}; \
         PRAGMA user_version = {FORMAT}; COMMIT; PRAGMA journal_mode = WAL",
        empty.sum()
    ))?;
    connection.close().map_err(|(_, error)| error)
}

fn open_error(file: &Path, error: &rusqlite::Error) -> OpenError {
    let (file, reason) = (file.to_path_buf(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenError::Corrupt { file, reason },
        _ => OpenError::Database { file, reason },
    }
}

fn log_error(error: &rusqlite::Error) -> LogError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => LogError::Full(error.to_string()),
        _ => LogError::Failed(error.to_string()),
    }
}
