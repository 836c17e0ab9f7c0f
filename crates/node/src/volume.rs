//! What the volumes of a pod hold: directories, parts of this machine, or files made from objects of the API.
//!
//! Nothing is fetched or written here: [`references`] and [`tokens`] say what is needed, the caller brings it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use windlass_api::quantity::Quantity;

use crate::env::{self, Facts, Reference};

/// The mode of a file when nothing is said about it.
const MODE_DEFAULT: i32 = 0o644;

/// Objects that the caller found, each with its data.
pub type Objects = BTreeMap<Reference, BTreeMap<String, Vec<u8>>>;
/// Tokens that the caller got, by the volume and path that they are for.
pub type Tokens = BTreeMap<(String, String), Vec<u8>>;

/// A token that a volume needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish {
    /// The volume.
    pub volume: String,
    /// The path in it.
    pub path: String,
    /// For whom the token is; `None`: the API server.
    pub audience: Option<String>,
    /// How long it is to be valid.
    pub seconds: i64,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Who may read it.
    pub mode: u32,
}

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An empty directory, which goes with the pod.
    Empty {
        /// It is in memory.
        is_memory: bool,
        /// How many bytes it may hold.
        limit: Option<i64>,
    },
    /// A part of this machine.
    Host {
        /// Where it is.
        path: String,
        /// What it has to be, as the API says it; empty: anything.
        kind: String,
    },
    /// Files, by their path. They can't be written to.
    Files(BTreeMap<String, File>),
}

/// Why a volume can't be had; upstream's texts where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An object is not there.
    #[error("{kind} {name:?} not found")]
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An object does not have a key that is asked for.
    #[error("references non-existent {kind} key: {key}")]
    NoKey {
        /// `config` or `secret`.
        kind: &'static str,
        /// The key.
        key: String,
    },
    /// A field or resource of the pod that can't be shown.
    #[error(transparent)]
    Field(#[from] env::Error),
    /// A path that leads out of the volume.
    #[error("invalid path {0:?}")]
    Path(String),
    /// A token that was not given.
    #[error("failed to fetch token: {0}")]
    Token(String),
    /// A kind of volume that this node does not have.
    #[error(
        "volumes of kind {0} are not supported by this node: use emptyDir, hostPath, configMap, secret, downwardAPI or projected"
    )]
    Unsupported(&'static str),
}

/// The objects that a volume needs, those that may be missing too.
pub fn references(volume: &Volume) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    found.extend(volume.config_map.iter().map(|map| Reference::ConfigMap(map.name.clone())));
    found.extend(volume.secret.iter().filter_map(|secret| secret.secret_name.clone()).map(Reference::Secret));
    for source in projections(volume) {
        found.extend(source.config_map.iter().map(|map| Reference::ConfigMap(map.name.clone())));
        found.extend(source.secret.iter().map(|secret| Reference::Secret(secret.name.clone())));
    }
    found
}

/// The tokens that a volume needs.
pub fn tokens(volume: &Volume) -> Vec<TokenWish> {
    let wish = |token: &ServiceAccountTokenProjection| TokenWish {
        volume: volume.name.clone(),
        path: token.path.clone(),
        audience: token.audience.clone().filter(|audience| !audience.is_empty()),
        seconds: token.expiration_seconds.unwrap_or(3600),
    };
    projections(volume).filter_map(|source| source.service_account_token.as_ref()).map(wish).collect()
}

/// Whether a volume holds what nobody else may know: a Secret or a token.
pub fn is_secret(volume: &Volume) -> bool {
    let is_one =
        |source: &VolumeProjection| source.secret.is_some() || source.service_account_token.is_some();
    volume.secret.is_some() || projections(volume).any(is_one)
}

fn projections(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

/// What a volume of a pod holds.
pub fn content(
    pod: &Pod,
    volume: &Volume,
    objects: &Objects,
    tokens: &Tokens,
    facts: &Facts<'_>,
) -> Result<Content, Error> {
    let maker = Maker { pod, volume, objects, tokens, facts };
    if let Some(empty) = &volume.empty_dir {
        let limit = empty.size_limit.as_ref().and_then(|limit| limit.0.parse::<Quantity>().ok());
        return Ok(Content::Empty {
            is_memory: empty.medium.as_deref() == Some("Memory"),
            limit: limit.filter(|limit| !limit.is_zero()).map(|limit| limit.value()),
        });
    }
    if let Some(host) = &volume.host_path {
        return Ok(Content::Host { path: host.path.clone(), kind: host.type_.clone().unwrap_or_default() });
    }
    let mut files = BTreeMap::new();
    if let Some(map) = &volume.config_map {
        let reference = Reference::ConfigMap(map.name.clone());
        maker.object(&mut files, reference, map.items.as_deref(), map.optional, map.default_mode)?;
    } else if let Some(secret) = &volume.secret {
        let reference = Reference::Secret(secret.secret_name.clone().unwrap_or_default());
        maker.object(&mut files, reference, secret.items.as_deref(), secret.optional, secret.default_mode)?;
    } else if let Some(downward) = &volume.downward_api {
        maker.downward(&mut files, downward.items.as_deref(), downward.default_mode)?;
    } else if let Some(projected) = &volume.projected {
        for source in projections(volume) {
            maker.projection(&mut files, source, projected.default_mode)?;
        }
    } else {
        return Err(Error::Unsupported(kind(volume)));
    }
    Ok(Content::Files(files))
}

fn kind(volume: &Volume) -> &'static str {
    let kinds = [
        (volume.persistent_volume_claim.is_some(), "persistentVolumeClaim"),
        (volume.ephemeral.is_some(), "ephemeral"),
        (volume.csi.is_some(), "csi"),
        (volume.nfs.is_some(), "nfs"),
        (volume.image.is_some(), "image"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.fc.is_some(), "fc"),
    ];
    kinds.into_iter().find(|(is_it, _)| *is_it).map_or("another", |(_, kind)| kind)
}

