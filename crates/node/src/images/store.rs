//! The images of this machine: layers unpacked once, shared by every image and node that has them.
//!
//! ```text
//!   lock                      held by every process that uses the directory, alone by one that removes something
//!   gate                      held for a moment by who takes the lock, or asks whether it has it alone
//!   names/<hash of a name>    which image a name means, and since when it was not used
//!   configs/<hex>             configurations of images
//!   layers/<hex>/             layers, by the digest of what is in them
//!   tmp/                      what is not done yet; whatever an agent left here goes when the next one is alone
//! ```
//!
//! Everything is made under `tmp` and moved to its place whole: what has a name is complete.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::digest::{Digest, Hasher};
use super::manifest::{Config, Packing};
use super::reference::Reference;
use super::unpack::{self, Limits};
use super::zstd;

/// How exact it is known when an image was last used.
const USED_EVERY: SignedDuration = SignedDuration::from_secs(30);

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Files could not be read or written.
    #[error("{what} {path}: {error}", path = .path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// A layer could not be unpacked.
    #[error("layer {layer}: {error}")]
    Unpack {
        /// The layer.
        layer: Digest,
        /// Why.
        #[source]
        error: unpack::Error,
    },
    /// Something else is in a layer than the configuration of the image says.
    #[error("layer {want}: the content has the digest {got}")]
    DiffId {
        /// What it should have.
        want: Digest,
        /// What it has.
        got: Digest,
    },
    /// A configuration can't be read.
    #[error(transparent)]
    Config(#[from] super::manifest::Error),
}

/// An image that is there. As long as somebody has it, it stays.
#[derive(Debug)]
pub struct Image {
    /// Its id: the digest of its configuration.
    pub id: Digest,
    /// Its name with the digest of its manifest, as a status shows it.
    pub repo_digest: String,
    /// How it is run.
    pub config: Config,
    /// The directories of its layers, the lowest first.
    pub layers: Vec<PathBuf>,
    /// Bytes of its layers.
    pub size: u64,
}

impl Image {
    /// A file of the image, of at most `limit` bytes; `None` when it has none or hides it.
    pub fn read(&self, path: &str, limit: u64) -> Option<String> {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        for layer in self.layers.iter().rev() {
            let root = rustix::fs::open(layer, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
                Ok(file) => {
                    let file = File::from(file);
                    let mut text = String::new();
                    let is_file = file.metadata().is_ok_and(|found| found.is_file());
                    file.take(limit).read_to_string(&mut text).ok().filter(|_| is_file)?;
                    return Some(text);
                }
                Err(rustix::io::Errno::NOENT) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// What a name means.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    id: Digest,
    digest: Digest,
    layers: Vec<Digest>,
    size: u64,
    /// When it was last started or asked for.
    used_at: Timestamp,
    /// Whose credentials it was pulled with; empty for what everybody may have.
    #[serde(default)]
    pulled_by: BTreeSet<Digest>,
}

/// Whether an image is there.
#[derive(Debug)]
pub enum Presence {
    /// No.
    Absent,
    /// Yes, but it was pulled with credentials that the caller does not have: it has to ask the registry.
    Private,
    /// Yes.
    Present(Arc<Image>),
}

/// When images that nobody uses are removed (upstream: the image garbage collector and its defaults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// From this share of the disk on, in percent.
    pub high_percent: u64,
    /// Until it is this.
    pub low_percent: u64,
    /// Not before they are unused for so long.
    pub min_age: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, min_age: Duration::from_secs(120) }
    }
}

/// The images of a directory.
pub struct Store {
    directory: PathBuf,
    lock: Lock,
    next: AtomicU64,
    /// Images that somebody has, by their id and digest.
    live: Mutex<HashMap<(Digest, String), Weak<Image>>>,
    /// Held while names and layers are looked up or removed.
    names: Mutex<()>,
    limits: Limits,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Files { what, path, error }
}

