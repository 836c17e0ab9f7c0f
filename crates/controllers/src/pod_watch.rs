//! Following pods: as [`crate::watch`] does, in the form that costs least to read.
//!
//! ```text
//!   list, page by page ──> watch from there ──closed──> watch from the last event
//!          ^                                └──410────────┐
//!          └───────────────── after a while ──────────────┘
//! ```
//!
//! kube's watcher reads JSON only. Of a large Job pods are most of what comes.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use http::{Request, Response};
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::WatchEvent;
use kube::runtime::watcher::{DefaultBackoff, Event};
use kube::{Client, Resource};
use tokio::time::Instant;
use tokio_util::codec::{AnyDelimiterCodec, Decoder, FramedRead, LengthDelimitedCodec};
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use crate::wire::{Form, SlimPod};

/// Pods in a page of the list.
const PAGE: u32 = 500;
/// The server ends a watch after this long.
const WATCH_SECONDS: u32 = 290;
/// One that it has not ended by then is dead.
const WATCH_TIME_MAX: Duration = Duration::from_secs(300);
/// A watch that is closed sooner, and has said nothing, did not work.
const WATCH_TIME_MIN: Duration = Duration::from_secs(1);
/// No event is longer: objects of Kubernetes are not.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Gives every change of a pod to `take`, until cancelled.
pub(crate) async fn follow(
    client: Client,
    namespace: Option<String>,
    cancel: CancellationToken,
    take: impl FnMut(Event<SlimPod>),
) {
    let requests = kube::core::Request::new(SlimPod::url_path(&(), namespace.as_deref()));
    let mut pods = Pods { client, requests, take, from: None };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = pods.follow() => {}
    }
}

/// What is followed, and how far it was.
struct Pods<F> {
    client: Client,
    requests: kube::core::Request,
    take: F,
    /// The version that a watch goes on from; a list comes first if there is none.
    from: Option<String>,
}

impl<F: FnMut(Event<SlimPod>)> Pods<F> {
    async fn follow(&mut self) {
        let mut backoff = DefaultBackoff::default();
        loop {
            let ended = match self.from.clone() {
                None => self.list().await,
                Some(from) => self.watch(&from).await,
            };
            let Err(error) = ended else {
                backoff = DefaultBackoff::default();
                continue;
            };
            if matches!(&error, kube::Error::Api(status) if status.code == 410) {
                self.from = None;
            }
            tracing::warn!(kind = "Pod", %error, "the watch broke, starting again");
            tokio::time::sleep(backoff.next().unwrap_or_default()).await;
        }
    }

