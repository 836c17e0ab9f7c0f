//! What registries and image layouts say about images: indexes, manifests and configurations.

use serde::Deserialize;

use super::digest::Digest;

/// The media types that a registry is told we understand.
pub const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// The longest index, manifest or configuration that is read.
pub const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// The largest blob that is fetched.
pub const BLOB_BYTES_MAX: u64 = 16 << 30;
/// The most layers of an image: the file system takes no more.
pub const LAYERS_MAX: usize = 127;

/// Names content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its length.
    pub size: u64,
    /// For which machines; of the entries of an index.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// More about it: names, in a layout.
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// A kind of machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64`.
    #[serde(default)]
    pub architecture: String,
    /// `v8`.
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// This machine.
    pub fn this() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// Whether what was made for `self` runs on `machine`.
    fn fits(&self, machine: &Self) -> bool {
        self.os == machine.os && self.architecture == machine.architecture
    }
}

/// Either of both documents, told apart by what they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A choice of images.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest(Manifest),
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// Why a document can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not what it should be.
    #[error("read {what}: {error}")]
    Read {
        /// Which.
        what: &'static str,
        /// What is wrong.
        error: String,
    },
    /// No image of the index is for this machine.
    #[error("no match for platform in manifest: {os}/{architecture}", os = .0.os, architecture = .0.architecture)]
    NoPlatform(Platform),
    /// An index that leads to another index, and so on.
    #[error("too many indexes one behind the other")]
    TooDeep,
    /// Layers and configuration do not agree.
    #[error("the manifest has {layers} layers, the configuration {diff_ids}")]
    LayerCount {
        /// In the manifest.
        layers: usize,
        /// In the configuration.
        diff_ids: usize,
    },
    /// More layers than the file system takes.
    #[error("the image has {0} layers, more than {LAYERS_MAX}")]
    TooManyLayers(usize),
    /// A layer in a format that is not known.
    #[error("layer of type {0:?} is not supported: only tar archives, plain or packed by gzip or zstd, are")]
    LayerType(String),
    /// Content that is too large.
    #[error("{what} of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Which.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

fn read<'a, T: Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Read { what, error: error.to_string() })
}

impl Document {
    /// Reads an index or a manifest.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Either {
            #[serde(default)]
            manifests: Option<Vec<Descriptor>>,
        }
        match read::<Either>("manifest", bytes)?.manifests {
            Some(manifests) => Ok(Self::Index(manifests)),
            None => Ok(Self::Manifest(read("manifest", bytes)?)),
        }
    }
}

/// The image of an index for a machine: the first that fits; one without a platform fits where nothing else does.
pub fn choose<'a>(index: &'a [Descriptor], machine: &Platform) -> Result<&'a Descriptor, Error> {
    let exact = index.iter().find(|entry| entry.platform.as_ref().is_some_and(|p| p.fits(machine)));
    let any = || index.iter().find(|entry| entry.platform.is_none());
    exact.or_else(any).ok_or_else(|| Error::NoPlatform(machine.clone()))
}

/// What an image says about how it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Run {
    /// `USER`.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// `ENV`, as `NAME=value`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// `ENTRYPOINT`.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// `CMD`.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// `WORKDIR`.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// `STOPSIGNAL`.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
}

/// `null` is as good as nothing: Go writes it.
fn or_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The configuration of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// How it is run.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Run,
    /// Its layers.
    #[serde(default)]
    pub rootfs: RootFs,
}

/// The layers of an image, unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    /// The digests of the archives, not compressed, the lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

impl Config {
    /// Reads one.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        read("image configuration", bytes)
    }
}

/// How a layer is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

impl Packing {
    /// By the media type.
    pub fn of(media_type: &str) -> Result<Self, Error> {
        match media_type {
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar"
            | "application/vnd.docker.image.rootfs.diff.tar" => Ok(Self::Plain),
            "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip" => Ok(Self::Gzip),
            "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd" => Ok(Self::Zstd),
            other => Err(Error::LayerType(other.to_owned())),
        }
    }