struct Maker<'a> {
    pod: &'a Pod,
    volume: &'a Volume,
    objects: &'a Objects,
    tokens: &'a Tokens,
    facts: &'a Facts<'a>,
}

type Files = BTreeMap<String, File>;

impl Maker<'_> {
    fn object(
        &self,
        files: &mut Files,
        reference: Reference,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        let is_optional = optional == Some(true);
        let (kind, short, name) = match &reference {
            Reference::ConfigMap(name) => ("configmap", "config", name),
            Reference::Secret(name) => ("secret", "secret", name),
        };
        let data = match self.objects.get(&reference) {
            Some(data) => data,
            None if is_optional => return Ok(()),
            None => return Err(Error::NoObject { kind, name: name.clone() }),
        };
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, bytes) in data {
                put(files, key, bytes.clone(), None, mode)?;
            }
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(bytes) => put(files, &item.path, bytes.clone(), item.mode, mode)?,
                None if is_optional => {}
                None => return Err(Error::NoKey { kind: short, key: item.key.clone() }),
            }
        }
        Ok(())
    }

    fn downward(
        &self,
        files: &mut Files,
        items: Option<&[DownwardAPIVolumeFile]>,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        for item in items.unwrap_or_default() {
            let text = if let Some(field) = &item.field_ref {
                env::volume_field(self.pod, &field.field_path, self.facts)?
            } else if let Some(resource) = &item.resource_field_ref {
                env::resource_of_named(self.pod, resource, self.facts)?
            } else {
                String::new()
            };
            put(files, &item.path, text.into_bytes(), item.mode, mode)?;
        }
        Ok(())
    }

    fn projection(
        &self,
        files: &mut Files,
        source: &VolumeProjection,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        if let Some(map) = &source.config_map {
            let reference = Reference::ConfigMap(map.name.clone());
            self.object(files, reference, map.items.as_deref(), map.optional, mode)?;
        }
        if let Some(secret) = &source.secret {
            let reference = Reference::Secret(secret.name.clone());
            self.object(files, reference, secret.items.as_deref(), secret.optional, mode)?;
        }
        if let Some(downward) = &source.downward_api {
            self.downward(files, downward.items.as_deref(), mode)?;
        }
        if let Some(token) = &source.service_account_token {
            let key = (self.volume.name.clone(), token.path.clone());
            let bytes = self.tokens.get(&key).ok_or_else(|| Error::Token("none was given".into()))?;
            put(files, &token.path, bytes.clone(), None, mode)?;
        }
        if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
            return Err(Error::Unsupported("projected from a certificate"));
        }
        Ok(())
    }
}