    async fn list(&mut self) -> kube::Result<()> {
        (self.take)(Event::Init);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let answer = self.send(self.requests.list(&params)).await?;
            let form = Form::of(answer.headers());
            let page = form.page(&answer.into_body().collect_bytes().await?)?;
            for pod in page.pods {
                (self.take)(Event::InitApply(SlimPod(pod)));
            }
            if page.next.is_empty() {
                self.from = Some(page.resource_version);
                (self.take)(Event::InitDone);
                return Ok(());
            }
            params = params.continue_token(&page.next);
        }
    }

    async fn watch(&mut self, from: &str) -> kube::Result<()> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let answer = self.send(self.requests.watch(&params, from)).await?;
        let form = Form::of(answer.headers());
        let body = answer.into_body();
        let since = Instant::now();
        let events = async {
            match form {
                Form::Json => {
                    let (line_end, unused) = (b"\n".to_vec(), Vec::new());
                    let codec = AnyDelimiterCodec::new_with_max_length(line_end, unused, FRAME_BYTES_MAX);
                    self.hear(form, frames(body, codec)).await
                }
                Form::Protobuf => {
                    let codec = LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec();
                    self.hear(form, frames(body, codec)).await
                }
            }
        };
        let heard = tokio::time::timeout(WATCH_TIME_MAX, events).await.unwrap_or(Ok(true))?;
        if heard || since.elapsed() >= WATCH_TIME_MIN {
            Ok(())
        } else {
            Err(kube::Error::Service("the server closes every watch at once".into()))
        }
    }

    /// Says whether anything was heard, when the server has ended the watch.
    async fn hear(
        &mut self,
        form: Form,
        frames: impl Stream<Item = kube::Result<Bytes>>,
    ) -> kube::Result<bool> {
        let mut frames = std::pin::pin!(frames);
        let mut heard = false;
        while let Some(frame) = frames.next().await {
            let frame = frame?;
            if frame.is_empty() {
                continue;
            }
            heard = true;
            let event = match form.event(&frame)? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => Event::Apply(pod),
                WatchEvent::Deleted(pod) => Event::Delete(pod),
                WatchEvent::Bookmark(mark) => {
                    self.from = Some(mark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            if let Event::Apply(pod) | Event::Delete(pod) = &event {
                self.from.clone_from(&pod.0.metadata.resource_version);
            }
            (self.take)(event);
        }
        Ok(heard)
    }

    async fn send(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<Response<Body>> {
        let mut request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
        Form::prefer_protobuf(request.headers_mut());
        let answer = self.client.send(request).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (status, form) = (answer.status(), Form::of(answer.headers()));
        Err(form.refusal(status, &answer.into_body().collect_bytes().await?))
    }
}

/// The events of a watch, each in its own bytes.
fn frames<C>(body: Body, codec: C) -> impl Stream<Item = kube::Result<Bytes>>
where
    C: Decoder,
    C::Item: Into<Bytes>,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let bytes = http_body_util::BodyDataStream::new(body).map_err(std::io::Error::other);
    FramedRead::new(StreamReader::new(bytes), codec)
        .map_ok(Into::into)
        .map_err(|error| kube::Error::Service(error.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::sync::mpsc;
    use tower::service_fn;

    use super::*;
    use crate::wire::protobuf::tests::{list, said, said_expired};

    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

    /// An answer of the server: its code, its type and its bytes, a piece at a time.
    type Scripted = (u16, &'static str, Vec<Vec<u8>>);

    /// Plays a server that gives these answers, one after the other, and then none. Gives what was asked for until then,
    /// and so much of what was told.
    async fn played(answers: Vec<Scripted>, told: usize) -> (Vec<String>, Vec<String>) {
        let requests = answers.len() + 1;
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let (asking, mut asked) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            _ = asking.send(request.uri().to_string());
            let answer = answers.lock().pop_front();
            async move {
                let Some((code, type_, pieces)) = answer else { std::future::pending().await };
                let pieces = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
                let body = axum::body::Body::from_stream(futures::stream::iter(pieces));
                let answer = Response::builder().status(code).header("content-type", type_).body(body);
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        });
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let take = move |event: Event<SlimPod>| {
            let name = |pod: SlimPod| pod.0.metadata.name.unwrap_or_default();
            let told = match event {
                Event::Init => "begin".to_owned(),
                Event::InitApply(pod) => format!("listed {}", name(pod)),
                Event::InitDone => "end".to_owned(),
                Event::Apply(pod) => format!("saw {}", name(pod)),
                Event::Delete(pod) => format!("lost {}", name(pod)),
            };
            _ = sender.send(told);
        };
        let following =
            tokio::spawn(follow(Client::new(service, "default"), Some("n".to_owned()), cancel.clone(), take));
        let asked = first(&mut asked, requests).await;
        let told = first(&mut receiver, told).await;
        cancel.cancel();
        following.await.expect("no panic");
        (asked, told)
    }

    async fn first(of: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(of.recv().await.expect("it goes on"));
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_in_pages_and_a_watch_in_pieces_are_read_whatever_their_form() {
        let events =
            [said("ADDED", "c", "8"), said("MODIFIED", "c", "9"), said("DELETED", "a", "10")].concat();
        let json = |type_: &str, name: &str, version: &str| {
            let meta = serde_json::json!({"name": name, "resourceVersion": version});
            format!("{{\"type\":\"{type_}\",\"object\":{{\"metadata\":{meta}}}}}\n")
        };
        let lines = json("ADDED", "c", "8") + &json("MODIFIED", "c", "9") + &json("DELETED", "a", "10");
        let page = |version: &str, next: &str, name: &str| {
            let item = serde_json::json!({"metadata": {"name": name, "resourceVersion": "5"}});
            let meta = serde_json::json!({"resourceVersion": version, "continue": next});
            serde_json::json!({"apiVersion": "v1", "kind": "PodList", "metadata": meta, "items": [item]})
                .to_string()
                .into_bytes()
        };
        let forms = [
            (PROTOBUF, list("7", "more", &[("a", "5")]), list("7", "", &[("b", "5")]), events),
            ("application/json", page("7", "more", "a"), page("7", "", "b"), lines.into_bytes()),
        ];
        for (type_, first, second, events) in forms {
            let pieces = events.chunks(7).map(<[u8]>::to_vec).collect();
            let answers = vec![(200, type_, vec![first]), (200, type_, vec![second]), (200, type_, pieces)];
            let (asked, told) = played(answers, 7).await;
            assert_eq!(told, ["begin", "listed a", "listed b", "end", "saw c", "saw c", "lost a"], "{type_}");
            let path = "/api/v1/namespaces/n/pods?";
            let watch = format!("{path}&watch=true&timeoutSeconds=290&allowWatchBookmarks=true");
            let expected = [
                format!("{path}&limit=500"),
                format!("{path}&limit=500&continue=more"),
                format!("{watch}&resourceVersion=7"),
                format!("{watch}&resourceVersion=10"),
            ];
            assert_eq!(asked, expected, "{type_}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_from_the_last_bookmark_and_lists_again_when_that_is_too_old() {
        let answers = vec![
            (200, PROTOBUF, vec![list("7", "", &[])]),
            (200, PROTOBUF, vec![said("BOOKMARK", "", "30")]),
            (200, PROTOBUF, vec![said_expired()]),
            (200, PROTOBUF, vec![list("40", "", &[("p", "39")])]),
            (410, "application/json", vec![br#"{"code":410,"reason":"Expired"}"#.to_vec()]),
            (503, "text/plain", vec![b"try again".to_vec()]),
            (200, PROTOBUF, vec![list("50", "", &[])]),
        ];
        let (asked, told) = played(answers, 8).await;
        assert_eq!(told, ["begin", "end", "begin", "listed p", "end", "begin", "begin", "end"]);
        let versions: Vec<&str> = asked
            .iter()
            .map(|uri| uri.rsplit_once("resourceVersion=").map_or("list", |(_, it)| it))
            .collect();
        assert_eq!(versions, ["list", "7", "30", "list", "40", "list", "list", "50"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_closes_every_watch_at_once_is_not_asked_in_a_loop() {
        let mut answers = vec![(200, PROTOBUF, vec![list("7", "", &[])])];
        answers.extend((0..3).map(|_| (200, PROTOBUF, Vec::new())));
        answers.push((200, PROTOBUF, vec![said("ADDED", "p", "8")]));
        let since = Instant::now();
        let (_, told) = played(answers, 3).await;
        assert_eq!(told, ["begin", "end", "saw p"]);
        assert!(since.elapsed() >= Duration::from_secs(2), "{:?}", since.elapsed());
    }
}