    /// By how it begins, where nothing else says so.
    pub fn of_content(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// One layer, ready to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where it is.
    pub blob: Descriptor,
    /// How it is packed.
    pub packing: Packing,
    /// The digest of what is in it.
    pub diff_id: Digest,
}

/// The layers of an image, if manifest and configuration agree on them.
pub fn layers(manifest: &Manifest, config: &Config) -> Result<Vec<Layer>, Error> {
    let (layers, diff_ids) = (manifest.layers.len(), config.rootfs.diff_ids.len());
    if layers != diff_ids {
        return Err(Error::LayerCount { layers, diff_ids });
    }
    if layers > LAYERS_MAX {
        return Err(Error::TooManyLayers(layers));
    }
    let pairs = manifest.layers.iter().zip(&config.rootfs.diff_ids);
    pairs
        .map(|(blob, diff_id)| {
            within("layer", blob.size, BLOB_BYTES_MAX)?;
            let packing = Packing::of(&blob.media_type)?;
            Ok(Layer { blob: blob.clone(), packing, diff_id: diff_id.clone() })
        })
        .collect()
}

/// Refuses what is larger than it may be.
pub fn within(what: &'static str, size: u64, limit: u64) -> Result<(), Error> {
    if size > limit { Err(Error::TooLarge { what, size, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(letter: &str) -> String {
        format!("sha256:{}", letter.repeat(64))
    }

    fn document(value: serde_json::Value) -> Result<Document, Error> {
        Document::read(value.to_string().as_bytes())
    }

    #[test]
    fn the_image_for_this_machine_is_chosen() {
        let entry = |letter: &str, platform: serde_json::Value| json!({"digest": digest(letter), "size": 1, "mediaType": "m", "platform": platform});
        let arm = entry("a", json!({"os": "linux", "architecture": "arm64", "variant": "v8"}));
        let amd = entry("b", json!({"os": "linux", "architecture": "amd64"}));
        let windows = entry("c", json!({"os": "windows", "architecture": "amd64"}));
        let bare = entry("d", json!(null));
        let machine = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
        for (entries, want) in [
            (json!([arm, amd]), Ok(digest("b"))),
            (json!([windows, bare]), Ok(digest("d"))),
            (json!([arm, windows]), Err("no match for platform in manifest: linux/amd64".to_owned())),
            (json!([]), Err("no match for platform in manifest: linux/amd64".to_owned())),
        ] {
            let Ok(Document::Index(index)) = document(json!({"manifests": entries})) else {
                panic!("an index")
            };
            let got = choose(&index, &machine).map(|entry| entry.digest.to_string());
            assert_eq!(got.map_err(|error| error.to_string()), want, "{entries}");
        }
    }

    #[test]
    fn layers_have_to_be_those_of_the_configuration() {
        let layer = |kind: &str, size: u64| json!({"mediaType": kind, "digest": digest("a"), "size": size});
        let gzip = "application/vnd.oci.image.layer.v1.tar+gzip";
        for (layers, diff_ids, want) in [
            (vec![layer(gzip, 1)], 1, Ok(vec![Packing::Gzip])),
            (vec![layer("application/vnd.oci.image.layer.v1.tar", 1)], 1, Ok(vec![Packing::Plain])),
            (vec![layer(gzip, 1)], 2, Err("the manifest has 1 layers, the configuration 2".to_owned())),
            (vec![layer("application/vnd.oci.image.layer.v1.tar+zstd", 1)], 1, Ok(vec![Packing::Zstd])),
            (vec![layer("application/vnd.docker.image.rootfs.diff.tar.zstd", 1)], 1, Ok(vec![Packing::Zstd])),
            (
                vec![layer("application/vnd.oci.image.layer.v1.tar+xz", 1)],
                1,
                Err("layer of type \"application/vnd.oci.image.layer.v1.tar+xz\" is not supported: only tar archives, \
                     plain or packed by gzip or zstd, are"
                    .to_owned()),
            ),
            (
                vec![layer(gzip, BLOB_BYTES_MAX + 1)],
                1,
                Err("layer of 17179869185 bytes is larger than the limit of 17179869184".to_owned()),
            ),
            (vec![layer(gzip, 1); 128], 128, Err("the image has 128 layers, more than 127".to_owned())),
        ] {
            let text = json!({"config": {"digest": digest("c"), "size": 1}, "layers": layers});
            let Ok(Document::Manifest(manifest)) = document(text) else { panic!("a manifest") };
            let diff_ids = vec![Digest::parse(&digest("e")).expect("a digest"); diff_ids];
            let config = Config { rootfs: RootFs { diff_ids }, ..Config::default() };
            let got = super::layers(&manifest, &config);
            let got = got.map(|layers| layers.into_iter().map(|layer| layer.packing).collect::<Vec<_>>());
            assert_eq!(got.map_err(|error| error.to_string()), want);
        }
    }

    #[test]
    fn a_configuration_may_leave_out_everything_or_say_null() {
        let full = json!({
            "architecture": "amd64",
            "config": {"User": "1:2", "Env": ["A=b"], "Entrypoint": ["/e"], "Cmd": null, "WorkingDir": "/w"},
            "rootfs": {"type": "layers", "diff_ids": [digest("a")]},
        });
        let run = Run {
            user: "1:2".into(),
            env: vec!["A=b".into()],
            entrypoint: vec!["/e".into()],
            working_dir: "/w".into(),
            ..Run::default()
        };
        let diff_ids = vec![Digest::parse(&digest("a")).expect("a digest")];
        let want = Config { config: run, rootfs: RootFs { diff_ids } };
        assert_eq!(Config::read(full.to_string().as_bytes()), Ok(want));
        assert_eq!(Config::read(b"{\"config\": null}"), Ok(Config::default()));
        assert!(Config::read(b"[1]").is_err());
    }
}
