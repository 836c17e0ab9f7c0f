//! Images in files of this machine: OCI layouts and what `docker save` writes, as directories or tar archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Deserialize;

use super::digest::Digest;
use super::manifest::{
    self, Config, DOCUMENT_BYTES_MAX, Descriptor, Document, Layer, Manifest, Packing, Platform, choose,
};
use super::reference::Reference;

/// How many indexes may lead to each other.
pub(super) const INDEX_DEPTH_MAX: usize = 4;
/// The names of an image in a layout.
const NAME_ANNOTATIONS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Why an image could not be read from files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("read {path} of {place}: {error}", path = .path.display(), place = .place.display())]
    Read {
        /// The layout or archive.
        place: PathBuf,
        /// The file in it.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Something else is in a file than its name says.
    #[error("{path} of {place} has another digest than its name says", path = .path.display(), place = .place.display())]
    Digest {
        /// The layout or archive.
        place: PathBuf,
        /// The file in it.
        path: PathBuf,
    },
    /// A document is not what it should be.
    #[error("{place}: {error}", place = .place.display())]
    Document {
        /// The layout or archive.
        place: PathBuf,
        /// What is wrong.
        #[source]
        error: manifest::Error,
    },
}

/// An image that was found.
pub struct Found {
    /// Where.
    files: Files,
    /// The digest of its manifest; of its configuration where there is no manifest.
    pub digest: Digest,
    /// The digest of its configuration.
    pub id: Digest,
    /// Its configuration.
    pub config: Vec<u8>,
    /// Its layers, and the files that have them.
    pub layers: Vec<(Layer, PathBuf)>,
}

impl Found {
    /// Opens the file of a layer. What is in it is not checked yet.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>, Error> {
        self.files.open(path).map(|(file, _)| file)
    }
}

/// Finds an image below a directory: in the directory itself, or in a layout or archive directly in it.
///
/// What can't be read, as an archive that is just being copied, hides nothing that is elsewhere. It is an error only where
/// it says that it has this image.
pub fn find(directory: &Path, name: &Reference, machine: &Platform) -> Result<Option<Found>, Error> {
    let mut first = None;
    for place in places(directory)? {
        let (error, is_of_it) = match look(&place, name, machine) {
            Ok(None) => continue,
            Ok(Some(Ok(found))) => return Ok(Some(found)),
            Ok(Some(Err(error))) => (error, true),
            Err(error) => (error, false),
        };
        tracing::warn!(%error, place = %place.display(), "skip images that can't be read");
        if is_of_it {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(None), Err)
}

/// What is below a directory but can't be read: it may have an image that [`find`] has not found.
pub fn unreadable(directory: &Path, name: &Reference, machine: &Platform) -> Vec<Error> {
    let places = places(directory).unwrap_or_default();
    places.iter().filter_map(|place| look(place, name, machine).err()).collect()
}

/// Where images may be, in the order in which they are looked for.
fn places(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |error| Error::Read { place: directory.to_owned(), path: PathBuf::new(), error };
    let mut places = vec![directory.to_owned()];
    for entry in std::fs::read_dir(directory).map_err(read)? {
        places.push(entry.map_err(read)?.path());
    }
    places.sort();
    Ok(places)
}

/// Looks for an image in one place. The outer error: it is not known what is there. The inner one: the image is, but it is
/// not whole.
fn look(place: &Path, name: &Reference, machine: &Platform) -> Result<Option<Result<Found, Error>>, Error> {
    Files::at(place)?.map_or(Ok(None), |files| find_in(files, name, machine))
}

/// Files by their names: of a directory, or of an archive, with where each begins, and its size. An archive is cut when
/// its end is missing.
enum Files {
    Directory { place: PathBuf, root: std::os::fd::OwnedFd },
    Archive { place: PathBuf, entries: BTreeMap<PathBuf, (u64, u64)>, is_cut: bool },
}

impl Files {
    /// `None` for what holds no images.
    fn at(place: &Path) -> Result<Option<Self>, Error> {
        let read = |error| Error::Read { place: place.to_owned(), path: PathBuf::new(), error };
        if place.is_dir() {
            if !place.join("oci-layout").exists() && !place.join("manifest.json").exists() {
                return Ok(None);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(place, flags, Mode::empty()).map_err(|error| read(error.into()))?;
            return Ok(Some(Self::Directory { place: place.to_owned(), root }));
        }
        if place.extension().is_none_or(|extension| extension != "tar") {
            return Ok(None);
        }
        let file = File::open(place).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut archive = tar::Archive::new(file);
        let mut entries: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
        for entry in archive.entries_with_seek().map_err(read)? {
            let entry = entry.map_err(read)?;
            let path = entry.path().map_err(read)?;
            let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
            if entry.header().entry_type().is_file() {
                entries.insert(path, (entry.raw_file_position(), entry.size()));
            }
        }
        let is_cut = entries.values().any(|(start, size)| start.saturating_add(*size) > length);
        Ok(Some(Self::Archive { place: place.to_owned(), entries, is_cut }))
    }

    fn place(&self) -> &Path {
        match self {
            Self::Directory { place, .. } | Self::Archive { place, .. } => place,
        }
    }

    fn open(&self, path: &Path) -> Result<(Box<dyn Read + Send>, u64), Error> {
        let read = |error| Error::Read { place: self.place().to_owned(), path: path.to_owned(), error };
        match self {
            Self::Directory { root, .. } => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                // A layout from elsewhere does not say what of this machine is read.
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let file = rustix::fs::openat2(root.as_fd(), path, flags, Mode::empty(), resolve);
                let file = File::from(file.map_err(|error| read(error.into()))?);
                let found = file.metadata().map_err(read)?;
                if !found.is_file() {
                    return Err(read(io::ErrorKind::InvalidInput.into()));
                }
                Ok((Box::new(file), found.len()))
            }
            Self::Archive { place, entries, .. } => {
                let &(start, size) = entries.get(path).ok_or_else(|| read(io::ErrorKind::NotFound.into()))?;
                let mut file = File::open(place).map_err(read)?;
                file.seek(SeekFrom::Start(start)).map_err(read)?;
                Ok((Box::new(file.take(size)), size))
            }
        }
    }

    fn has(&self, path: &Path) -> bool {
        match self {
            Self::Directory { .. } => self.open(path).is_ok(),
            Self::Archive { entries, .. } => entries.contains_key(path),
        }
    }

    /// A document, whole.
    fn document(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let (file, size) = self.open(path)?;
        manifest::within("document", size, DOCUMENT_BYTES_MAX).map_err(|error| self.failed(error))?;
        let mut bytes = Vec::new();
        let read = file.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| Error::Read { place: self.place().to_owned(), path: path.to_owned(), error })?;
        Ok(bytes)
    }

    /// A document whose digest is known.
    fn blob(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let path = blob_path(digest);
        let bytes = self.document(&path)?;
        match digest.is_of(&bytes) {
            true => Ok(bytes),
            false => Err(Error::Digest { place: self.place().to_owned(), path }),
        }
    }

    fn failed(&self, error: manifest::Error) -> Error {
        Error::Document { place: self.place().to_owned(), error }
    }
}