impl Store {
    /// Opens a directory, and makes it if it is not there.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        for name in ["names", "configs", "layers", "tmp"] {
            let path = directory.join(name);
            // Layers hold programs that may become another user: nobody else gets at them.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(failed("make", &path))?;
        }
        let (gate, lock) = (Lock::open(directory.join("gate"))?, Lock::open(directory.join("lock"))?);
        gate.take(FlockOperation::LockExclusive)?;
        let tmp = directory.join("tmp");
        lock.if_alone(&gate, || remove_below(&tmp).map_err(failed("clear", &tmp)))?;
        drop(gate);
        Ok(Self {
            directory: directory.to_owned(),
            lock,
            next: AtomicU64::new(0),
            live: Mutex::default(),
            names: Mutex::default(),
            limits: Limits::default(),
        })
    }

    /// A name for something that is not done yet.
    pub fn temporary(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.directory.join("tmp").join(format!("{}-{number}", std::process::id()))
    }

    fn name_path(&self, name: &Reference) -> PathBuf {
        self.directory.join("names").join(Digest::of(name.to_string().as_bytes()).hex())
    }

    fn config_path(&self, id: &Digest) -> PathBuf {
        self.directory.join("configs").join(id.hex())
    }

    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        // Short, so that all of an image fit into the options of a mount: 96 bits are enough for a name.
        self.directory.join("layers").join(&diff_id.hex()[..24])
    }

    /// The image of a name. `known`: the credentials that the caller has.
    pub fn get(&self, name: &Reference, known: &BTreeSet<Digest>) -> Result<Presence, Error> {
        let _names = self.names.lock();
        let path = self.name_path(name);
        // One that makes no sense is as good as none: the image is had again, and the record with it.
        let Some(mut record) = read_record(&path)? else { return Ok(Presence::Absent) };
        if record.layers.iter().any(|layer| !self.layer_path(layer).is_dir()) {
            return Ok(Presence::Absent);
        }
        if !record.pulled_by.is_empty() && record.pulled_by.is_disjoint(known) {
            return Ok(Presence::Private);
        }
        let now = Timestamp::now();
        if now.duration_since(record.used_at) > USED_EVERY {
            record.used_at = now;
            self.write_record(&path, &record)?;
        }
        match self.image(name, &record) {
            Ok(image) => Ok(Presence::Present(image)),
            // The same for its configuration.
            Err(Error::Config(_)) => Ok(Presence::Absent),
            Err(Error::Files { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Presence::Absent)
            }
            Err(error) => Err(error),
        }
    }

    fn image(&self, name: &Reference, record: &Record) -> Result<Arc<Image>, Error> {
        let repo_digest = format!("{}@{}", name.repository(), record.digest);
        let key = (record.id.clone(), repo_digest.clone());
        let mut live = self.live.lock();
        if let Some(image) = live.get(&key).and_then(Weak::upgrade) {
            return Ok(image);
        }
        let path = self.config_path(&record.id);
        let config = fs::read(&path).map_err(failed("read", &path))?;
        let image = Arc::new(Image {
            id: record.id.clone(),
            repo_digest,
            config: Config::read(&config)?,
            layers: record.layers.iter().map(|layer| self.layer_path(layer)).collect(),
            size: record.size,
        });
        live.retain(|_, image| image.strong_count() > 0);
        live.insert(key, Arc::downgrade(&image));
        Ok(image)
    }

    /// Gives a name to an image whose layers are there. `pulled_by`: the credentials that it needed.
    pub fn put(
        &self,
        name: &Reference,
        (id, digest): (&Digest, &Digest),
        config: &[u8],
        pulled_by: Option<Digest>,
    ) -> Result<Arc<Image>, Error> {
        let read = Config::read(config)?;
        let path = self.config_path(id);
        self.write(&path, config)?;
        let layers = read.rootfs.diff_ids;
        let _names = self.names.lock();
        let size = layers.iter().map(|layer| size_of(&self.layer_path(layer))).sum();
        let path = self.name_path(name);
        // Who had it may have it again, unless it is public now.
        let before = read_record(&path)?.filter(|record| record.id == *id).map(|record| record.pulled_by);
        let pulled_by = match (pulled_by, before) {
            (None, _) => BTreeSet::new(),
            (Some(new), Some(before)) if !before.is_empty() => before.into_iter().chain([new]).collect(),
            (Some(new), _) => BTreeSet::from([new]),
        };
        let (id, digest, used_at) = (id.clone(), digest.clone(), Timestamp::now());
        let record = Record { name: name.to_string(), id, digest, layers, size, used_at, pulled_by };
        self.write_record(&path, &record)?;
        self.image(name, &record)
    }

    /// Whether a layer is there.
    pub fn has_layer(&self, diff_id: &Digest) -> bool {
        self.layer_path(diff_id).is_dir()
    }

    /// Unpacks a layer, unless it is there. Blocks.
    pub fn add_layer(&self, packed: impl BufRead, packing: Packing, diff_id: &Digest) -> Result<(), Error> {
        let path = self.layer_path(diff_id);
        if path.is_dir() {
            return Ok(());
        }
        let fresh = Temporary(self.temporary());
        fs::DirBuilder::new().mode(0o755).create(&fresh.0).map_err(failed("make", &fresh.0))?;
        let tree = fresh.0.join("tree");
        fs::DirBuilder::new().mode(0o755).create(&tree).map_err(failed("make", &tree))?;
        let (size, got) = match packing {
            Packing::Plain => self.unpack(packed, &tree, diff_id)?,
            Packing::Gzip => self.unpack(flate2::bufread::MultiGzDecoder::new(packed), &tree, diff_id)?,
            Packing::Zstd => self.unpack(zstd::Unpacked::new(packed), &tree, diff_id)?,
        };
        if got != *diff_id {
            return Err(Error::DiffId { want: diff_id.clone(), got });
        }
        let note = size_path(&path);
        self.write(&note, size.to_string().as_bytes())?;
        match fs::rename(&tree, &path) {
            // Somebody else was faster with the same.
            Err(_) if path.is_dir() => Ok(()),
            result => result.map_err(failed("move", &path)),
        }
    }

    fn unpack(&self, archive: impl Read, into: &Path, layer: &Digest) -> Result<(u64, Digest), Error> {
        let mut archive = Hashing { from: archive, hasher: layer.hasher(), left: self.limits.bytes };
        let unpacked = unpack::unpack(&mut archive, into, self.limits);
        // What comes behind the end of the archive counts for its digest.
        let rest = unpacked.and_then(|size| {
            io::copy(&mut archive, &mut io::sink()).map_err(unpack::Error::Read)?;
            Ok(size)
        });
        let size = rest.map_err(|error| Error::Unpack { layer: layer.clone(), error })?;
        Ok((size, archive.hasher.finish()))
    }

    fn write_record(&self, path: &Path, record: &Record) -> Result<(), Error> {
        let text = serde_json::to_vec(record).expect("it has text keys only");
        self.write(path, &text)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let fresh = Temporary(self.temporary());
        let written = File::create(&fresh.0).and_then(|mut file| {
            file.write_all(bytes)?;
            // Else a machine that stops now may later have the name without the content.
            file.sync_data()
        });
        written.map_err(failed("write", &fresh.0))?;
        fs::rename(&fresh.0, path).map_err(failed("move", path))
    }

    /// Removes images that nobody uses, those first that were not used for the longest, if the disk is too full.
    /// Does nothing while another process uses the directory. Returns the names that are gone.
    pub fn collect(&self, policy: &Policy, now: Timestamp) -> Result<Vec<String>, Error> {
        let disk = disk(&self.directory).map_err(failed("look at", &self.directory))?;
        if disk.percent() < policy.high_percent {
            return Ok(Vec::new());
        }
        let _names = self.names.lock();
        let gate = Lock::open(self.directory.join("gate"))?;
        if !gate.take(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Vec::new());
        }
        let gone = self.lock.if_alone(&gate, || self.collect_alone(policy, now, disk))?;
        Ok(gone.unwrap_or_default())
    }

    fn collect_alone(&self, policy: &Policy, now: Timestamp, disk: Disk) -> Result<Vec<String>, Error> {
        let names = self.directory.join("names");
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(&names).map_err(failed("read", &names))?.flatten() {
            match read_record(&entry.path()) {
                Ok(Some(record)) => drop(records.insert(entry.path(), record)),
                Ok(None) | Err(_) => fs::remove_file(entry.path()).map_err(failed("remove", &names))?,
            }
        }
        let live = self.live.lock();
        let used: Vec<Arc<Image>> = live.values().filter_map(Weak::upgrade).collect();
        let in_use: BTreeSet<&Digest> = used.iter().map(|image| &image.id).collect();
        let all: Vec<(PathBuf, Unused)> = records
            .iter()
            .filter(|(_, record)| !in_use.contains(&record.id))
            .map(|(path, record)| (path.clone(), Unused { used_at: record.used_at, size: record.size }))
            .collect();
        let victims = victims(all, policy, now, disk.to_free(policy.low_percent));
        let mut gone = Vec::new();
        for path in victims {
            if let Some(record) = records.remove(&path) {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                gone.push(record.name);
            }
        }
        // Layers and configurations go that no name leads to any more, unless a container still has the image: its name
        // may mean another one by now.
        let named = records.values().flat_map(|record| &record.layers).map(|layer| self.layer_path(layer));
        let layers: BTreeSet<PathBuf> =
            named.chain(used.iter().flat_map(|image| image.layers.clone())).collect();
        let ids = records.values().map(|record| &record.id).chain(in_use);
        let configs: BTreeSet<PathBuf> = ids.map(|id| self.config_path(id)).collect();
        for (directory, kept) in [("layers", &layers), ("configs", &configs)] {
            let directory = self.directory.join(directory);
            for entry in fs::read_dir(&directory).map_err(failed("read", &directory))?.flatten() {
                let path = entry.path();
                let owner = path.with_extension("");
                if !kept.contains(&owner) {
                    let removed = if path.is_dir() { remove_tree(&path) } else { fs::remove_file(&path) };
                    removed.map_err(failed("remove", &path))?;
                }
            }
        }
        drop(live);
        Ok(gone)
    }
}

