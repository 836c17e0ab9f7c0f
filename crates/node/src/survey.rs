//! Looks at what the node has left and what its pods use and keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, PodSpec};
use windlass_api::quantity::Quantity;
use windlass_api::resources::aggregate;

use crate::events;
use crate::logs;
use crate::machine::disk_usage;
use crate::mounts;
use crate::oci::bundle;
use crate::pod::Context;
use crate::prepare;
use crate::pressure::{self, Candidate, DISK_PRESSURE, Part, Place, Pressure, Shortage, Signal, Stored};

/// What has to be known about a pod that may have to go.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) about: ObjectReference,
    pub(crate) priority: i32,
    uid: String,
    parts: Vec<PartSpec>,
    /// Its emptyDir volumes on the disk: name, place, limit.
    directories: Vec<(String, PathBuf, Option<pressure::Limit>)>,
    /// What all that it keeps on the disk may take.
    storage_limit: Option<i64>,
}

#[derive(Clone, Debug)]
struct PartSpec {
    name: String,
    logs: PathBuf,
    /// Of the pod's containers of images.
    bundles: PathBuf,
    /// Of all containers of the pod: what they say when they end.
    messages: PathBuf,
    memory: pressure::Limit,
    storage: pressure::Limit,
    storage_limit: Option<pressure::Limit>,
}

fn amount(container: &Container, is_limit: bool, resource: &str) -> Option<pressure::Limit> {
    let resources = container.resources.as_ref()?;
    let list = if is_limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
    let text = &list?.get(resource)?.0;
    Some((text.parse::<Quantity>().ok()?.value(), text.clone()))
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

impl Spot {
    pub(crate) fn of(context: &Context, pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let none = || (0, "0".to_owned());
        let part = |container: &Container| PartSpec {
            name: container.name.clone(),
            logs: logs::directory(&context.logs, prepare::pod_name(pod), &container.name),
            bundles: bundle::directory(&context.pod_directory(pod)),
            messages: mounts::messages(&context.pod_directory(pod)),
            memory: amount(container, false, "memory").unwrap_or_else(none),
            storage: amount(container, false, "ephemeral-storage").unwrap_or_else(none),
            storage_limit: amount(container, true, "ephemeral-storage"),
        };
        let volumes = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
        let directories = volumes.filter_map(|volume| {
            let empty = volume.empty_dir.as_ref()?;
            let limit = empty.size_limit.as_ref().and_then(|limit| {
                let bytes = limit.0.parse::<Quantity>().ok().filter(|limit| !limit.is_zero())?.value();
                Some((bytes, limit.0.clone()))
            });
            let path = context.pod_directory(pod).join("volumes").join(&volume.name);
            // What is in memory is bounded by the kernel. Who is not root has it on the disk.
            let is_in_memory = empty.medium.as_deref() == Some("Memory") && !context.is_rootless();
            (!is_in_memory).then(|| (volume.name.clone(), path, limit))
        });
        let limits = spec.map(|spec| aggregate(spec, |resources| resources.limits.as_ref()));
        let storage_limit = limits.and_then(|limits| Some(limits.get("ephemeral-storage")?.value()));
        Self {
            about: events::about(pod, None),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            parts: spec.into_iter().flat_map(containers).map(part).collect(),
            directories: directories.collect(),
            storage_limit,
        }
    }

    /// Whether the pod is bounded in what it keeps on the disk.
    pub(crate) fn has_limits(&self) -> bool {
        self.storage_limit.is_some() || self.directories.iter().any(|(_, _, limit)| limit.is_some())
    }

    fn stored(&self) -> Stored {
        let used = |path: &Path| disk_usage(path).0;
        let directories: Vec<_> =
            self.directories.iter().map(|(name, path, limit)| (name, used(path), limit)).collect();
        Stored {
            limit: self.storage_limit,
            in_directories: directories.iter().map(|(_, used, _)| used).sum(),
            containers: self
                .parts
                .iter()
                .map(|part| {
                    let used = part.paths().iter().map(|path| used(path)).sum();
                    (part.name.clone(), used, part.storage_limit.clone())
                })
                .collect(),
            directories: directories
                .into_iter()
                .filter_map(|(name, used, limit)| {
                    let (limit, text) = limit.clone()?;
                    Some((name.clone(), used, limit, text))
                })
                .collect(),
        }
    }

    /// Where its containers are, and behind them its volumes.
    fn places(&self, context: &Context) -> Vec<Place<'_>> {
        let pod = self.about.name.as_deref().unwrap_or_default();
        let containers = self.parts.iter().map(|part| Place {
            pod,
            pid: context.running.pid(&self.uid, &part.name),
            paths: part.paths(),
        });
        let volumes = self.directories.iter().map(|(_, path, _)| path.clone()).collect();
        containers.chain([Place { pod, pid: None, paths: volumes }]).collect()
    }

    /// `used`: by each of its places.
    fn candidate(&self, signal: Signal, used: &[i64]) -> Candidate {
        let parts = self.parts.iter().zip(used).map(|(part, used)| {
            let (request, request_text) = match signal {
                Signal::Memory => part.memory.clone(),
                Signal::Disk | Signal::Images => part.storage.clone(),
                Signal::Inodes | Signal::ImageInodes | Signal::Pids => (0, "0".to_owned()),
            };
            Part { name: part.name.clone(), used: *used, request, request_text }
        });
        Candidate {
            uid: self.uid.clone(),
            priority: self.priority,
            parts: parts.collect(),
            volumes: used.last().copied().unwrap_or(0),
        }
    }
}

