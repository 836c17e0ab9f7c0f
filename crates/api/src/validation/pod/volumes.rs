//! Rules for volumes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EphemeralVolumeSource,
    HostPathVolumeSource, ImageVolumeSource, KeyToPath, NFSVolumeSource, ProjectedVolumeSource,
    SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use super::text::{no_backsteps, unreserved_path};
use super::{Context, containers, env, list, member_of, required, text_of};
use crate::field::{Error, Errors, Path};
use crate::quantity::Quantity;
use crate::validation::meta::{dns1123_label, dns1123_subdomain, each};

const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// The volumes that containers may mount, by name, and what is wrong with the others.
pub(super) fn validate_volumes<'a>(
    context: &Context<'a>,
    path: &Path,
) -> (BTreeMap<&'a str, &'a Volume>, Errors) {
    let (mut named, mut errors) = (BTreeMap::new(), Errors::new());
    let volumes = list(&context.spec.volumes);
    let created = created_claims(context, volumes);
    for (i, volume) in volumes.iter().enumerate() {
        let at = path.index(i);
        let name_at = at.child("name");
        let mut wrong = validate_source(context, volume, &at);
        match volume.name.as_str() {
            "" => wrong.push(Error::required(&name_at, "")),
            name => wrong.extend(each(&name_at, name, dns1123_label(name))),
        }
        if named.contains_key(volume.name.as_str()) {
            wrong.push(Error::duplicate(&name_at, volume.name.as_str()));
        }
        if wrong.is_empty() {
            named.insert(volume.name.as_str(), volume);
        }
        errors.extend(wrong);
        if let Some(claim) = &volume.persistent_volume_claim
            && created.contains(&claim.claim_name)
        {
            let at = at.child("persistentVolumeClaim.claimName");
            let text = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(Error::invalid(&at, claim.claim_name.as_str(), text));
        }
    }
    (named, errors)
}

// The claims that will be made for this pod, if it has a name.
fn created_claims(context: &Context<'_>, volumes: &[Volume]) -> Vec<String> {
    let pod = context.meta.map_or("", |meta| text_of(&meta.name));
    let ephemeral = volumes.iter().filter(|volume| volume.ephemeral.is_some() && !pod.is_empty());
    ephemeral.map(|volume| format!("{pod}-{}", volume.name)).collect()
}

fn validate_source(context: &Context<'_>, volume: &Volume, path: &Path) -> Errors {
    let limit = volume.empty_dir.as_ref().and_then(|source| source.size_limit.as_ref());
    let is_negative = limit.is_some_and(|text| text.0.parse::<Quantity>().is_ok_and(Quantity::is_negative));
    let mut errors = Errors::new();
    if is_negative {
        let text = "SizeLimit field must be a valid resource quantity";
        errors.push(Error::forbidden(&path.child("emptyDir.sizeLimit"), text));
    }
    let mut sources = sources(context, volume, path).into_iter().flatten();
    match sources.next() {
        None => errors.push(Error::required(path, "must specify a volume type")),
        Some((_, wrong)) => errors.extend(wrong),
    }
    for (name, _) in sources {
        errors.push(Error::forbidden(&path.child(name), "may not specify more than 1 volume type"));
    }
    errors
}

