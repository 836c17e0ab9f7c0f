//! Pods that hold the tracking finalizer though nobody will ever count them: they are let go.
//!
//! A pod names a Job that the watch has not shown: the API server is asked, because the watch may only be late. Once the
//! Job is known to be gone, or the pod has no controller and nobody adopts it, its finalizer is removed. Failures are
//! retried.

use windlass_job::Uid;

use super::JobKey;
use super::perform::Performer;
use super::registry::Registry;

/// Something to look into.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Orphan {
    /// A pod that nobody may want.
    Pod(Uid),
    /// A Job that pods call their owner and that nobody has seen.
    Owner(Uid),
}

/// A pod to let go of.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) resource_version: String,
}

/// Looks into it.
pub(super) async fn work(registry: &Registry, performer: &Performer, orphan: Orphan) {
    let is_settled = match &orphan {
        Orphan::Pod(uid) => match registry.release_of(uid) {
            Some(release) => let_go(registry, performer, &release).await,
            None => true,
        },
        Orphan::Owner(uid) => match registry.unknown_owner(uid) {
            Some(owner) => look_up(registry, performer, &owner).await,
            None => true,
        },
    };
    if is_settled {
        registry.orphans_due.forget_failures(&orphan);
    } else {
        registry.orphans_due.retry(orphan);
    }
}

async fn let_go(registry: &Registry, performer: &Performer, release: &Release) -> bool {
    match performer.release_orphan(release).await {
        Ok(()) => {
            registry.released(&release.uid);
            true
        }
        Err(error) => {
            tracing::debug!(
                namespace = release.namespace,
                pod = release.name,
                error,
                "finalizer not removed"
            );
            false
        }
    }
}

/// A Job that exists will be shown by the watch; until then the question stays.
async fn look_up(registry: &Registry, performer: &Performer, owner: &JobKey) -> bool {
    match performer.job_exists(owner).await {
        Ok(false) => {
            registry.owner_is_gone(&owner.uid);
            true
        }
        Ok(true) => false,
        Err(error) => {
            tracing::debug!(
                namespace = owner.namespace,
                job = owner.name,
                error,
                "owner of pods not looked up"
            );
            false
        }
    }
}
