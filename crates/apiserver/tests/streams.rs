//! Logs, exec and attach as clients see them, with a node that is played.

mod common;

use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use common::{Cluster, PODS, cluster, failure};
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt, TryStreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use windlass_apiserver::auth::certificate::Certified;
use windlass_apiserver::auth::tokens::Tokens;
use windlass_apiserver::auth::{Guard, Identity, Limits, Peer};
use windlass_streams::{Container, Error, Exec, Log, LogOptions, PodStreams, Run, Session, Streams};

/// Remembers what it was asked, and prints its input in capitals.
#[derive(Default)]
struct Node {
    asked: Mutex<Vec<String>>,
    log_bytes: u64,
}

impl Node {
    fn note(&self, what: String) {
        self.asked.lock().expect("not poisoned").push(what);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("not poisoned"))
    }
}

fn one(text: &'static str) -> windlass_streams::Chunks {
    futures::stream::iter([Ok(Bytes::from(text))]).boxed()
}

/// A process that answers what it reads, says `sizes` of its terminal, and ends with 7 when its input ends.
fn shouting() -> Session {
    let (ours, theirs) = tokio::io::duplex(64);
    let (sender, sizes) = futures::channel::mpsc::unbounded();
    let (ended, end) = futures::channel::oneshot::channel();
    let read = futures::stream::unfold((ours, Some(ended)), |(mut ours, mut ended)| async move {
        let mut piece = [0; 64];
        match ours.read(&mut piece).await {
            Ok(count) if count > 0 => {
                let text = String::from_utf8_lossy(&piece[..count]).to_uppercase();
                Some((Ok(Bytes::from(text)), (ours, ended)))
            }
            _ => {
                let _ = ended.take().map(|ended| ended.send(()));
                None
            }
        }
    });
    Session {
        stdin: Some(Box::pin(theirs)),
        stdout: read.boxed(),
        stderr: sizes.map(Ok).take(1).boxed(),
        resize: Box::new(move |size| {
            let _ = sender.unbounded_send(Bytes::from(format!("{}x{}", size.width, size.height)));
        }),
        ended: end.map(|_| Ok(7)).boxed(),
    }
}

impl PodStreams for Node {
    fn has(&self, node: &str) -> bool {
        node == "n1"
    }

    fn logs(&self, run: Run, options: LogOptions) -> BoxFuture<'_, Result<Log, Error>> {
        self.note(format!("log {} {options:?}", run.id));
        std::future::ready(Ok(Log { chunks: one("printed\n"), bytes: self.log_bytes })).boxed()
    }

    fn exec(&self, container: Container, exec: Exec) -> BoxFuture<'_, Result<Session, Error>> {
        self.note(format!("exec {}/{} {:?}", container.pod, container.name, exec.command));
        let session = match exec.command.first().map(String::as_str) {
            Some("missing") => Err(Error::Failed("no such program".into())),
            Some("gone") => Err(Error::NotRunning(container.name)),
            Some("true") => Ok(Session { ended: std::future::ready(Ok(0)).boxed(), ..quiet() }),
            _ => Ok(shouting()),
        };
        std::future::ready(session).boxed()
    }

    fn attach(&self, container: Container, streams: Streams) -> BoxFuture<'_, Result<Session, Error>> {
        self.note(format!("attach {}/{} {streams:?}", container.pod, container.name));
        std::future::ready(Ok(Session { stdout: one("seen"), ..quiet() })).boxed()
    }
}

fn quiet() -> Session {
    Session {
        stdin: None,
        stdout: futures::stream::empty().boxed(),
        stderr: futures::stream::empty().boxed(),
        resize: Box::new(|_| {}),
        ended: std::future::ready(Ok(0)).boxed(),
    }
}