// All sources in upstream's order, with upstream's names for them in the error about a second one.
fn sources(context: &Context<'_>, volume: &Volume, path: &Path) -> Vec<Option<(&'static str, Errors)>> {
    fn some<T>(
        source: &Option<T>,
        name: &'static str,
        rule: impl Fn(&T) -> Errors,
    ) -> Option<(&'static str, Errors)> {
        source.as_ref().map(|source| (name, rule(source)))
    }
    let at = |name: &str| path.child(name);
    vec![
        some(&volume.empty_dir, "emptyDir", |_| Errors::new()),
        some(&volume.host_path, "hostPath", |source| validate_host_path(source, &at("hostPath"))),
        some(&volume.git_repo, "gitRepo", |_| Errors::new()),
        some(&volume.gce_persistent_disk, "gcePersistentDisk", |_| Errors::new()),
        some(&volume.aws_elastic_block_store, "awsElasticBlockStore", |_| Errors::new()),
        some(&volume.secret, "secret", |source| validate_secret(source, &at("secret"))),
        some(&volume.nfs, "nfs", |source| validate_nfs(source, &at("nfs"))),
        some(&volume.iscsi, "iscsi", |_| Errors::new()),
        some(&volume.glusterfs, "glusterfs", |_| Errors::new()),
        some(&volume.flocker, "flocker", |_| Errors::new()),
        some(&volume.persistent_volume_claim, "persistentVolumeClaim", |claim| {
            required(&at("persistentVolumeClaim.claimName"), &claim.claim_name)
        }),
        some(&volume.rbd, "rbd", |_| Errors::new()),
        some(&volume.cinder, "cinder", |_| Errors::new()),
        some(&volume.cephfs, "cephFS", |_| Errors::new()),
        some(&volume.quobyte, "quobyte", |_| Errors::new()),
        some(&volume.downward_api, "downwarAPI", |source| validate_downward(source, &at("downwardAPI"))),
        some(&volume.fc, "fc", |_| Errors::new()),
        some(&volume.flex_volume, "flexVolume", |_| Errors::new()),
        some(&volume.config_map, "configMap", |source| validate_config_map(source, &at("configMap"))),
        some(&volume.azure_file, "azureFile", |_| Errors::new()),
        some(&volume.vsphere_volume, "vsphereVolume", |_| Errors::new()),
        some(&volume.photon_persistent_disk, "photonPersistentDisk", |_| Errors::new()),
        some(&volume.portworx_volume, "portworxVolume", |_| Errors::new()),
        some(&volume.azure_disk, "azureDisk", |_| Errors::new()),
        some(&volume.storageos, "storageos", |_| Errors::new()),
        some(&volume.projected, "projected", |source| validate_projected(source, &at("projected"))),
        some(&volume.scale_io, "scaleIO", |_| Errors::new()),
        some(&volume.csi, "csi", |_| Errors::new()),
        some(&volume.ephemeral, "ephemeral", |source| {
            validate_ephemeral(context, source, &volume.name, path)
        }),
        some(&volume.image, "image", |source| validate_image(context, source, &at("image"))),
    ]
}

fn validate_host_path(source: &HostPathVolumeSource, path: &Path) -> Errors {
    let at = path.child("path");
    if source.path.is_empty() {
        return vec![Error::required(&at, "")];
    }
    let mut errors = no_backsteps(&source.path, &at);
    errors.extend(member_of(&path.child("type"), text_of(&source.type_), &HOST_PATH_TYPES));
    errors
}

fn validate_nfs(source: &NFSVolumeSource, path: &Path) -> Errors {
    let mut errors = required(&path.child("server"), &source.server);
    let at = path.child("path");
    errors.extend(required(&at, &source.path));
    if !source.path.starts_with('/') {
        errors.push(Error::invalid(&at, source.path.as_str(), "must be an absolute path"));
    }
    errors
}

fn validate_secret(source: &SecretVolumeSource, path: &Path) -> Errors {
    let mut errors = required(&path.child("secretName"), text_of(&source.secret_name));
    errors.extend(validate_mode(source.default_mode, &path.child("defaultMode")));
    errors.extend(validate_items(list(&source.items), &path.child("items")));
    errors
}

fn validate_config_map(source: &ConfigMapVolumeSource, path: &Path) -> Errors {
    let mut errors = required(&path.child("name"), &source.name);
    errors.extend(validate_mode(source.default_mode, &path.child("defaultMode")));
    errors.extend(validate_items(list(&source.items), &path.child("items")));
    errors
}

