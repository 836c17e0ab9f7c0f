//! Writing to the API server: when it is our turn, counted, bounded in time, and sent again only if that is safe.
//!
//! | answer | what happens |
//! |---|---|
//! | 429 | the server did nothing: the same request again, whatever its verb, when the server allows it |
//! | any other, or none in time | the caller's to judge: it may have been done. Never sent again blindly |
//!
//! The decision after a failed write is made on what is known then, and its writes carry preconditions: that is the only
//! other retry there is.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::core::Status;
use tokio::time::Instant;
use windlass_job::Uid;
use windlass_watch::{Caller, Form};

use crate::metrics::Metrics;
use crate::turns::{Turn, Turns, Urgency};
use crate::wire::{FromAnswer, refusal};

/// Answers of 429 to one request before it counts as failed: client-go's number.
const PUSHED_BACK_MAX: u32 = 10;
/// How long to leave the server alone that says 429 and not for how long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// No server may keep us longer: a mistake in its configuration must not stop all work.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// An answer that takes longer is lost. kube-apiserver gives up a request after 60 s.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What is written, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

/// The way to the API server. Clones share the turns.
#[derive(Clone)]
pub(crate) struct Calls {
    caller: Caller,
    turns: Turns,
    metrics: Metrics,
}

impl Calls {
    pub(crate) fn new(client: Client, writes_at_once: usize, metrics: Metrics) -> Self {
        let turns = Turns::new(writes_at_once);
        metrics.write_slots(turns.limit());
        Self { caller: client.into(), turns, metrics }
    }

    /// Waits for a turn in `lane`.
    pub(crate) async fn turn(&self, lane: &Uid, urgency: Urgency) -> Turn {
        self.turns.next(lane, urgency).await
    }

    /// Sends a request when `lane` has its turn, and reads the answer.
    pub(crate) async fn send<T: FromAnswer>(
        &self,
        lane: &Uid,
        call: Call,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        let mut turn = self.turn(lane, Urgency::Usual).await;
        self.send_in(&mut turn, call, request).await
    }

    /// Sends a request, now that it is our turn, and reads the answer.
    pub(crate) async fn send_in<T: FromAnswer>(
        &self,
        turn: &mut Turn,
        call: Call,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        let mut request = request.map_err(kube::Error::BuildRequest)?.map(Bytes::from);
        if T::READS_PROTOBUF {
            Form::prefer_protobuf(request.headers_mut());
        }
        let mut pushed_back = 0;
        loop {
            let start = Instant::now();
            let answer = tokio::time::timeout(ANSWER_MAX, self.ask(request.clone())).await;
            let answer = answer.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())));
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            self.metrics.called(call, code, start.elapsed());
            let answer = answer?;
            let (status, form, body) = (answer.status(), Form::of(answer.headers()), answer.body());
            if status == StatusCode::TOO_MANY_REQUESTS && pushed_back < PUSHED_BACK_MAX {
                pushed_back += 1;
                turn.was_pushed_back(retry_after(&answer).unwrap_or(RETRY_AFTER).min(RETRY_AFTER_MAX));
                self.metrics.write_slots(self.turns.limit());
                turn.renew().await;
                continue;
            }
            if !status.is_success() {
                return Err(refusal(form, status, body));
            }
            turn.went_well(start.elapsed());
            self.metrics.write_slots(self.turns.limit());
            return T::read(form, body);
        }
    }

    async fn ask(&self, request: Request<Bytes>) -> kube::Result<Response<Bytes>> {
        let _under_way = self.metrics.write_begins();
        self.caller.send(request).await
    }
}

/// `Retry-After` in seconds; Kubernetes writes no dates.
fn retry_after(answer: &Response<Bytes>) -> Option<Duration> {
    let header = answer.headers().get(http::header::RETRY_AFTER)?;
    Some(Duration::from_secs(header.to_str().ok()?.trim().parse().ok()?))
}

/// What the server says, in its own words, or what became of the request.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A create was refused because the namespace is about to go.
pub(crate) fn is_namespace_ending(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}
