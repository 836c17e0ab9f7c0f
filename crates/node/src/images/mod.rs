//! Images: their names, where they come from, and what of them is on this machine.
//!
//! ```text
//!   reference ─► Images ─► store::get ────────────────────────────────► Image
//!                  │   not there, or asked for anew                       ▲
//!                  ├──► local (layouts and archives of `--image-dir`) ────┤ store::add_layer, unpack
//!                  └──► registry (mirrors, then itself; auth) ────────────┘
//! ```
//!
//! Whatever comes from outside has a digest that is checked and a limit for its size; `unpack` says how an archive is
//! kept from writing anywhere but where it should.

pub mod auth;
pub mod digest;
pub mod local;
pub mod manifest;
pub mod reference;
pub mod registry;
pub mod store;
pub mod unpack;
mod zstd;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;

use auth::{Credentials, Keyring};
use digest::Digest;
use local::Found;
use manifest::{Config, Document, Layer, Platform};
use reference::Reference;
use registry::{Mirrors, Registry, Source};
pub use store::{Image, Policy, Presence};
use store::{Store, Temporary};

/// How many layers of an image are fetched at once.
const LAYERS_AT_ONCE: usize = 3;
/// How many layouts and archives that can't be read an error names: a message is no list.
const UNREADABLE_SHOWN: usize = 3;
/// How often it is seen to whether images have to go (upstream: ImageGCPeriod).
const COLLECT_EVERY: Duration = Duration::from_secs(300);

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry did not give it.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// What it gave makes no sense.
    #[error(transparent)]
    Document(#[from] manifest::Error),
    /// A layout or archive could not be read.
    #[error(transparent)]
    Local(#[from] local::Error),
    /// It could not be kept.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// It was found nowhere, and not everything that may have it could be read.
    #[error("{error}; it may be in what can't be read: {unreadable}")]
    Nowhere {
        /// What the last one said that was asked.
        #[source]
        error: Box<Self>,
        /// What can't be read, and why.
        unreadable: String,
    },
    /// A thread of ours has failed.
    #[error("unpack: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

/// Where images come from and where they are kept.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where they are kept.
    pub directory: PathBuf,
    /// Directories with layouts and archives, asked before any registry.
    pub image_dirs: Vec<PathBuf>,
    /// Asked before the registries themselves.
    pub mirrors: Mirrors,
    /// When those that nobody uses are removed.
    pub policy: Policy,
}

/// The images of this machine, for all nodes of a process.
pub struct Images {
    store: Arc<Store>,
    registry: Registry,
    settings: Settings,
    /// Read by pulls, so that nothing is removed that they have just found or made.
    pulls: tokio::sync::RwLock<()>,
    /// One fetch of a layer at a time.
    layers: Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

impl Images {
    /// Opens the store.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let store = Arc::new(Store::open(&settings.directory)?);
        Ok(Self {
            store,
            registry: Registry::default(),
            settings,
            pulls: tokio::sync::RwLock::default(),
            layers: Mutex::default(),
        })
    }

    /// The image of a name if it is on this machine: in the store, or in a layout or archive.
    pub async fn find(&self, name: &Reference, keyring: &Keyring) -> Result<Presence, Error> {
        let known: BTreeSet<Digest> =
            keyring.lookup(&name.repository()).into_iter().map(Credentials::fingerprint).collect();
        let _pull = self.pulls.read().await;
        match self.store.get(name, &known)? {
            Presence::Absent => {}
            found => return Ok(found),
        }
        Ok(self.local(name).await?.map_or(Presence::Absent, Presence::Present))
    }

    /// The image of a name, asked for anew: from a layout or archive, else from its mirrors, else from its registry. The
    /// error is that of the last one asked.
    pub async fn pull(&self, name: &Reference, keyring: &Keyring) -> Result<Arc<Image>, Error> {
        let _pull = self.pulls.read().await;
        if let Some(image) = self.local(name).await? {
            return Ok(image);
        }
        let endpoints = self.settings.mirrors.endpoints(&name.domain);
        let found = keyring.lookup(&name.repository());
        let credentials: Vec<Option<&Credentials>> =
            if found.is_empty() { vec![None] } else { found.into_iter().map(Some).collect() };
        let mut last = None;
        for endpoint in &endpoints {
            for &credentials in &credentials {
                match self.fetch(&Source { name, endpoint, credentials }).await {
                    Ok(image) => return Ok(image),
                    Err(error) => {
                        tracing::debug!(%error, %name, ?endpoint, "pull image");
                        last = Some(error);
                    }
                }
            }
        }
        let error = last.unwrap_or_else(|| registry::Error::NotFound(name.to_string()).into());
        let unreadable = self.unreadable(name).await?;
        match unreadable.is_empty() {
            true => Err(error),
            false => Err(Error::Nowhere { error: Box::new(error), unreadable }),
        }
    }

    /// Which layouts and archives can't be read, and why.
    async fn unreadable(&self, name: &Reference) -> Result<String, Error> {
        let (directories, name) = (self.settings.image_dirs.clone(), name.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let machine = Platform::this();
            let all = directories.iter().flat_map(|directory| local::unreadable(directory, &name, &machine));
            all.take(UNREADABLE_SHOWN).map(|error| error.to_string()).collect::<Vec<_>>().join("; ")
        });
        Ok(looked.await?)
    }

    async fn local(&self, name: &Reference) -> Result<Option<Arc<Image>>, Error> {
        for directory in self.settings.image_dirs.clone() {
            let (store, name) = (Arc::clone(&self.store), name.clone());
            let added = tokio::task::spawn_blocking(move || {
                let found = local::find(&directory, &name, &Platform::this())?;
                found.map(|found| add(&store, &name, &found)).transpose()
            });
            if let Some(image) = added.await?? {
                return Ok(Some(image));
            }
        }
        Ok(None)
    }

    async fn fetch(&self, source: &Source<'_>) -> Result<Arc<Image>, Error> {
        let machine = Platform::this();
        let (mut bytes, mut digest) = self.registry.manifest(source, None).await?;
        let top = digest.clone();
        let mut depth = 0;
        let manifest = loop {
            match Document::read(&bytes)? {
                Document::Manifest(manifest) => break manifest,
                Document::Index(_) if depth == local::INDEX_DEPTH_MAX => {
                    return Err(manifest::Error::TooDeep.into());
                }
                Document::Index(index) => {
                    let chosen = manifest::choose(&index, &machine)?;
                    (bytes, digest) = self.registry.manifest(source, Some(&chosen.digest)).await?;
                    depth += 1;
                }
            }
        };
        tracing::debug!(name = %source.name, %digest, "manifest");
        let id = &manifest.config.digest;
        let config = self.registry.document(source, id, manifest.config.size).await?;
        let layers = manifest::layers(&manifest, &Config::read(&config)?)?;
        let fetches = futures::stream::iter(layers.into_iter().map(|layer| self.fetch_layer(source, layer)));
        fetches.buffer_unordered(LAYERS_AT_ONCE).try_collect::<()>().await?;
        let pulled_by = source.credentials.map(Credentials::fingerprint);
        Ok(self.store.put(source.name, (id, &top), &config, pulled_by)?)
    }

    async fn fetch_layer(&self, source: &Source<'_>, layer: Layer) -> Result<(), Error> {
        let turn = self.turn(&layer.diff_id);
        let _turn = turn.lock().await;
        if self.store.has_layer(&layer.diff_id) {
            return Ok(());
        }
        let packed = Temporary(self.store.temporary());
        self.registry.blob(source, &layer.blob.digest, layer.blob.size, &packed.0).await?;
        let store = Arc::clone(&self.store);
        let unpacked = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&packed.0).map_err(|error| store::Error::Files {
                what: "open",
                path: packed.0.clone(),
                error,
            })?;
            store.add_layer(std::io::BufReader::new(file), layer.packing, &layer.diff_id)
        });
        Ok(unpacked.await??)
    }

    fn turn(&self, layer: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.layers.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(layer).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(layer.clone(), Arc::downgrade(&turn));
        turn
    }

    /// Where they are kept.
    pub fn directory(&self) -> &Path {
        &self.settings.directory
    }

    /// Removes images that nobody uses if the disk is too full, and returns their names.
    pub async fn collect(&self) -> Result<Vec<String>, Error> {
        let Ok(_alone) = self.pulls.try_write() else { return Ok(Vec::new()) };
        let (store, policy) = (Arc::clone(&self.store), self.settings.policy);
        let collected = tokio::task::spawn_blocking(move || store.collect(&policy, Timestamp::now()));
        Ok(collected.await??)
    }

    /// Does so now and then, until nobody has these images any more.
    pub async fn keep_tidy(images: Weak<Self>) {
        loop {
            tokio::time::sleep(COLLECT_EVERY).await;
            let Some(images) = images.upgrade() else { return };
            match images.collect().await {
                Ok(gone) if gone.is_empty() => {}
                Ok(gone) => tracing::info!(?gone, "removed images that no pod uses"),
                Err(error) => tracing::warn!(%error, "remove images that no pod uses"),
            }
        }
    }

    /// Removes all images that nobody uses, however full the disk is, and returns their names. Blocks.
    pub fn collect_all_unused(&self) -> Result<Vec<String>, Error> {
        let Ok(_alone) = self.pulls.try_write() else { return Ok(Vec::new()) };
        let all = Policy { high_percent: 0, low_percent: 0, min_age: Duration::ZERO };
        Ok(self.store.collect(&all, Timestamp::now())?)
    }
}

/// Brings an image from files into the store. Blocks.
fn add(store: &Store, name: &Reference, found: &Found) -> Result<Arc<Image>, Error> {
    for (layer, path) in &found.layers {
        if !store.has_layer(&layer.diff_id) {
            let packed = std::io::BufReader::new(found.open(path)?);
            store.add_layer(packed, layer.packing, &layer.diff_id)?;
        }
    }
    Ok(store.put(name, (&found.id, &found.digest), &found.config, None)?)
}
