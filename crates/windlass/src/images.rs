//! Where the images of pods come from: what the command line says, and the runtime that this machine has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_node::images::registry::Mirrors;
use windlass_node::images::{Images, Settings};
use windlass_node::runtimes::apart;
use windlass_node::{Oci, oci};

/// What the command line says about images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `REGISTRY=URL` each.
    pub mirrors: Vec<String>,
    /// Directories with layouts and archives.
    pub directories: Vec<PathBuf>,
}

/// What runs images here, with their files in a directory; `None` when there is no runtime, or no right to use one.
pub fn runtime(options: &Options, directory: &Path) -> Result<Option<Oci>, String> {
    // Also where nothing can run images: a wrong command line is wrong on every machine.
    let mirrors = Mirrors::parse(&options.mirrors).map_err(|error| format!("--image-mirror: {error}"))?;
    let Some(runtime) = found() else { return Ok(None) };
    let settings = Settings {
        directory: directory.to_owned(),
        image_dirs: options.directories.clone(),
        mirrors,
        ..Settings::default()
    };
    let images = Arc::new(Images::open(settings).map_err(|error| error.to_string())?);
    tokio::spawn(Images::keep_tidy(Arc::downgrade(&images)));
    Ok(Some(Oci { runtime, images }))
}

/// The runtime of this machine.
pub fn found() -> Option<oci::Runtime> {
    let runtime = std::env::var_os("PATH").and_then(|path| oci::Runtime::find(&path))?;
    let is_allowed = rustix::process::geteuid().is_root() || apart::is_possible();
    is_allowed.then_some(runtime)
}