fn blob_path(digest: &Digest) -> PathBuf {
    Path::new("blobs").join(digest.algorithm()).join(digest.hex())
}

/// Looks for an image in files. The errors are those of [`look`].
fn find_in(
    files: Files,
    name: &Reference,
    machine: &Platform,
) -> Result<Option<Result<Found, Error>>, Error> {
    if files.has(Path::new("index.json")) {
        let bytes = files.document(Path::new("index.json"))?;
        let Document::Index(entries) = Document::read(&bytes).map_err(|error| files.failed(error))? else {
            return Ok(None);
        };
        let entry = entries.into_iter().find(|entry| is_named(entry, name));
        return match entry {
            Some(entry) => Ok(Some(of_layout(files, entry, machine))),
            // Newer archives of docker have both.
            None if files.has(Path::new("manifest.json")) => of_archive(files, name),
            None => Ok(None),
        };
    }
    if files.has(Path::new("manifest.json")) {
        return of_archive(files, name);
    }
    // What is missing may be what says which images there are.
    if let Files::Archive { place, is_cut: true, .. } = &files {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the end of the archive is missing");
        return Err(Error::Read { place: place.clone(), path: PathBuf::from("manifest.json"), error });
    }
    Ok(None)
}

/// Whether an entry of a layout is the image of this name: by its digest, its whole name, or in a layout that says
/// only tags, by none.
fn is_named(entry: &Descriptor, name: &Reference) -> bool {
    if let Some(digest) = &name.digest {
        return entry.digest == *digest;
    }
    let names = NAME_ANNOTATIONS.iter().filter_map(|key| entry.annotations.get(*key));
    // A bare tag is no name: `v1` would be the image `docker.io/library/v1`.
    let mut whole =
        names.filter(|text| text.contains(['/', ':'])).filter_map(|text| Reference::parse(text).ok());
    whole.any(|whole| whole == *name)
}

fn of_layout(files: Files, entry: Descriptor, machine: &Platform) -> Result<Found, Error> {
    let mut digest = entry.digest;
    for _ in 0..INDEX_DEPTH_MAX {
        let bytes = files.blob(&digest)?;
        match Document::read(&bytes).map_err(|error| files.failed(error))? {
            Document::Index(index) => {
                digest = choose(&index, machine).map_err(|error| files.failed(error))?.digest.clone();
            }
            Document::Manifest(manifest) => {
                let config = files.blob(&manifest.config.digest)?;
                let layers = read_layers(&manifest, &config).map_err(|error| files.failed(error))?;
                let layers = layers.into_iter().map(|layer| {
                    let path = blob_path(&layer.blob.digest);
                    (layer, path)
                });
                let (id, layers) = (manifest.config.digest.clone(), layers.collect());
                return Ok(Found { files, digest, id, config, layers });
            }
        }
    }
    Err(files.failed(manifest::Error::TooDeep))
}

