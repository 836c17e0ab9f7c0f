//! A scripted server, and what is heard of it.

use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use tower::service_fn;
use windlass_streams::handed::{Kind, Said};

use super::*;

/// A thing with a name.
struct Thing {
    name: String,
    version: String,
}

impl Object for Thing {
    const KIND: &'static str = "Thing";

    fn from_json(object: &Bytes) -> serde_json::Result<Self> {
        let value: serde_json::Value = serde_json::from_slice(object)?;
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        Ok(Self { name: text("name"), version: text("resourceVersion") })
    }

    fn from_json_deleted(object: &Bytes) -> serde_json::Result<Self> {
        Self::from_json(object).map(|thing| Self { name: format!("late {}", thing.name), ..thing })
    }

    fn version(&self) -> Option<&str> {
        Some(&self.version)
    }
}

fn thing(name: &str, version: u64) -> Bytes {
    let meta = serde_json::json!({"name": name, "resourceVersion": version.to_string()});
    Bytes::from(serde_json::json!({"metadata": meta}).to_string())
}

fn list(version: &str, next: &str, items: &[Bytes]) -> Response<axum::body::Body> {
    let items: Vec<&str> = items.iter().map(|item| std::str::from_utf8(item).expect("text")).collect();
    let meta = serde_json::json!({"resourceVersion": version, "continue": next});
    Response::new(format!("{{\"metadata\":{meta},\"items\":[{}]}}", items.join(",")).into())
}

/// The same events as a body, or handed over.
fn watch(events: &[(Kind, Bytes)], is_handed: bool) -> Response<axum::body::Body> {
    if is_handed {
        let said: Vec<Said> =
            events.iter().map(|(kind, object)| Said { kind: *kind, object: object.clone() }).collect();
        let mut answer = Response::new(axum::body::Body::empty());
        answer.extensions_mut().insert(Handed::new(stream::iter(said)));
        return answer;
    }
    let line = |(kind, object): &(Kind, Bytes)| {
        format!(
            "{{\"type\":\"{}\",\"object\":{}}}\n",
            kind.text(),
            std::str::from_utf8(object).expect("text")
        )
    };
    Response::new(events.iter().map(line).collect::<String>().into())
}

/// What is heard of a server that gives these answers, and what it was asked.
async fn heard(answers: Vec<Response<axum::body::Body>>, count: usize) -> (Vec<String>, Vec<String>) {
    let (answers, asked) = (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::new(Mutex::new(Vec::new())));
    let asking = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        assert!(request.extensions().get::<Wanted>().is_some(), "it says that it is in this process");
        asking.lock().push(request.uri().to_string());
        let answer = answers.lock().pop_front();
        async move {
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    let objects = Objects { path: "/api/v1/things".to_owned(), fields: Some("a=b".to_owned()) };
    let mut events = std::pin::pin!(follow::<Thing>(Client::new(service, "default"), objects));
    let mut told = Vec::new();
    while told.len() < count {
        // Given up at every step, as in a loop that waits for something else too.
        let next = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
        told.extend(next.ok().flatten().map(|event| match event {
            Event::Init => "begin".to_owned(),
            Event::InitApply(thing) => format!("listed {}", thing.name),
            Event::InitDone => "end".to_owned(),
            Event::Apply(thing) => format!("saw {}", thing.name),
            Event::Delete(thing) => format!("lost {}", thing.name),
        }));
    }
    // What comes next is asked for, and not answered.
    assert!(tokio::time::timeout(Duration::from_millis(1), events.next()).await.is_err());
    let asked = asked.lock().clone();
    (told, asked)
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_over_is_what_would_have_been_written() {
    let events = [
        (Kind::Added, thing("c", 8)),
        (Kind::Modified, thing("c", 9)),
        (Kind::Deleted, thing("c", 10)),
        (Kind::Bookmark, thing("", 12)),
    ];
    for is_handed in [false, true] {
        let answers = vec![
            list("7", "more", &[thing("a", 5)]),
            list("7", "", &[thing("b", 6)]),
            watch(&events, is_handed),
        ];
        let (told, asked) = heard(answers, 7).await;
        assert_eq!(
            told,
            ["begin", "listed a", "listed b", "end", "saw c", "saw c", "lost late c"],
            "{is_handed}"
        );
        let versions = asked.iter().map(|uri| uri.split("resourceVersion=").nth(1).unwrap_or("list"));
        assert_eq!(versions.collect::<Vec<_>>(), ["list", "list", "7", "12"], "{is_handed}");
        assert!(asked.iter().all(|uri| uri.contains("fieldSelector=a%3Db")), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_handed_over_ends_the_watch_and_a_list_follows_when_it_is_too_old() {
    let expired = Bytes::from(r#"{"code":410,"reason":"Expired","message":"too old"}"#);
    for is_handed in [false, true] {
        let answers = vec![
            list("7", "", &[]),
            watch(&[(Kind::Added, thing("a", 8)), (Kind::Error, expired.clone())], is_handed),
            list("20", "", &[thing("b", 19)]),
        ];
        let (told, _) = heard(answers, 6).await;
        assert_eq!(told, ["begin", "end", "saw a", "begin", "listed b", "end"], "{is_handed}");
    }
}
