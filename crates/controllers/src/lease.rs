//! Leader election by a Lease: of several replicas one works, and the others wait.
//!
//! The rules are client-go's: the holder renews every retry period and gives up after the renew deadline; others take over
//! when they have seen no change for the lease duration, by their own clocks. All writes are patches that fail if
//! somebody else has written since. In one thing we are stricter: the holder's right to write ends by itself, see
//! [`Fence`].

mod fence;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Clock;
pub use fence::Fence;
pub(crate) use fence::Fenced;
use fence::{Ticks, since_boot};

/// Candidates wait up to this much longer than the retry period, so that they do not all ask at once: client-go's.
const JITTER: f64 = 1.2;

/// Which Lease, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are. No two replicas may have the same identity, nor one replica and its successor.
    pub identity: String,
    /// How long others wait for a holder that is silent.
    pub lease_duration: Duration,
    /// How long the holder tries to renew. Shorter than the lease duration: what is on its way then has the rest of it
    /// to arrive.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry_period: Duration,
}

impl Config {
    /// The times that Kubernetes' own components use.
    pub fn new(namespace: String, name: String, identity: String) -> Self {
        Self {
            namespace,
            name,
            identity,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Times with which two leaders can't be: the rules of client-go.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.lease_duration <= self.renew_deadline {
            return Err("the lease duration must be longer than the renew deadline");
        }
        if self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * JITTER {
            return Err("the renew deadline must be longer than 1.2 times the retry period");
        }
        if self.lease_duration < Duration::from_secs(1) || self.retry_period.is_zero() {
            return Err("the lease duration must be at least a second, and the retry period not zero");
        }
        Ok(())
    }
}

/// Why a term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// We were asked to stop.
    Stopped,
    /// The lease could not be renewed in time, or somebody else has it.
    Lost,
}

/// A candidate, and perhaps the leader.
pub struct Elector {
    leases: Api<Lease>,
    config: Config,
    clock: Clock,
    ticks: Ticks,
    seen: Option<Seen>,
}