fn validate_mode(mode: Option<i32>, path: &Path) -> Errors {
    match mode {
        Some(mode) if !(0..=0o777).contains(&mode) => {
            vec![Error::invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")]
        }
        _ => Errors::new(),
    }
}

fn validate_items(items: &[KeyToPath], path: &Path) -> Errors {
    items.iter().enumerate().flat_map(|(i, item)| validate_item(item, &path.index(i))).collect()
}

fn validate_item(item: &KeyToPath, path: &Path) -> Errors {
    let mut errors = required(&path.child("key"), &item.key);
    errors.extend(required(&path.child("path"), &item.path));
    errors.extend(unreserved_path(&item.path, &path.child("path")));
    errors.extend(validate_mode(item.mode, &path.child("mode")));
    errors
}

fn validate_downward(source: &DownwardAPIVolumeSource, path: &Path) -> Errors {
    let mut errors = validate_mode(source.default_mode, &path.child("defaultMode"));
    errors.extend(list(&source.items).iter().flat_map(|file| validate_downward_file(file, path)));
    errors
}

// Upstream names the source, not the file.
fn validate_downward_file(file: &DownwardAPIVolumeFile, path: &Path) -> Errors {
    let mut errors = required(&path.child("path"), &file.path);
    errors.extend(unreserved_path(&file.path, &path.child("path")));
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), resource) => {
            errors.extend(env::validate_field_ref(field, &env::FILE_FIELDS, &path.child("fieldRef")));
            if resource.is_some() {
                let text = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(Error::invalid(path, "resource", text));
            }
        }
        (None, Some(resource)) => {
            errors.extend(env::validate_resource_ref(resource, true, &path.child("resourceFieldRef")));
        }
        (None, None) => {
            errors.push(Error::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    errors.extend(validate_mode(file.mode, &path.child("mode")));
    errors
}

fn validate_projected(source: &ProjectedVolumeSource, path: &Path) -> Errors {
    let mut errors = validate_mode(source.default_mode, &path.child("defaultMode"));
    let mut taken = BTreeSet::new();
    for (i, part) in list(&source.sources).iter().enumerate() {
        errors.extend(validate_projection(part, &mut taken, path, &path.child("sources").index(i)));
    }
    errors
}

fn validate_projection<'a>(
    part: &'a VolumeProjection,
    taken: &mut BTreeSet<&'a str>,
    path: &Path,
    at: &Path,
) -> Errors {
    let (mut errors, mut count) = (Errors::new(), 0);
    let mut take = |errors: &mut Errors, file: &'a str, shown: &str| {
        if !file.is_empty() && !taken.insert(file) {
            errors.push(Error::invalid(path, shown, "conflicting duplicate paths"));
        }
    };
    let secret = part.secret.as_ref().map(|source| ("secret", &source.name, list(&source.items)));
    let config_map = part.config_map.as_ref().map(|source| ("configMap", &source.name, list(&source.items)));
    for (field, name, items) in [secret, config_map].into_iter().flatten() {
        count += 1;
        let at = at.child(field);
        errors.extend(required(&at.child("name"), name));
        for (i, item) in items.iter().enumerate() {
            errors.extend(validate_item(item, &at.child("items").index(i)));
            take(&mut errors, &item.path, name);
        }
    }
    if let Some(source) = &part.downward_api {
        count += 1;
        for file in list(&source.items) {
            errors.extend(validate_downward_file(file, &at.child("downwardAPI")));
            take(&mut errors, &file.path, &file.path);
        }
    }
    if let Some(token) = &part.service_account_token {
        count += 1;
        errors.extend(validate_token(token, path, &at.child("serviceAccountToken")));
    }
    count += usize::from(part.cluster_trust_bundle.is_some()) + usize::from(part.pod_certificate.is_some());
    if count > 1 {
        errors.push(Error::forbidden(at, "may not specify more than 1 volume type per source"));
    }
    errors
}

fn validate_token(token: &ServiceAccountTokenProjection, path: &Path, at: &Path) -> Errors {
    let mut errors = Errors::new();
    let seconds = token.expiration_seconds.unwrap_or_default();
    let seconds_at = at.child("expirationSeconds");
    if seconds < TOKEN_SECONDS_MIN {
        errors.push(Error::invalid(&seconds_at, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > TOKEN_SECONDS_MAX {
        errors.push(Error::invalid(
            &seconds_at,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    // Upstream names the volume here.
    errors.extend(required(&path.child("path"), &token.path));
    errors.extend(unreserved_path(&token.path, &path.child("path")));
    errors
}

/// Checks that no volume wants a token of a service account that the pod does not have.
pub(super) fn forbid_tokens(volumes: &[Volume], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, volume) in volumes.iter().enumerate() {
        let sources = volume.projected.as_ref().map_or(&[][..], |projected| list(&projected.sources));
        for (j, _) in sources.iter().enumerate().filter(|(_, part)| part.service_account_token.is_some()) {
            let at = path.index(i).child("projected.sources").index(j).child("serviceAccountToken");
            errors.push(Error::forbidden(&at, "must not be specified when serviceAccountName is not set"));
        }
    }
    errors
}

fn validate_ephemeral(
    context: &Context<'_>,
    source: &EphemeralVolumeSource,
    name: &str,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    if source.volume_claim_template.is_none() {
        errors.push(Error::required(&path.child("ephemeral.volumeClaimTemplate"), ""));
    }
    let pod = context.meta.map_or("", |meta| text_of(&meta.name));
    if !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for text in dns1123_subdomain(&claim) {
            errors.push(Error::invalid(&path.child("name"), name, format!("PVC name {claim:?}: {text}")));
        }
    }
    errors
}

fn validate_image(context: &Context<'_>, source: &ImageVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if context.is_pod() {
        errors.extend(required(&path.child("reference"), text_of(&source.reference)));
    }
    errors.extend(containers::validate_pull_policy(text_of(&source.pull_policy), &path.child("pullPolicy")));
    errors
}
