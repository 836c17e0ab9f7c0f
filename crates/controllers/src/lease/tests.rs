//! Replicas and one Lease, on the API server in the process, with clocks that the test turns.

use std::sync::Arc;

use parking_lot::Mutex;
use windlass_apiserver::Server;

use super::*;

/// Time by the hand of the test.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<Duration>>);

impl Hand {
    fn advance(&self, seconds: u64) {
        *self.0.lock() += Duration::from_secs(seconds);
    }

    fn ticks(&self) -> Ticks {
        let time = Arc::clone(&self.0);
        Arc::new(move || *time.lock())
    }
}

struct World {
    client: Client,
    hand: Hand,
}

impl World {
    fn new() -> Self {
        let server = Server::new(windlass_apiserver::Config::default());
        Self { client: Client::new(server.router(), "default"), hand: Hand::default() }
    }

    fn candidate(&self, identity: &str) -> Elector {
        let config = Config::new("default".into(), "lease".into(), identity.into());
        Elector::with_ticks(self.client.clone(), config, Arc::new(Timestamp::now), self.hand.ticks())
    }

    async fn lease(&self) -> LeaseSpec {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        leases.get("lease").await.expect("a Lease").spec.expect("a spec")
    }
}

async fn tries(elector: &mut Elector) -> bool {
    elector.in_time(Elector::try_acquire).await.expect("the server answers")
}

async fn renews(elector: &mut Elector) -> bool {
    elector.in_time(Elector::try_renew).await.expect("the server answers")
}

#[tokio::test]
async fn a_second_replica_takes_over_only_when_the_first_was_silent_for_the_lease_duration() {
    let world = World::new();
    let (mut first, mut second) = (world.candidate("first"), world.candidate("second"));
    assert!(tries(&mut first).await);
    assert!(!tries(&mut second).await);
    world.hand.advance(14);
    assert!(renews(&mut first).await);
    assert!(!tries(&mut second).await, "it sees the renewal");
    world.hand.advance(14);
    assert!(!tries(&mut second).await, "14 s since it has seen it");
    world.hand.advance(2);
    assert!(tries(&mut second).await);
    let spec = world.lease().await;
    let taken = (spec.holder_identity.as_deref(), spec.lease_transitions, spec.lease_duration_seconds);
    assert_eq!(taken, (Some("second"), Some(1), Some(15)));
    assert!(!renews(&mut first).await, "the first learns that it has lost");
}

#[tokio::test]
async fn of_two_who_find_the_lease_expired_one_gets_it() {
    let world = World::new();
    assert!(tries(&mut world.candidate("gone")).await);
    let (mut a, mut b) = (world.candidate("a"), world.candidate("b"));
    for candidate in [&mut a, &mut b] {
        assert!(!tries(candidate).await);
    }
    world.hand.advance(16);
    // Both have seen the same version before either writes.
    for candidate in [&mut a, &mut b] {
        let lease = candidate.leases.get("lease").await.expect("a Lease");
        candidate.saw(lease);
    }
    let record = || LeaseSpec { lease_transitions: Some(1), ..LeaseSpec::default() };
    let (a, b) = (a.write(record()).await.expect("answered"), b.write(record()).await.expect("answered"));
    assert_eq!([a, b], [true, false]);
}

#[tokio::test]
async fn a_released_lease_is_taken_at_once() {
    let world = World::new();
    let (mut first, mut second) = (world.candidate("first"), world.candidate("second"));
    let fence = first.acquire(&CancellationToken::new(), |_| ()).await.expect("free");
    assert!(fence.is_open());
    assert!(!tries(&mut second).await);
    first.release(&fence).await;
    assert!(!fence.is_open(), "nothing is written after the release");
    let spec = world.lease().await;
    assert_eq!((spec.holder_identity, spec.lease_duration_seconds), (None, Some(1)));
    assert!(tries(&mut second).await);
}

#[tokio::test]
async fn a_replica_does_not_release_what_another_has() {
    let world = World::new();
    let (mut first, mut second) = (world.candidate("first"), world.candidate("second"));
    let fence = first.acquire(&CancellationToken::new(), |_| ()).await.expect("free");
    assert!(!tries(&mut second).await);
    world.hand.advance(16);
    assert!(tries(&mut second).await);
    first.release(&fence).await;
    assert_eq!(world.lease().await.holder_identity.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_has_its_fence_closed_before_anybody_else_can_lead() {
    let world = World::new();
    let (mut first, mut second) = (world.candidate("first"), world.candidate("second"));
    let fence = first.acquire(&CancellationToken::new(), |_| ()).await.expect("free");
    assert!(!tries(&mut second).await);
    // The process does not run: nobody renews, nobody looks at a clock.
    world.hand.advance(10);
    assert!(!fence.is_open(), "the first thing it sees when it goes on");
    assert!(!tries(&mut second).await, "and nobody else leads yet");
    world.hand.advance(6);
    assert!(tries(&mut second).await);
    assert_eq!(first.keep(&fence, &CancellationToken::new()).await, End::Lost);
    assert!(!fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_label_that_somebody_puts_on_the_lease_is_no_loss() {
    let world = World::new();
    let mut first = world.candidate("first");
    let fence = first.acquire(&CancellationToken::new(), |_| ()).await.expect("free");
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    first.leases.patch("lease", &PatchParams::default(), &label).await.expect("patched");
    world.hand.advance(9);
    assert!(renews(&mut first).await);
    let cancel = CancellationToken::new();
    let stop = async {
        // Two renewals later.
        tokio::time::sleep(Duration::from_secs(5)).await;
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(first.keep(&fence, &cancel), stop);
    assert_eq!(end, End::Stopped);
    assert!(fence.remaining() == Duration::from_secs(10), "{:?}", fence.remaining());
}

#[test]
fn times_with_which_two_could_lead_are_refused() {
    let good = Config::new(String::new(), String::new(), String::new());
    assert_eq!(good.check(), Ok(()));
    let second = Duration::from_secs(1);
    for bad in [
        Config { lease_duration: second * 10, ..good.clone() },
        Config { renew_deadline: second * 2, ..good.clone() },
        Config { retry_period: second * 9, ..good.clone() },
        Config { retry_period: Duration::ZERO, ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
