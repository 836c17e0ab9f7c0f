//! Events that can wait until whatever else is ready has been done.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};

/// Has all others go first who are ready when something comes. Who only keeps accounts of a change need not be in the way of
/// who starts the next pod because of it.
pub fn unhurried<S: Stream + Unpin>(inner: S) -> impl Stream<Item = S::Item> {
    Unhurried { inner, is_its_turn: true }
}

struct Unhurried<S> {
    inner: S,
    /// It has let the others go first, or has not found yet that there is nothing to take.
    is_its_turn: bool,
}

impl<S: Stream + Unpin> Stream for Unhurried<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        if !self.is_its_turn {
            self.is_its_turn = true;
            // The first poll asks to be woken when the others have been.
            let yielding = pin!(tokio::task::yield_now());
            if yielding.poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        let polled = self.inner.poll_next_unpin(context);
        self.is_its_turn = polled.is_ready();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn those_who_are_in_a_hurry_go_first_and_nothing_is_missed() {
        let (bell, _) = watch::channel(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let done = CancellationToken::new();
        let listen = |name: &'static str, is_hurried: bool| {
            let (heard, order, done) = (bell.subscribe(), Arc::clone(&order), done.clone());
            let events = futures::stream::unfold(heard, async |mut heard| {
                heard.changed().await.ok()?;
                let value = *heard.borrow_and_update();
                Some((value, heard))
            });
            let note = move |value: i32| order.lock().push((name, value));
            tokio::spawn(async move {
                let mut events: futures::stream::BoxStream<'_, i32> =
                    if is_hurried { events.boxed() } else { unhurried(events.boxed()).boxed() };
                while let Some(value) = events.next().await {
                    note(value);
                    if value == 3 && name == "slow" {
                        done.cancel();
                    }
                }
            })
        };
        let _tasks = [listen("slow", false), listen("quick", true)];
        tokio::task::yield_now().await;
        for value in 1..=3 {
            bell.send_replace(value);
            while order.lock().len() < 2 * value as usize {
                tokio::task::yield_now().await;
            }
        }
        done.cancelled().await;
        let wanted = [("quick", 1), ("slow", 1), ("quick", 2), ("slow", 2), ("quick", 3), ("slow", 3)];
        assert_eq!(*order.lock(), wanted);
    }
}