fn put(
    files: &mut Files,
    path: &str,
    bytes: Vec<u8>,
    own: Option<i32>,
    default: Option<i32>,
) -> Result<(), Error> {
    let is_fine = |part: &str| !matches!(part, "" | "." | "..");
    if !path.split('/').all(is_fine) || path.starts_with("..") {
        return Err(Error::Path(path.to_owned()));
    }
    let mode = own.or(default).unwrap_or(MODE_DEFAULT);
    files.insert(path.to_owned(), File { bytes, mode: u32::try_from(mode).unwrap_or(0o644) & 0o777 });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found() -> Objects {
        let data = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).into(), value.as_bytes().to_vec())).collect()
        };
        BTreeMap::from([
            (Reference::ConfigMap("m".into()), data(&[("a", "1"), ("b", "2")])),
            (Reference::Secret("s".into()), data(&[("k", "secret")])),
        ])
    }

    fn content_of(volume: Value) -> Result<Content, String> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "x\"y\n"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]},
        }));
        let mut volume = volume;
        volume["name"] = json!("v");
        let volume = serde_json::from_value(volume).expect("a volume");
        let tokens = BTreeMap::from([(("v".into(), "token".into()), b"t0k3n".to_vec())]);
        let facts =
            Facts { ip: "127.0.0.1", cpu: Quantity::from_value(4), memory: Quantity::from_value(1 << 30) };
        content(&pod.expect("a pod"), &volume, &found(), &tokens, &facts).map_err(|error| error.to_string())
    }

    fn files(list: &[(&str, &str, u32)]) -> Result<Content, String> {
        let file = |(path, text, mode): &(&str, &str, u32)| {
            ((*path).into(), File { bytes: text.as_bytes().to_vec(), mode: *mode })
        };
        Ok(Content::Files(list.iter().map(file).collect()))
    }

    #[test]
    fn directories_are_as_asked_for() {
        for (volume, want) in [
            (json!({"emptyDir": {}}), Content::Empty { is_memory: false, limit: None }),
            (
                json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
                Content::Empty { is_memory: true, limit: Some(1 << 20) },
            ),
            (
                json!({"hostPath": {"path": "/x", "type": "Directory"}}),
                Content::Host { path: "/x".into(), kind: "Directory".into() },
            ),
        ] {
            assert_eq!(content_of(volume.clone()), Ok(want), "{volume}");
        }
    }

    #[test]
    fn files_come_from_objects_whole_or_by_key() {
        for (volume, want) in [
            (json!({"configMap": {"name": "m"}}), files(&[("a", "1", 0o644), ("b", "2", 0o644)])),
            (
                json!({"configMap": {"name": "m", "defaultMode": 0o400, "items": [
                    {"key": "a", "path": "x/y"}, {"key": "b", "path": "z", "mode": 0o755},
                ]}}),
                files(&[("x/y", "1", 0o400), ("z", "2", 0o755)]),
            ),
            (json!({"secret": {"secretName": "s"}}), files(&[("k", "secret", 0o644)])),
            (json!({"secret": {"secretName": "none", "optional": true}}), files(&[])),
            (
                json!({"configMap": {"name": "m", "optional": true, "items": [{"key": "none", "path": "x"}]}}),
                files(&[]),
            ),
            (json!({"configMap": {"name": "none"}}), Err("configmap \"none\" not found".into())),
            (
                json!({"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}),
                Err("references non-existent secret key: z".into()),
            ),
            (
                json!({"configMap": {"name": "m", "items": [{"key": "a", "path": "../x"}]}}),
                Err("invalid path \"../x\"".into()),
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "c"}}),
                Err("volumes of kind persistentVolumeClaim are not supported by this node: use emptyDir, hostPath, \
                     configMap, secret, downwardAPI or projected"
                    .into()),
            ),
        ] {
            assert_eq!(content_of(volume.clone()), want, "{volume}");
        }
    }

    #[test]
    fn the_pod_itself_and_tokens_can_be_files() {
        let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
        let items = json!([
            field("labels", "metadata.labels"),
            field("name", "metadata.name"),
            {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu", "divisor": "1m"}},
        ]);
        let want =
            [("cpu", "250", 0o644), ("labels", "a=\"x\\\"y\\n\"\nb=\"2\"", 0o644), ("name", "p", 0o644)];
        assert_eq!(content_of(json!({"downwardAPI": {"items": items}})), files(&want));
        let all = json!({"projected": {"defaultMode": 0o440, "sources": [
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "a"}]}},
            {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [field("uid", "metadata.uid")]}},
            {"serviceAccountToken": {"path": "token"}},
        ]}});
        let want =
            [("a", "1", 0o440), ("k", "secret", 0o440), ("token", "t0k3n", 0o440), ("uid", "u", 0o440)];
        assert_eq!(content_of(all), files(&want));
        let none = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "other"}}]}});
        assert_eq!(content_of(none), Err("failed to fetch token: none was given".into()));
    }

    #[test]
    fn secrets_and_tokens_are_secret() {
        let projected =
            |source: Value| json!({"projected": {"sources": [{"configMap": {"name": "m"}}, source]}});
        for (volume, want) in [
            (json!({"secret": {"secretName": "s"}}), true),
            (projected(json!({"secret": {"name": "s"}})), true),
            (projected(json!({"serviceAccountToken": {"path": "t"}})), true),
            (projected(json!({"configMap": {"name": "n"}})), false),
            (json!({"configMap": {"name": "m"}}), false),
            (json!({"downwardAPI": {}}), false),
            (json!({"emptyDir": {}}), false),
        ] {
            let mut volume = volume;
            volume["name"] = json!("v");
            let volume = serde_json::from_value(volume).expect("a volume");
            assert_eq!(is_secret(&volume), want, "{volume:?}");
        }
    }

    #[test]
    fn what_a_volume_needs_is_known_before() {
        let volume = serde_json::from_value(json!({"name": "v", "projected": {"sources": [
            {"configMap": {"name": "m"}}, {"secret": {"name": "s"}},
            {"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 600}},
        ]}}));
        let volume = volume.expect("a volume");
        let want = [Reference::ConfigMap("m".into()), Reference::Secret("s".into())];
        assert_eq!(references(&volume), BTreeSet::from(want));
        let wish =
            TokenWish { volume: "v".into(), path: "t".into(), audience: Some("vault".into()), seconds: 600 };
        assert_eq!(tokens(&volume), [wish]);
    }
}