/// A file that can be locked; what is locked is free when this goes.
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Opens the file, and makes it if it is not there. Nothing is locked yet.
    fn open(path: PathBuf) -> Result<Self, Error> {
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed("open", &path))?;
        Ok(Self { path, file })
    }

    /// Returns whether it is held as wanted; if not, somebody else has it, and it is not held at all.
    fn take(&self, operation: FlockOperation) -> Result<bool, Error> {
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&self.file, operation)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(failed("lock", &self.path)(error.into())),
        }
    }

    /// Does something if nobody else has the lock, and shares it with others afterwards in any case.
    ///
    /// `flock` lets go of a shared lock before it tries to have it alone: who is refused has nothing any more until it
    /// shares it again. So whoever asks has the gate meanwhile: nobody takes another for absent that is just asking, and
    /// to share it again never has to wait. (`F_OFD_SETLK`, which loses nothing when it is refused, is not in rustix.)
    fn if_alone<T>(&self, _gate: &Self, then: impl FnOnce() -> Result<T, Error>) -> Result<Option<T>, Error> {
        let done = match self.take(FlockOperation::NonBlockingLockExclusive) {
            Ok(true) => then().map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        self.take(FlockOperation::LockShared)?;
        done
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // To close it is not enough while a process that was just forked has it too.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// What is known of an image that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unused {
    used_at: Timestamp,
    size: u64,
}

/// Which images have to go so that `to_free` bytes are free: the longest unused first.
fn victims(mut all: Vec<(PathBuf, Unused)>, policy: &Policy, now: Timestamp, to_free: u64) -> Vec<PathBuf> {
    all.sort_by_key(|(_, image)| image.used_at);
    let mut freed = 0;
    let mut gone = Vec::new();
    for (path, image) in all {
        let age = Duration::try_from(now.duration_since(image.used_at)).unwrap_or_default();
        if freed >= to_free || age < policy.min_age {
            break;
        }
        freed += image.size;
        gone.push(path);
    }
    gone
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Disk {
    bytes: u64,
    free: u64,
}

impl Disk {
    fn percent(self) -> u64 {
        100 - u64::try_from(u128::from(self.free) * 100 / u128::from(self.bytes.max(1)))
            .unwrap_or(100)
            .min(100)
    }

    /// How much has to go so that this share is used.
    fn to_free(self, percent: u64) -> u64 {
        let allowed = u128::from(self.bytes) * u128::from(percent) / 100;
        u64::try_from(u128::from(self.bytes - self.free.min(self.bytes)).saturating_sub(allowed))
            .unwrap_or(u64::MAX)
    }
}

fn disk(path: &Path) -> io::Result<Disk> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Disk { bytes: found.f_blocks * found.f_frsize, free: found.f_bavail * found.f_frsize })
}

