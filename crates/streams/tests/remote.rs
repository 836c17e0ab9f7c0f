//! Both ends of the connections that nodes open, with a pipe between them instead of a network.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use windlass_streams::{
    Container, Error, Exec, Log, LogOptions, PodStreams, Remote, Run, Session, Size, Streams, offer, wire,
};

const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

/// A node that notes what it is asked for. `exec` of `cat` gives back what it reads and ends with 7.
#[derive(Default)]
struct Node {
    asked: Mutex<Vec<String>>,
    is_log_dropped: Arc<AtomicBool>,
}

/// Sets a flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl PodStreams for Node {
    fn has(&self, node: &str) -> bool {
        node == "two"
    }

    fn logs(&self, run: Run, options: LogOptions) -> BoxFuture<'_, Result<Log, Error>> {
        self.asked.lock().push(format!("log {} {options:?}", run.id));
        let pieces = match options.follow {
            false => futures::stream::iter([Ok(Bytes::from("one\n")), Ok(Bytes::from("two\n"))]).boxed(),
            true => {
                let flag = Flag(Arc::clone(&self.is_log_dropped));
                futures::stream::once(async { Ok(Bytes::from("one\n")) })
                    .chain(futures::stream::pending())
                    .inspect(move |_| {
                        let _held = &flag;
                    })
                    .boxed()
            }
        };
        std::future::ready(Ok(Log { chunks: pieces, bytes: 8 })).boxed()
    }

    fn exec(&self, container: Container, exec: Exec) -> BoxFuture<'_, Result<Session, Error>> {
        self.asked.lock().push(format!("exec {} {:?}", container.name, exec.command));
        let session = match exec.command.first().map(String::as_str) {
            Some("cat") => Ok(cat()),
            _ => Err(Error::NotRunning(container.name)),
        };
        std::future::ready(session).boxed()
    }

    fn attach(&self, container: Container, streams: Streams) -> BoxFuture<'_, Result<Session, Error>> {
        self.asked.lock().push(format!("attach {} {streams:?}", container.name));
        std::future::ready(Ok(cat())).boxed()
    }
}

