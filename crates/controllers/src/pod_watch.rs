//! Following pods: as [`crate::watch`] does, in the form that costs least to read. Of a large Job pods are most of what comes.

use futures::StreamExt;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;
use windlass_watch::Objects;

use crate::wire::SlimPod;

/// Gives every change of a pod to `take`, until cancelled.
pub(crate) async fn follow(
    client: Client,
    namespace: Option<String>,
    cancel: CancellationToken,
    mut take: impl FnMut(Event<SlimPod>),
) {
    let path = SlimPod::url_path(&(), namespace.as_deref());
    let mut events =
        std::pin::pin!(windlass_watch::follow::<SlimPod>(client, Objects { path, fields: None }));
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => return,
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        take(event);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use tokio::sync::mpsc;
    use tokio::time::Instant;
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