fn size_path(layer: &Path) -> PathBuf {
    layer.with_extension("size")
}

fn size_of(layer: &Path) -> u64 {
    fs::read_to_string(size_path(layer)).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `None` if there is none, or none that can be understood.
fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    match fs::read(path) {
        Ok(bytes) => {
            let record = serde_json::from_slice(&bytes);
            let say = |error: &serde_json::Error| {
                tracing::warn!(%error, path = %path.display(), "read the record of an image");
            };
            Ok(record.inspect_err(say).ok())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

fn remove_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() { remove_tree(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

/// Removes a directory, also one that says that nobody may.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Goes when it is no longer wanted.
pub(super) struct Temporary(pub(super) PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have been moved to its place.
        let _ = if self.0.is_dir() { remove_tree(&self.0) } else { fs::remove_file(&self.0) };
    }
}

/// Hashes what is read, and reads no more than it may.
struct Hashing<R> {
    from: R,
    hasher: Hasher,
    left: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other("it is too large"))?;
        self.hasher.update(&into[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn the_longest_unused_images_go_until_there_is_room() {
        let image = |name: &str, second, size| (PathBuf::from(name), Unused { used_at: at(second), size });
        let all = vec![
            image("new", 300, 10),
            image("old", 0, 10),
            image("middle", 100, 10),
            image("young", 950, 10),
        ];
        let policy = Policy { min_age: Duration::from_secs(100), ..Policy::default() };
        for (to_free, want) in [
            (0, vec![]),
            (1, vec!["old"]),
            (10, vec!["old"]),
            (11, vec!["old", "middle"]),
            (1000, vec!["old", "middle", "new"]),
        ] {
            let got = victims(all.clone(), &policy, at(1000), to_free);
            assert_eq!(got, want.into_iter().map(PathBuf::from).collect::<Vec<_>>(), "{to_free}");
        }
    }

    #[test]
    fn a_packed_layer_is_taken_whole_and_within_its_limits_or_not_at_all() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(1 << 20);
        archive.append_data(&mut header, "zeros", io::repeat(0).take(1 << 20)).expect("to memory");
        let archive = archive.into_inner().expect("to memory");
        // Behind its end an archive may have anything: it is read for the digest.
        let bomb = [&archive[..], &vec![0; 4 << 20]].concat();
        let gzip = |bytes: &[u8]| {
            let mut packed = Vec::new();
            let mut packer = flate2::read::GzEncoder::new(bytes, flate2::Compression::best());
            packer.read_to_end(&mut packed).expect("to memory");
            packed
        };
        let zstd = |bytes: &[u8]| {
            ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
        };
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path()).expect("opened");
        store.limits = Limits { bytes: 2 << 20, entries: 10 };
        let (good, bad, other) = (Digest::of(&archive), Digest::of(&bomb), Digest::of(b"other"));
        for (packing, pack) in [(Packing::Gzip, &gzip as &dyn Fn(&[u8]) -> Vec<u8>), (Packing::Zstd, &zstd)] {
            let whole = pack(&archive);
            assert!(whole.len() < 64 << 10, "{packing:?}: {} bytes", whole.len());
            let add = |packed: &[u8], digest| {
                let added = store.add_layer(packed, packing, digest).map_err(|error| error.to_string());
                let left = |name| fs::read_dir(directory.path().join(name)).expect("there").count();
                assert_eq!((left("tmp"), left("layers") > 0), (0, added.is_ok()), "{packing:?}");
                added
            };
            let got = |error: Result<(), String>| error.expect_err("refused");
            let bombed = got(add(&pack(&bomb), &bad));
            assert_eq!(bombed, format!("layer {bad}: read the archive: it is too large"));
            let another = got(add(&whole, &other));
            assert_eq!(another, format!("layer {other}: the content has the digest {good}"));
            for cut in [0, 3, whole.len() / 2, whole.len() - 5, whole.len() - 1] {
                got(add(&whole[..cut], &good));
            }
            assert_eq!(add(&whole, &good), Ok(()), "{packing:?}");
            let unpacked = fs::metadata(store.layer_path(&good).join("zeros")).expect("unpacked");
            assert_eq!(unpacked.len(), 1 << 20);
            remove_below(&directory.path().join("layers")).expect("removed");
        }
    }

    /// Removes all that nobody uses.
    const ALL: Policy = Policy { high_percent: 0, low_percent: 0, min_age: Duration::ZERO };

    fn name() -> Reference {
        Reference::parse("test/app:1").expect("a name")
    }

    /// Gives the name to an image of one layer, with one file of this text.
    fn put(store: &Store, text: &str) -> Arc<Image> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, "file", text.as_bytes()).expect("to memory");
        let archive = archive.into_inner().expect("to memory");
        let layer = Digest::of(&archive);
        store.add_layer(&archive[..], Packing::Plain, &layer).expect("unpacked");
        let config = serde_json::json!({"rootfs": {"type": "layers", "diff_ids": [layer]}}).to_string();
        let id = Digest::of(config.as_bytes());
        store.put(&name(), (&id, &id), config.as_bytes(), None).expect("put")
    }

    fn collect(store: &Store) -> Vec<String> {
        store.collect(&ALL, Timestamp::now()).expect("looked")
    }

    fn count(directory: &Path, name: &str) -> usize {
        fs::read_dir(directory.join(name)).expect("there").count()
    }

    #[test]
    fn an_image_that_is_used_stays_when_its_name_means_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("opened");
        let old = put(&store, "old");
        drop(put(&store, "new"));
        assert_eq!(collect(&store), ["docker.io/test/app:1"], "nobody uses the new one");
        assert_eq!(old.read("file", 10).as_deref(), Some("old"));
        assert!(store.config_path(&old.id).is_file());
        // A layer and its size, and a configuration.
        let left = || (count(directory.path(), "layers"), count(directory.path(), "configs"));
        assert_eq!(left(), (2, 1));
        drop(old);
        assert_eq!((collect(&store), left()), (vec![], (0, 0)), "it goes when it is no longer used");
    }

    #[test]
    fn who_could_not_remove_anything_is_still_safe_from_who_else_uses_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("opened");
        let other = Store::open(directory.path()).expect("opened");
        let image = put(&store, "text");
        let unfinished = store.temporary();
        fs::write(&unfinished, "").expect("written");
        assert_eq!(collect(&store), [""; 0], "somebody else uses the directory");
        assert_eq!(collect(&other), [""; 0], "the other one is not alone either");
        drop(other);
        let other = Store::open(directory.path()).expect("opened");
        assert_eq!(image.read("file", 10).as_deref(), Some("text"));
        assert!(unfinished.is_file(), "who comes later is not alone");
        drop((store, image));
        assert_eq!(collect(&other), ["docker.io/test/app:1"], "now it is");
        drop(other);
        drop(Store::open(directory.path()).expect("opened"));
        assert!(!unfinished.exists(), "and so is who comes then");
    }

    #[test]
    fn nobody_asks_whether_it_is_alone_while_another_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("opened");
        drop(put(&store, "text"));
        let gate = Lock::open(directory.path().join("gate")).expect("opened");
        assert!(gate.take(FlockOperation::NonBlockingLockExclusive).expect("taken"));
        assert_eq!(collect(&store), [""; 0], "another is at it");
        drop(gate);
        assert_eq!(collect(&store), ["docker.io/test/app:1"]);
    }

    #[test]
    fn a_record_or_configuration_that_a_crash_has_emptied_is_as_good_as_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("opened");
        let known = BTreeSet::new();
        let id = put(&store, "text").id.clone();
        let (record, config) = (store.name_path(&name()), store.config_path(&id));
        for (path, what) in [(record, "record"), (config, "configuration")] {
            fs::write(&path, "").expect("written");
            let got = store.get(&name(), &known).expect("looked");
            assert!(matches!(got, Presence::Absent), "{what}: {got:?}");
            assert_eq!(put(&store, "text").id, id, "{what}");
            let got = store.get(&name(), &known).expect("looked");
            assert!(matches!(got, Presence::Present(_)), "{what}: {got:?}");
        }
        fs::write(store.name_path(&name()), "").expect("written");
        assert_eq!(collect(&store), [""; 0]);
        assert_eq!(count(directory.path(), "names"), 0, "it goes when there is no room");
    }

    #[test]
    fn the_share_of_the_disk_decides_how_much_goes() {
        for (bytes, free, percent, to_free) in [
            (1000, 100, 90, 100),
            (1000, 1000, 0, 0),
            (1000, 0, 100, 200),
            (0, 0, 100, 0),
            (1000, 200, 80, 0),
        ] {
            let disk = Disk { bytes, free };
            assert_eq!((disk.percent(), disk.to_free(80)), (percent, to_free), "{disk:?}");
        }
    }
}