/// Echoes its input, tells of sizes on the other stream, and ends with 7.
fn cat() -> Session {
    let (theirs, ours) = tokio::io::duplex(1024);
    let (sender, sizes) = futures::channel::mpsc::unbounded();
    let (end, ended) = futures::channel::oneshot::channel();
    let read = futures::stream::unfold((ours, Some(end)), |(mut ours, mut end)| async move {
        let mut piece = vec![0; 512];
        match ours.read(&mut piece).await {
            Ok(count) if count > 0 => Some((Ok(Bytes::copy_from_slice(&piece[..count])), (ours, end))),
            _ => {
                let _ = end.take().map(|end: futures::channel::oneshot::Sender<()>| end.send(()));
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
        ended: ended.map(|_| Ok(7)).boxed(),
    }
}

fn container() -> Container {
    Container {
        node: "two".into(),
        namespace: "default".into(),
        pod: "p".into(),
        uid: "u".into(),
        name: "c".into(),
    }
}

/// A server, and the node `two` that offers itself to it. The first `cut` of its connections are lost at once.
fn connected_after(cut: usize) -> (Arc<Remote>, Arc<Node>) {
    let (remote, node) = (Arc::new(Remote::default()), Arc::new(Node::default()));
    let (server, opened) = (Arc::clone(&remote), AtomicUsize::new(0));
    let connect = move || {
        let is_cut = opened.fetch_add(1, Ordering::SeqCst) < cut;
        let place = server.enter("two", ()).expect("room");
        async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            if !is_cut {
                let socket = wire::socket(ours, Role::Server).await;
                tokio::spawn(Remote::keep(place, socket));
            }
            Ok::<_, io::Error>(wire::socket(theirs, Role::Client).await)
        }
    };
    let streams = Arc::clone(&node) as Arc<dyn PodStreams>;
    tokio::spawn(async move { offer(connect, streams).await });
    (remote, node)
}

fn connected() -> (Arc<Remote>, Arc<Node>) {
    connected_after(0)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_its_connections_opens_others() {
    let (remote, _node) = connected_after(6);
    let run = Run { container: container(), id: "host://u/c/0".into() };
    assert_eq!(remote.logs(run, LogOptions::default()).await.expect("a log").bytes, 8);
}

#[tokio::test]
async fn logs_come_whole_and_with_their_options() {
    let (remote, node) = connected();
    let run = Run { container: container(), id: "host://u/c/0".into() };
    let options = LogOptions { tail_lines: Some(2), ..LogOptions::default() };
    let log = remote.logs(run, options.clone()).await.expect("a log");
    let pieces: Vec<Bytes> = log.chunks.try_collect().await.expect("whole");
    assert_eq!((log.bytes, pieces.concat()), (8, b"one\ntwo\n".to_vec()));
    assert_eq!(*node.asked.lock(), [format!("log host://u/c/0 {options:?}")]);
}

#[tokio::test]
async fn who_follows_no_more_lets_the_node_go() {
    let (remote, node) = connected();
    let run = Run { container: container(), id: "host://u/c/0".into() };
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut log = remote.logs(run, options).await.expect("a log");
    assert_eq!(log.chunks.next().await.expect("a piece").expect("read"), "one\n");
    assert!(!node.is_log_dropped.load(Ordering::SeqCst));
    drop(log);
    let dropped = async {
        while !node.is_log_dropped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dropped).await.expect("the node reads no more");
}

#[tokio::test]
async fn a_session_carries_input_output_sizes_and_the_exit_code() {
    let (remote, _node) = connected();
    for _ in 0..20 {
        let exec = Exec { command: vec!["cat".into()], streams: ALL };
        let mut session = remote.exec(container(), exec).await.expect("a session");
        let mut stdin = session.stdin.take().expect("input");
        (session.resize)(Size { width: 80, height: 25 });
        let input: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let sent = input.clone();
        let sending = async move {
            stdin.write_all(&sent).await.expect("taken");
            stdin.shutdown().await.expect("closed");
            drop(stdin);
        };
        let reading = session.stdout.try_collect::<Vec<Bytes>>();
        let ((), output, sizes) =
            futures::join!(sending, reading, session.stderr.try_collect::<Vec<Bytes>>());
        assert!(output.expect("whole").concat() == input, "what went in comes out");
        assert_eq!(sizes.expect("whole"), ["80x25"]);
        assert_eq!(session.ended.await, Ok(7));
    }
}

#[tokio::test]
async fn a_refusal_is_that_of_the_node() {
    let (remote, _node) = connected();
    let exec = Exec { command: vec!["gone".into()], streams: ALL };
    let error = remote.exec(container(), exec).await.map(drop).expect_err("refused");
    assert_eq!(error, Error::NotRunning("c".into()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_came_is_waited_for_and_then_not_there() {
    let remote = Arc::new(Remote::default());
    let error = remote.attach(container(), ALL).await.map(drop).expect_err("nobody");
    assert_eq!(error, Error::NoNode("two".into()));
}

/// A server with one connection, of whose other end the test has hold.
async fn by_hand() -> (Arc<Remote>, wire::Socket) {
    let remote = Arc::new(Remote::default());
    let place = remote.enter("two", ()).expect("room");
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let socket = wire::socket(ours, Role::Server).await;
    tokio::spawn(Remote::keep(place, socket));
    (remote, wire::socket(theirs, Role::Client).await)
}

#[tokio::test]
async fn a_node_that_speaks_out_of_turn_or_goes_away_loses_its_connection() {
    let text = |text: &str| vec![Message::text(text.to_owned())];
    let lost = "the connection to node \"two\" was lost: ";
    for (said, want) in [
        (text("nonsense"), lost),
        (vec![Message::binary(vec![1, 2, 3])], lost),
        (vec![Message::binary(vec![])], lost),
        (vec![Message::Close(None)], lost),
        (vec![], lost),
        (text(r#"{"Log": 5}"#), "node \"two\" answered Log(5), which was not asked for"),
    ] {
        let (remote, mut node) = by_hand().await;
        let asked = remote.attach(container(), ALL);
        let answer = async {
            node.next().await.expect("a call").expect("read");
            for message in said.clone() {
                node.send(message).await.expect("sent");
            }
            drop(node);
        };
        let (asked, ()) = futures::join!(asked, answer);
        let error = asked.map(drop).expect_err("no session").to_string();
        assert!(error.starts_with(want), "{said:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stands_still_is_given_up() {
    let (remote, _node) = by_hand().await;
    let error = remote.attach(container(), ALL).await.map(drop).expect_err("no answer");
    assert_eq!(error.to_string(), "node \"two\" does not answer");
    // And one that only keeps its connection open does not keep its place.
    let (remote, _node) = by_hand().await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = remote.attach(container(), ALL).await.map(drop).expect_err("no connection");
    assert_eq!(error, Error::NoNode("two".into()));
}

#[tokio::test]
async fn the_connections_of_a_node_are_counted() {
    let remote = Arc::new(Remote::default());
    let places: Vec<_> = std::iter::from_fn(|| remote.enter("two", ())).collect();
    assert_eq!(places.len(), 300);
    assert!(remote.enter("three", ()).is_some(), "others have their own");
    drop(places);
    assert!(remote.enter("two", ()).is_some());
}

#[tokio::test]
async fn output_of_a_lost_node_ends_with_an_error() {
    let (remote, mut node) = by_hand().await;
    let run = Run { container: container(), id: "host://u/c/0".into() };
    let asked = remote.logs(run, LogOptions::default());
    let answer = async {
        node.next().await.expect("a call").expect("read");
        node.send(Message::text(r#"{"Log": 5}"#)).await.expect("sent");
        node.send(Message::binary(b"\x01half".to_vec())).await.expect("sent");
        drop(node);
    };
    let (log, ()) = futures::join!(asked, answer);
    let mut chunks = log.expect("a log").chunks;
    assert_eq!(chunks.next().await.expect("a piece").expect("read"), "half");
    chunks.next().await.expect("an end").expect_err("that is said to be none");
}
