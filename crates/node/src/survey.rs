//! Looks at what the node has left and what its pods use and keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, PodSpec};
use windlass_api::quantity::Quantity;

use crate::events;
use crate::logs;
use crate::machine::disk_usage;
use crate::oci::bundle;
use crate::pod::Context;
use crate::prepare;
use crate::pressure::{self, Candidate, Part, Place, Shortage, Signal, Signals, Stored};

/// What has to be known about a pod that may have to go.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) about: ObjectReference,
    pub(crate) priority: i32,
    uid: String,
    parts: Vec<PartSpec>,
    /// Its emptyDir volumes on the disk: name, place, limit.
    directories: Vec<(String, PathBuf, Option<pressure::Limit>)>,
}

#[derive(Clone, Debug)]
struct PartSpec {
    name: String,
    logs: PathBuf,
    /// Of the pod's containers of images.
    bundles: PathBuf,
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
            // What is in memory is bounded by the kernel.
            (empty.medium.as_deref() != Some("Memory")).then(|| (volume.name.clone(), path, limit))
        });
        Self {
            about: events::about(pod, None),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            parts: spec.into_iter().flat_map(containers).map(part).collect(),
            directories: directories.collect(),
        }
    }

    /// Whether the pod is bounded in what it keeps on the disk.
    pub(crate) fn has_limits(&self) -> bool {
        self.directories.iter().any(|(_, _, limit)| limit.is_some())
            || self.parts.iter().any(|part| part.storage_limit.is_some())
    }

    fn stored(&self) -> Stored {
        let used = |path: &Path| disk_usage(path).0;
        let directories: Vec<_> =
            self.directories.iter().map(|(name, path, limit)| (name, used(path), limit)).collect();
        Stored {
            in_directories: directories.iter().map(|(_, used, _)| used).sum(),
            containers: self
                .parts
                .iter()
                .map(|part| {
                    let written =
                        bundle::written(&part.bundles, &part.name).iter().map(|path| used(path)).sum::<i64>();
                    (part.name.clone(), used(&part.logs) + written, part.storage_limit.clone())
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

    fn candidate(&self, context: &Context, signals: &dyn Signals, signal: Signal) -> Candidate {
        let parts = self.parts.iter().map(|part| {
            let place = Place {
                pod: self.about.name.as_deref().unwrap_or_default(),
                name: &part.name,
                pid: context.running.pid(&self.uid, &part.name),
                logs: &part.logs,
            };
            let (request, request_text) = match signal {
                Signal::Memory => part.memory.clone(),
                Signal::Disk => part.storage.clone(),
                Signal::Inodes | Signal::Pids => (0, "0".to_owned()),
            };
            Part { name: part.name.clone(), used: signals.used(&place, signal), request, request_text }
        });
        Candidate { uid: self.uid.clone(), priority: self.priority, parts: parts.collect() }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What is short.
    pub(crate) shortages: Vec<Shortage>,
    /// Pods that keep more than they may, and what they are told.
    pub(crate) excess: Vec<(String, String)>,
    /// The pod that has to go, and what it is told.
    pub(crate) victim: Option<(String, String)>,
}

/// Looks. May take a while: not for a thread that others wait for.
pub(crate) fn look(context: &Context, pods: &[Arc<Spot>]) -> Findings {
    let excess =
        pods.iter().filter(|pod| pod.has_limits() && pod.priority < crate::shutdown::CRITICAL_PRIORITY);
    let excess = excess.filter_map(|pod| Some((pod.uid.clone(), pressure::excess(&pod.stored())?))).collect();
    let eviction = context.config.eviction.as_ref();
    let shortages = eviction.map_or_else(Vec::new, |eviction| {
        pressure::shortages(&eviction.thresholds, |signal| eviction.signals.amount(signal))
    });
    let victim = eviction.zip(shortages.first()).and_then(|(eviction, shortage)| {
        let candidates: Vec<Candidate> =
            pods.iter().map(|pod| pod.candidate(context, &*eviction.signals, shortage.signal)).collect();
        let victim = pressure::choose(shortage.signal, &candidates)?;
        Some((victim.uid.clone(), pressure::message(shortage, victim)))
    });
    Findings { shortages, excess, victim }
}