impl PartSpec {
    /// All that a container has on the disk but volumes.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = bundle::written(&self.bundles, &self.name);
        paths.extend(bundle::of_container(&self.messages, &self.name));
        paths.push(self.logs.clone());
        paths
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What is low, and since when.
    pub(crate) pressure: Pressure,
    /// What a pod has to go for.
    pub(crate) shortage: Option<Shortage>,
    /// Pods that keep more than they may, and what they are told.
    pub(crate) excess: Vec<(String, String)>,
    /// The pod that has to go, and what it is told.
    pub(crate) victim: Option<(String, String)>,
}

/// Looks; `pressure` is what was known before. May take a while: not for a thread that others wait for.
pub(crate) fn look(context: &Context, mut pressure: Pressure, pods: &[Arc<Spot>]) -> Findings {
    let excess =
        pods.iter().filter(|pod| pod.has_limits() && pod.priority < crate::shutdown::CRITICAL_PRIORITY);
    let excess = excess.filter_map(|pod| Some((pod.uid.clone(), pressure::excess(&pod.stored())?))).collect();
    let Some(eviction) = &context.config.eviction else {
        return Findings { pressure, excess, ..Findings::default() };
    };
    let mut observe = || {
        let amount = |signal| eviction.signals.amount(signal);
        pressure.observe(&eviction.policy, amount, jiff::Timestamp::now()).into_iter().next()
    };
    let mut shortage = observe();
    if shortage.as_ref().is_some_and(|shortage| shortage.signal.condition() == DISK_PRESSURE)
        && free_images(context)
    {
        shortage = observe();
    }
    let victim = shortage.as_ref().and_then(|shortage| {
        let places: Vec<Vec<Place<'_>>> = pods.iter().map(|pod| pod.places(context)).collect();
        let used = eviction.signals.used(&places.concat(), shortage.signal);
        let mut used = used.as_slice();
        let candidates: Vec<Candidate> = pods
            .iter()
            .zip(&places)
            .map(|(pod, places)| {
                let (of_pod, rest) = used.split_at(places.len());
                used = rest;
                pod.candidate(shortage.signal, of_pod)
            })
            .collect();
        let victim = pressure::choose(shortage.signal, &candidates)?;
        Some((victim.uid.clone(), pressure::message(shortage, victim)))
    });
    Findings { pressure, shortage, excess, victim }
}

/// Before a pod has to go for the disk, images go that nobody uses. Returns whether there were any.
fn free_images(context: &Context) -> bool {
    let Some(oci) = &context.config.oci else { return false };
    match oci.images.collect_all_unused() {
        Ok(gone) if gone.is_empty() => false,
        Ok(gone) => {
            tracing::info!(?gone, "the disk is short: removed images that no pod uses");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "remove images that no pod uses");
            false
        }
    }
}