/// A server with a node, and the pods `one` and `two` on it, which run; `late` is on no node, `lost` on one that is gone.
async fn served(node: Node) -> (Cluster, Arc<Node>) {
    let cluster = cluster();
    let node = Arc::new(node);
    cluster.server.serve_streams(Arc::clone(&node) as Arc<dyn PodStreams>);
    cluster.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    for name in ["one", "late", "lost"] {
        cluster.pod(name).await;
    }
    let mut two = common::pod("two");
    two["spec"]["containers"] = json!([{"name": "a", "image": "host"}, {"name": "b", "image": "host"}]);
    two["spec"]["initContainers"] = json!([{"name": "i", "image": "host"}]);
    cluster.post(PODS, two).await;
    for (pod, node) in [("one", "n1"), ("two", "n1"), ("lost", "n9")] {
        let bound = cluster.post(&format!("{PODS}/{pod}/binding"), common::binding(pod, node)).await;
        assert_eq!(bound.code, 201, "{bound:?}");
    }
    let one = json!([{"name": "c", "image": "host", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": "host://x/c/0", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]);
    set(&cluster, "one", one).await;
    (cluster, node)
}

async fn set(cluster: &Cluster, pod: &str, statuses: Value) {
    let answer = cluster
        .merge(&format!("{PODS}/{pod}/status"), json!({"status": {"containerStatuses": statuses}}))
        .await;
    assert_eq!(answer.code, 200, "{answer:?}");
}

async fn text(cluster: &Cluster, path: &str) -> (u16, String, Vec<String>) {
    let response = cluster.raw(Method::GET, path, "", String::new()).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, String::from_utf8(bytes.to_vec()).expect("UTF-8"), warnings)
}

#[tokio::test]
async fn a_log_is_asked_for_with_all_its_options() {
    let (cluster, node) = served(Node::default()).await;
    let all = "follow=true&timestamps=true&tailLines=3&limitBytes=9&sinceSeconds=5&container=c\
               &insecureSkipTLSVerifyBackend=true&pretty=true";
    let answer = text(&cluster, &format!("{PODS}/one/log?{all}")).await;
    assert_eq!(answer, (200, "printed\n".to_owned(), vec![]));
    let want = "log host://x/c/0 LogOptions { follow: true, since: Some(2026-01-02T03:04:00Z), tail_lines: Some(3), \
                limit_bytes: Some(9), timestamps: true }";
    assert_eq!(node.asked(), [want]);
    text(&cluster, &format!("{PODS}/one/log?sinceTime=2026-01-01T00:00:00.5Z")).await;
    let want = "log host://x/c/0 LogOptions { follow: false, since: Some(2026-01-01T00:00:00Z), tail_lines: None, \
                limit_bytes: Some(16777216), timestamps: false }";
    assert_eq!(node.asked(), [want], "what is not bounded by the client is bounded here");
}

#[tokio::test]
async fn who_gets_only_the_beginning_of_a_log_is_told() {
    let (cluster, _) = served(Node { log_bytes: 16_777_217, ..Node::default() }).await;
    let warning = "299 - \"the log has 16777217 bytes, of which the first 16777216 are sent: ask for --tail, --since, \
                   --limit-bytes or --follow\"";
    for (query, want) in
        [("", vec![warning.to_owned()]), ("?limitBytes=99999999", vec![]), ("?follow=true", vec![])]
    {
        let (code, _, warnings) = text(&cluster, &format!("{PODS}/one/log{query}")).await;
        assert_eq!((code, warnings), (200, want), "{query}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_log_request_is_said_as_upstream_says_it() {
    let (cluster, _) = served(Node::default()).await;
    let bad = |message: &str| failure(400, "BadRequest", message, Value::Null);
    let invalid = |causes: &[(&str, &str, &str)]| {
        let texts: Vec<String> = causes.iter().map(|(_, field, body)| format!("{field}: {body}")).collect();
        let all = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<Value> = causes
            .iter()
            .map(|(reason, field, body)| json!({"reason": reason, "message": body, "field": field}))
            .collect();
        let message = format!("PodLogOptions \"one\" is invalid: {all}");
        failure(422, "Invalid", &message, json!({"name": "one", "kind": "PodLogOptions", "causes": causes}))
    };
    let one = "Invalid value: -1: must be greater than or equal to 0";
    let zero = "Invalid value: 0: must be greater than 0";
    let both = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
    for (path, want) in [
        ("one/log?tailLines=-1", invalid(&[("FieldValueInvalid", "tailLines", one)])),
        (
            "one/log?limitBytes=0&sinceSeconds=0",
            invalid(&[
                ("FieldValueInvalid", "limitBytes", zero),
                ("FieldValueInvalid", "sinceSeconds", zero),
            ]),
        ),
        (
            "one/log?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            invalid(&[("FieldValueForbidden", "", both)]),
        ),
        (
            "one/log?stream=Stdout",
            invalid(&[("FieldValueForbidden", "stream", "Forbidden: may not be specified")]),
        ),
        ("one/log?tailLines=x", bad("strconv.ParseInt: parsing \"x\": invalid syntax")),
        ("one/log?container=x", bad("container x is not valid for pod one")),
        ("two/log", bad("a container name must be specified for pod two, choose one of: [i a b]")),
        ("two/log?container=a", bad("container \"a\" in pod \"two\" is not available")),
        ("one/log?previous=true", bad("previous terminated container \"c\" in pod \"one\" not found")),
        (
            "none/log",
            failure(404, "NotFound", "pods \"none\" not found", json!({"name": "none", "kind": "pods"})),
        ),
        (
            "lost/log",
            failure(404, "NotFound", "nodes \"n9\" not found", json!({"name": "n9", "kind": "nodes"})),
        ),
    ] {
        let answer = cluster.get(&format!("{PODS}/{path}")).await;
        assert_eq!(answer.body, want, "{path}");
    }
    let late = cluster.raw(Method::GET, &format!("{PODS}/late/log"), "", String::new()).await;
    assert_eq!(late.status(), 204, "a pod without a node has printed nothing");
}

#[tokio::test]
async fn the_run_whose_log_is_meant_is_told_by_the_status() {
    let (cluster, node) = served(Node::default()).await;
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
    let cases = [
        (waiting("ContainerCreating"), json!(null), false, Err("is waiting to start: ContainerCreating")),
        (waiting("ErrImagePull"), json!(null), false, Err("is waiting to start: image can't be pulled")),
        (
            waiting("ImagePullBackOff"),
            json!(null),
            false,
            Err("is waiting to start: trying and failing to pull image"),
        ),
        (json!({}), json!(null), false, Err("is waiting to start - no logs yet")),
        (ended("host://x/c/1"), json!(null), false, Ok("host://x/c/1")),
        (ended(""), json!(null), false, Err("is terminated")),
        (ended(""), ended("host://x/c/0"), false, Ok("host://x/c/0")),
        (waiting("CrashLoopBackOff"), ended("host://x/c/0"), false, Ok("host://x/c/0")),
        (ended("host://x/c/1"), ended("host://x/c/0"), true, Ok("host://x/c/0")),
    ];
    for (number, (state, last, previous, want)) in cases.into_iter().enumerate() {
        // A pod for each: what has ended does not go back to waiting.
        let name = format!("p{number}");
        cluster.pod(&name).await;
        cluster.post(&format!("{PODS}/{name}/binding"), common::binding(&name, "n1")).await;
        let mut status =
            json!({"name": "c", "image": "host", "imageID": "", "ready": false, "restartCount": 1});
        status["state"] = state.clone();
        if !last.is_null() {
            status["lastState"] = last.clone();
        }
        set(&cluster, &name, json!([status])).await;
        let (code, body, _) = text(&cluster, &format!("{PODS}/{name}/log?previous={previous}")).await;
        match want {
            Ok(id) => {
                assert_eq!((code, body.as_str()), (200, "printed\n"), "{state} {last}");
                assert!(node.asked()[0].starts_with(&format!("log {id} ")), "{state} {last}");
            }
            Err(why) => {
                let body: Value = serde_json::from_str(&body).expect("JSON");
                assert_eq!(
                    (code, &body["message"]),
                    (400, &json!(format!("container \"c\" in pod {name:?} {why}"))),
                    "{state} {last}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_node_behind_it_a_server_says_so() {
    let cluster = cluster();
    cluster.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    cluster.running_pod("one").await;
    let status = json!([{"name": "c", "image": "host", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": "cri://1", "state": {"running": {}}}]);
    set(&cluster, "one", status).await;
    let want = failure(
        503,
        "ServiceUnavailable",
        "node \"n1\" gives no logs and runs no commands for this server",
        Value::Null,
    );
    assert_eq!(cluster.get(&format!("{PODS}/one/log")).await.body, want);
    assert_eq!(cluster.get(&format!("{PODS}/one/exec?command=true&stdout=true")).await.body, want);
}

/// A connection to the server that can be upgraded.
fn connect(cluster: &Cluster) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let service = TowerToHyperService::new(cluster.server.router());
    tokio::spawn(async move {
        let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection_with_upgrades(TokioIo::new(theirs), service).await;
    });
    ours
}

async fn open(
    cluster: &Cluster,
    path: &str,
    protocols: &str,
) -> Result<(WebSocketStream<DuplexStream>, String), WsError> {
    let request = upgrade(&format!("ws://server{PODS}/{path}"), protocols).body(()).expect("a request");
    let (socket, response) = tokio_tungstenite::client_async(request, connect(cluster)).await?;
    let chosen = response.headers()["sec-websocket-protocol"].to_str().expect("text").to_owned();
    Ok((socket, chosen))
}

fn upgrade(uri: &str, protocols: &str) -> http::request::Builder {
    Request::builder()
        .uri(uri)
        .header("host", "server")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", protocols)
}

/// All messages up to the close, by channel, and the code of the close.
async fn rest(socket: &mut WebSocketStream<DuplexStream>) -> (Vec<(u8, String)>, Option<CloseCode>) {
    let mut messages = Vec::new();
    while let Some(message) = socket.try_next().await.expect("a message") {
        match message {
            Message::Binary(bytes) => {
                messages.push((bytes[0], String::from_utf8(bytes[1..].to_vec()).expect("UTF-8")));
            }
            Message::Close(frame) => return (messages, frame.map(|frame| frame.code)),
            other => panic!("{other:?}"),
        }
    }
    (messages, None)
}

const EXEC: &str = "one/exec?command=shout&command=-v&stdin=true&stdout=true&stderr=true";

#[tokio::test]
async fn every_channel_carries_its_own_and_the_last_word_is_the_exit_code() {
    let (cluster, node) = served(Node::default()).await;
    let (mut socket, chosen) =
        open(&cluster, EXEC, "v5.channel.k8s.io, v4.channel.k8s.io").await.expect("opened");
    assert_eq!(chosen, "v5.channel.k8s.io");
    let send = |bytes: &'static [u8]| Message::binary(Bytes::from_static(bytes));
    socket.send(send(b"\x04{\"Width\":80,\"Height\":24}")).await.expect("sent");
    socket.send(send(b"\x00hel")).await.expect("sent");
    socket.send(Message::text("\u{0}lo")).await.expect("sent");
    let mut got = Vec::new();
    let said = |got: &[(u8, String)], channel: u8| -> String {
        got.iter().filter(|(from, _)| *from == channel).map(|(_, text)| text.as_str()).collect()
    };
    while (said(&got, 1).as_str(), said(&got, 2).as_str()) != ("HELLO", "80x24") {
        let Some(Ok(Message::Binary(bytes))) = socket.next().await else { panic!("{got:?}") };
        got.push((bytes[0], String::from_utf8(bytes[1..].to_vec()).expect("UTF-8")));
    }
    assert_eq!(got[0], (1, String::new()), "the connection is there");
    socket.send(send(&[255, 0])).await.expect("sent");
    let status = json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": "command terminated with non-zero exit code: exit status 7",
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    });
    assert_eq!(rest(&mut socket).await, (vec![(3, status.to_string())], Some(CloseCode::Normal)));
    assert_eq!(node.asked(), ["exec one/c [\"shout\", \"-v\"]"]);
}

#[tokio::test]
async fn how_a_session_ends_is_said_on_the_channel_for_it() {
    let (cluster, node) = served(Node::default()).await;
    let internal = |why: &str| {
        failure(
            500,
            "InternalError",
            &format!("Internal error occurred: {why}"),
            json!({"causes": [{"message": why}]}),
        )
    };
    let success = json!({"metadata": {}, "status": "Success"});
    let hello = (1, String::new());
    for (path, want) in [
        ("one/exec?command=true&stdout=true", vec![hello.clone(), (3, success.to_string())]),
        (
            "one/exec?command=missing&stdout=true",
            vec![(3, internal("error executing command in container: no such program").to_string())],
        ),
        (
            "one/exec?command=gone&stdout=true",
            vec![(3, internal("unable to upgrade connection: container not found (\"c\")").to_string())],
        ),
        (
            "one/attach?stdout=true&stderr=true&tty=true",
            vec![hello, (1, "seen".to_owned()), (3, success.to_string())],
        ),
    ] {
        let (mut socket, chosen) = open(&cluster, path, "v4.channel.k8s.io").await.expect("opened");
        assert_eq!(chosen, "v4.channel.k8s.io");
        let (messages, code) = rest(&mut socket).await;
        let parsed = |messages: &[(u8, String)]| -> Vec<(u8, Value)> {
            let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            messages.iter().map(|(channel, text)| (*channel, value(text))).collect()
        };
        assert_eq!((parsed(&messages), code), (parsed(&want), Some(CloseCode::Normal)), "{path}");
    }
    let want = "attach one/c Streams { stdin: false, stdout: true, stderr: false, tty: true }";
    assert_eq!(node.asked().pop().as_deref(), Some(want), "a terminal has no errors of its own");
}

#[tokio::test]
async fn what_opens_no_session_is_refused_with_a_reason() {
    let (cluster, node) = served(Node::default()).await;
    let all = "command=true&stdout=true";
    let spdy = "exec and attach are served over WebSocket (v5.channel.k8s.io), not over SPDY/3.1; use kubectl 1.31 or newer";
    let v5 = "v5.channel.k8s.io";
    let none = "none of the requested protocols is one of v5.channel.k8s.io, v4.channel.k8s.io";
    for (path, protocols, code, message) in [
        ("late/exec", v5, 400, "pod late does not have a host assigned"),
        ("lost/exec", v5, 404, "nodes \"n9\" not found"),
        ("two/exec", v5, 400, "a container name must be specified for pod two, choose one of: [i a b]"),
        ("one/exec", "v1.channel.k8s.io", 400, none),
        ("one/attach", "SPDY/3.1+portforward.k8s.io", 400, none),
    ] {
        let Err(WsError::Http(response)) = open(&cluster, &format!("{path}?{all}"), protocols).await else {
            panic!("{path} was opened");
        };
        let body: Value =
            serde_json::from_slice(response.body().as_deref().unwrap_or_default()).expect("JSON");
        assert_eq!((response.status().as_u16(), &body["message"]), (code, &json!(message)), "{path}");
    }
    for (method, query, headers, message) in [
        (Method::POST, all, vec![("upgrade", "SPDY/3.1"), ("connection", "Upgrade")], spdy),
        (Method::GET, all, vec![("upgrade", "SPDY/3.1"), ("connection", "Upgrade")], spdy),
        (Method::GET, all, vec![], "Upgrade request required"),
        (Method::GET, "command=true", vec![], "you must specify at least 1 of stdin, stdout, stderr"),
    ] {
        let mut request = Request::builder().method(method.clone()).uri(format!("{PODS}/one/exec?{query}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let response =
            tower::ServiceExt::oneshot(cluster.server.router(), request).await.expect("infallible");
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!((code, &body["message"]), (400, &json!(message)), "{method} {query}");
    }
    assert_eq!(node.asked(), Vec::<String>::new(), "no node was asked");
    for (method, path) in
        [(Method::PUT, "one/log"), (Method::PUT, "one/exec"), (Method::DELETE, "one/attach")]
    {
        let answer = cluster.send(method, &format!("{PODS}/{path}"), "", String::new()).await;
        assert_eq!(answer.code, 405, "{path}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_opens_no_shell() {
    let (cluster, _) = served(Node::default()).await;
    for (origin, want) in
        [("https://server", 101), ("https://evil.example", 403), ("null", 403), ("https://server.evil", 403)]
    {
        let request =
            upgrade(&format!("ws://server{PODS}/one/exec?command=true&stdout=true"), "v5.channel.k8s.io")
                .header("origin", origin)
                .body(())
                .expect("a request");
        let code = match tokio_tungstenite::client_async(request, connect(&cluster)).await {
            Ok((_, response)) => response.status().as_u16(),
            Err(WsError::Http(response)) => response.status().as_u16(),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(code, want, "{origin}");
    }
}

fn peer(user: &str) -> Peer {
    let certified = Certified { identity: Identity::new(user, vec![]), not_after: i64::MAX };
    Peer { certified: Some(certified), has_certificate: true, ..Peer::default() }
}

async fn guarded(guard: &Guard, user: &str, path: &str) -> (u16, Value) {
    let request =
        upgrade(&format!("{PODS}/{path}"), "v5.channel.k8s.io").body(Body::empty()).expect("a request");
    let response = guard.answer(&peer(user), request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn grant(cluster: &Cluster, user: &str, resource: &str, verb: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "metadata": {"name": user}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}],
    });
    let binding = json!({
        "metadata": {"name": user}, "roleRef": {"kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user}],
    });
    for (path, body) in [("roles", role), ("rolebindings", binding)] {
        let answer = cluster.post(&format!("{rbac}/{path}"), body).await;
        assert_eq!(answer.code, 201, "{answer:?}");
    }
}

#[tokio::test]
async fn who_may_only_get_may_read_logs_and_open_no_shell() {
    let (cluster, _) = served(Node::default()).await;
    let guard = Guard::new(&cluster.server, Tokens::none(), Limits::default()).expect("a guard");
    grant(&cluster, "reader", "*", "get").await;
    assert_eq!(guarded(&guard, "reader", "one/log").await.0, 200);
    for subresource in ["exec", "attach"] {
        let (code, body) =
            guarded(&guard, "reader", &format!("one/{subresource}?command=true&stdout=true")).await;
        let message = format!(
            "pods \"one\" is forbidden: User \"reader\" cannot create resource \"pods/{subresource}\" in API group \"\" in \
             the namespace \"default\""
        );
        assert_eq!((code, &body["message"]), (403, &json!(message)));
    }
    let (code, body) = guarded(&guard, "nobody", "one/log").await;
    let message = "pods \"one\" is forbidden: User \"nobody\" cannot get resource \"pods/log\" in API group \"\" in the \
                   namespace \"default\"";
    assert_eq!((code, &body["message"]), (403, &json!(message)));
    grant(&cluster, "operator", "pods/exec", "*").await;
    let (code, body) = guarded(&guard, "operator", "one/exec?command=true&stdout=true").await;
    // Only the connection is missing.
    let message = "unable to upgrade: this connection can't become a WebSocket";
    assert_eq!((code, &body["message"]), (400, &json!(message)));
}

#[tokio::test]
async fn streams_that_last_are_counted_as_watches_until_they_end() {
    let (cluster, _) = served(Node::default()).await;
    let limits = Limits { watches_each: 1, ..Limits::default() };
    let guard = Guard::new(&cluster.server, Tokens::none(), limits).expect("a guard");
    grant(&cluster, "reader", "*", "*").await;
    let follow = || {
        let request = Request::builder().uri(format!("{PODS}/one/log?follow=true")).body(Body::empty());
        guard.answer(&PEER, request.expect("a request"))
    };
    static PEER: std::sync::LazyLock<Peer> = std::sync::LazyLock::new(|| peer("reader"));
    let first = follow().await;
    assert_eq!(first.status(), 200);
    assert_eq!(follow().await.status(), 429, "one is open");
    assert_eq!(guarded(&guard, "reader", "one/exec?command=true&stdout=true").await.0, 429);
    assert_eq!(guarded(&guard, "reader", "one/log").await.0, 429, "a log may be long");
    drop(first);
    assert_eq!(follow().await.status(), 200);
}