fn read_layers(manifest: &Manifest, config: &[u8]) -> Result<Vec<Layer>, manifest::Error> {
    manifest::layers(manifest, &Config::read(config)?)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

/// From `manifest.json`. Its layers have no digests but those of the configuration, which are of what is in them.
fn of_archive(files: Files, name: &Reference) -> Result<Option<Result<Found, Error>>, Error> {
    let invalid = |error: String| manifest::Error::Read { what: "manifest.json", error };
    let bytes = files.document(Path::new("manifest.json"))?;
    let saved: Vec<Saved> =
        serde_json::from_slice(&bytes).map_err(|error| files.failed(invalid(error.to_string())))?;
    let is_it = |saved: &Saved| {
        let mut tags = saved.repo_tags.iter().flatten();
        tags.any(|tag| Reference::parse(tag).is_ok_and(|tag| tag == *name))
    };
    Ok(saved.into_iter().find(is_it).map(|saved| of_saved(files, saved)))
}

/// The image of an entry of `manifest.json`.
fn of_saved(files: Files, saved: Saved) -> Result<Found, Error> {
    let config = files.document(&saved.config)?;
    let id = Digest::of(&config);
    // Its name is its digest, which is the id of the image.
    let stem = saved.config.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if stem.len() == 64 && stem != id.hex() {
        return Err(Error::Digest { place: files.place().to_owned(), path: saved.config });
    }
    let read = Config::read(&config).map_err(|error| files.failed(error))?;
    let (count, diff_ids) = (saved.layers.len(), read.rootfs.diff_ids.len());
    if count != diff_ids {
        return Err(files.failed(manifest::Error::LayerCount { layers: count, diff_ids }));
    }
    let mut layers = Vec::new();
    for (path, diff_id) in saved.layers.into_iter().zip(read.rootfs.diff_ids) {
        let (file, size) = files.open(&path)?;
        let mut start = Vec::new();
        let read = file.take(4).read_to_end(&mut start);
        read.map_err(|error| Error::Read { place: files.place().to_owned(), path: path.clone(), error })?;
        let packing = Packing::of_content(&start);
        let blob = Descriptor {
            media_type: String::new(),
            digest: diff_id.clone(),
            size,
            platform: None,
            annotations: BTreeMap::new(),
        };
        layers.push((Layer { blob, packing, diff_id }, path));
    }
    Ok(Found { files, digest: id.clone(), id, config, layers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Reference {
        Reference::parse(text).expect("a name")
    }

    /// What `docker save` writes, of an image with a layer of 4 KiB. `config_name`: another than that of its digest.
    fn saved(name: &str, config_name: Option<&str>) -> Vec<u8> {
        let layer = vec![0; 4096];
        let config = serde_json::json!({"rootfs": {"diff_ids": [Digest::of(&layer)]}}).to_string();
        let hex = Digest::of(config.as_bytes()).hex().to_owned();
        let config_name = format!("{}.json", config_name.unwrap_or(&hex));
        let manifest =
            serde_json::json!([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]);
        let mut archive = tar::Builder::new(Vec::new());
        let manifest = manifest.to_string().into_bytes();
        for (path, bytes) in
            [(config_name.as_str(), config.into_bytes()), ("layer.tar", layer), ("manifest.json", manifest)]
        {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, &bytes[..]).expect("to memory");
        }
        archive.into_inner().expect("to memory")
    }

    #[test]
    fn an_archive_that_is_broken_or_half_copied_hides_no_other_image() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |file: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(file), bytes).expect("written");
        };
        write("a.tar", &[b'x'; 1024]);
        // A header and the configuration, a header and the beginning of the layer.
        write("b.tar", &saved("test/copied:1", None)[..3 * 512 + 100]);
        write("c.tar", &saved("test/app:1", None));
        let machine = Platform::this();
        let is_there = |text| find(directory.path(), &name(text), &machine).map(|found| found.is_some());
        assert!(is_there("test/app:1").expect("looked"));
        for text in ["test/other:1", "test/copied:1"] {
            assert!(!is_there(text).expect("it may be elsewhere"), "{text}");
            let broken = unreadable(directory.path(), &name(text), &machine);
            let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
            assert_eq!(broken.len(), 2, "{broken:?}");
            assert!(broken[0].contains("a.tar: ") && broken[1].contains("b.tar: "), "{broken:?}");
        }
        write("b.tar", &saved("test/copied:1", None));
        assert!(is_there("test/copied:1").expect("looked"), "it is copied");
    }

    #[test]
    fn an_archive_that_has_the_image_but_not_whole_is_an_error_unless_another_has_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |file: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(file), bytes).expect("written");
        };
        write("a.tar", &saved("test/app:1", Some(&"0".repeat(64))));
        let machine = Platform::this();
        let is_there = |text| {
            let found = find(directory.path(), &name(text), &machine);
            found.map(|found| found.is_some()).map_err(|error| error.to_string())
        };
        let error = is_there("test/app:1").expect_err("refused");
        assert!(error.ends_with("a.tar has another digest than its name says"), "{error}");
        assert_eq!(is_there("test/other:1"), Ok(false));
        write("b.tar", &saved("test/app:1", None));
        assert_eq!(is_there("test/app:1"), Ok(true));
    }
}