/// The Lease as last seen, and when it last changed, by our clock.
struct Seen {
    lease: Lease,
    since: Duration,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Elector {
    /// A candidate. `clock` is only for the times in the Lease, which nobody decides by.
    pub fn new(client: Client, config: Config, clock: Clock) -> Self {
        Self::with_ticks(client, config, clock, since_boot())
    }

    fn with_ticks(client: Client, config: Config, clock: Clock, ticks: Ticks) -> Self {
        Self { leases: Api::namespaced(client, &config.namespace), config, clock, ticks, seen: None }
    }

    /// Waits until the lease is ours; `None` if cancelled before. `asked` hears after each try whether the API server
    /// answered.
    pub async fn acquire(&mut self, cancel: &CancellationToken, asked: impl Fn(bool)) -> Option<Fence> {
        loop {
            let started = (self.ticks)();
            match self.in_time(Self::try_acquire).await {
                Ok(true) => {
                    let until = started + self.config.renew_deadline;
                    return Some(Fence::open_until(self.ticks.clone(), until));
                }
                Ok(false) => asked(true),
                Err(error) => {
                    asked(false);
                    tracing::warn!(lease = self.config.name, error, "can't try for the lease");
                }
            }
            let wait = self.config.retry_period.mul_f64(1.0 + JITTER * random());
            tokio::select! {
                () = cancel.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Renews the lease until cancelled, or until it is lost. A term that is lost has its fence shut.
    pub async fn keep(&mut self, fence: &Fence, cancel: &CancellationToken) -> End {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return End::Stopped,
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
            let started = (self.ticks)();
            match self.in_time(Self::try_renew).await {
                Ok(true) if fence.is_open() => fence.extend(started + self.config.renew_deadline),
                Ok(is_ours) => {
                    tracing::warn!(lease = self.config.name, is_ours, "the lease is lost");
                    fence.shut();
                    return End::Lost;
                }
                Err(error) => {
                    tracing::warn!(lease = self.config.name, error, "the lease was not renewed");
                    if !fence.is_open() {
                        fence.shut();
                        return End::Lost;
                    }
                }
            }
        }
    }

    /// Gives the lease back, so that another need not wait. To be called when nothing is written any more.
    pub async fn release(mut self, fence: &Fence) {
        fence.shut();
        match self.in_time(Self::try_release).await {
            Ok(()) => {}
            Err(error) => tracing::warn!(lease = self.config.name, error, "the lease was not released"),
        }
    }

    /// A try must not take so long that there is no time for another.
    async fn in_time<T>(&mut self, attempt: impl AsyncFn(&mut Self) -> kube::Result<T>) -> Result<T, String> {
        let patience = self.config.renew_deadline / 2;
        match tokio::time::timeout(patience, attempt(self)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn try_acquire(&mut self) -> kube::Result<bool> {
        let Some(lease) = self.leases.get_opt(&self.config.name).await? else {
            return self.create().await;
        };
        self.saw(lease);
        let Some(Seen { lease, since }) = &self.seen else { return Ok(false) };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let duration = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let is_valid = (self.ticks)() < *since + Duration::from_secs(duration);
        if !holder.is_empty() && holder != self.config.identity && is_valid {
            return Ok(false);
        }
        let changes_hands = holder != self.config.identity;
        let record = LeaseSpec {
            acquire_time: if changes_hands { None } else { spec.acquire_time },
            lease_transitions: Some(spec.lease_transitions.unwrap_or_default() + i32::from(changes_hands)),
            ..LeaseSpec::default()
        };
        self.write(record).await
    }

    async fn try_renew(&mut self) -> kube::Result<bool> {
        let Some(Seen { lease, .. }) = &self.seen else { return Ok(false) };
        let spec = lease.spec.clone().unwrap_or_default();
        let record = LeaseSpec {
            acquire_time: spec.acquire_time,
            lease_transitions: spec.lease_transitions,
            ..LeaseSpec::default()
        };
        if self.write(record).await? {
            return Ok(true);
        }
        // Somebody has written: perhaps a label, perhaps their name.
        let Some(lease) = self.leases.get_opt(&self.config.name).await? else { return self.create().await };
        let is_ours = holder(&lease) == Some(self.config.identity.as_str());
        self.saw(lease);
        if is_ours { self.try_acquire().await } else { Ok(false) }
    }

    async fn try_release(&mut self) -> kube::Result<()> {
        let Some(lease) = self.leases.get_opt(&self.config.name).await? else { return Ok(()) };
        if holder(&lease) != Some(self.config.identity.as_str()) {
            return Ok(());
        }
        let now = MicroTime((self.clock)());
        let patch = json!({
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": {"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now},
        });
        self.leases.patch(&self.config.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn create(&mut self) -> kube::Result<bool> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() },
            spec: Some(self.record(LeaseSpec { lease_transitions: Some(0), ..LeaseSpec::default() })),
        };
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.saw(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes our name over the Lease as last seen; false if somebody else has written since.
    async fn write(&mut self, record: LeaseSpec) -> kube::Result<bool> {
        let version = self.seen.as_ref().and_then(|seen| seen.lease.metadata.resource_version.clone());
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": self.record(record)});
        let written =
            self.leases.patch(&self.config.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        match written {
            Ok(lease) => {
                self.saw(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn record(&self, base: LeaseSpec) -> LeaseSpec {
        let now: Timestamp = (self.clock)();
        let seconds = i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(i32::MAX);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(now)),
            acquire_time: base.acquire_time.or(Some(MicroTime(now))),
            ..base
        }
    }

    fn saw(&mut self, lease: Lease) {
        let is_news = |seen: &Seen| seen.lease.spec != lease.spec;
        let since = match &self.seen {
            Some(seen) if !is_news(seen) => seen.since,
            Some(_) | None => (self.ticks)(),
        };
        self.seen = Some(Seen { lease, since });
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// From 0 to 1.
fn random() -> f64 {
    let byte = uuid::Uuid::new_v4().as_bytes()[0];
    f64::from(byte) / f64::from(u8::MAX)
}

#[cfg(test)]
mod tests;
