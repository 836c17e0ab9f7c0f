//! Following all objects of a kind: list, then watch, and again from the start when the watch breaks.
//!
//! ```text
//!   list, page by page ──> watch from there ──closed──> watch from the last event
//!          ^                                └──410────────┐
//!          └───────────────── after a while ──────────────┘
//! ```
//!
//! kube's watcher reads typed objects from lines of JSON. For the kinds that make up most of what comes that costs more than
//! what is done about it: here it is up to the object how much of it is read, and from which form, and within one process
//! events are taken as they are stored ([`windlass_streams::handed`]).

mod caller;
mod form;
#[cfg(test)]
mod tests;
mod unhurried;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use http::{Request, Response};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::runtime::watcher::DefaultBackoff;
pub use kube::runtime::watcher::Event;
use tokio::time::Instant;
use tokio_util::codec::{AnyDelimiterCodec, Decoder, FramedRead, LengthDelimitedCodec};
use tokio_util::io::StreamReader;
use windlass_streams::handed::{Handed, Wanted};

pub use caller::{Caller, is_gone};
pub use form::{Form, Heard, Object, Page, json_event, json_page, json_refusal};
pub use unhurried::unhurried;

/// Objects in a page of the list.
const PAGE: u32 = 500;
/// The server ends a watch after this long.
const WATCH_SECONDS: u32 = 290;
/// One that it has not ended by then is dead.
const WATCH_TIME_MAX: Duration = Duration::from_secs(300);
/// A watch that is closed sooner, and has said nothing, did not work.
const WATCH_TIME_MIN: Duration = Duration::from_secs(1);
/// No event is longer: objects of Kubernetes are not.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Where they are: `kube::Resource::url_path`.
    pub path: String,
    /// Only those whose fields are so.
    pub fields: Option<String>,
}

/// Every change of these objects, for ever. Nothing is lost when a wait for the next one is given up.
pub fn follow<T: Object>(client: Client, objects: Objects) -> impl Stream<Item = Event<T>> + Send + use<T> {
    let Objects { path, fields } = objects;
    let follower = Follower {
        client,
        requests: kube::core::Request::new(path),
        fields,
        from: None,
        next_page: None,
        open: None,
        backoff: DefaultBackoff::default(),
        unheard: VecDeque::new(),
    };
    stream::unfold(Box::new(follower), |mut follower| async move {
        let event = follower.next().await;
        Some((event, follower))
    })
}

/// A watch that is open.
struct Open<T> {
    events: BoxStream<'static, kube::Result<Heard<T>>>,
    since: Instant,
    /// It has said something.
    is_heard: bool,
}

/// What is followed, and how far it was.
struct Follower<T> {
    client: Client,
    requests: kube::core::Request,
    fields: Option<String>,
    /// The version that a watch goes on from; a list comes first if there is none.
    from: Option<String>,
    /// What to ask for the next page of the list with, in the middle of one.
    next_page: Option<String>,
    open: Option<Open<T>>,
    backoff: DefaultBackoff,
    /// What a page has brought, and was not taken yet.
    unheard: VecDeque<Event<T>>,
}

impl<T: Object> Follower<T> {
    async fn next(&mut self) -> Event<T> {
        loop {
            if let Some(event) = self.unheard.pop_front() {
                return event;
            }
            match self.step().await {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(error) => {
                    self.open = None;
                    if matches!(&error, kube::Error::Api(status) if status.code == 410) {
                        self.from = None;
                    }
                    tracing::warn!(kind = T::KIND, %error, "the watch broke, starting again");
                    tokio::time::sleep(self.backoff.next().unwrap_or_default()).await;
                }
            }
        }
    }

    async fn step(&mut self) -> kube::Result<Option<Event<T>>> {
        if self.open.is_some() {
            return self.hear().await;
        }
        match self.from.clone() {
            Some(from) => self.watch(&from).await?,
            None => self.list().await?,
        }
        Ok(None)
    }

    /// Asks for one page: those before it are taken first, so that no more is held.
    async fn list(&mut self) -> kube::Result<()> {
        let mut params =
            ListParams { field_selector: self.fields.clone(), ..ListParams::default() }.limit(PAGE);
        match self.next_page.take() {
            Some(token) => params = params.continue_token(&token),
            None => self.unheard.push_back(Event::Init),
        }
        let answer = send::<T>(&self.client, self.requests.list(&params)).await?;
        let form = Form::of(answer.headers());
        let page = T::page(form, &answer.into_body().collect_bytes().await?)?;
        self.unheard.extend(page.objects.into_iter().map(Event::InitApply));
        if page.next.is_empty() {
            self.from = Some(page.resource_version);
            self.unheard.push_back(Event::InitDone);
            self.backoff = DefaultBackoff::default();
        } else {
            self.next_page = Some(page.next);
        }
        Ok(())
    }

    async fn watch(&mut self, from: &str) -> kube::Result<()> {
        let params = WatchParams { field_selector: self.fields.clone(), ..WatchParams::default() };
        let request = self.requests.watch(&params.timeout(WATCH_SECONDS), from);
        let answer = send::<T>(&self.client, request).await?;
        self.open = Some(Open { events: events(answer), since: Instant::now(), is_heard: false });
        Ok(())
    }

    /// The next change; nothing if there was none to tell of, or the watch has ended.
    async fn hear(&mut self) -> kube::Result<Option<Event<T>>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let next = tokio::time::timeout_at(open.since + WATCH_TIME_MAX, open.events.next()).await;
        let Ok(Some(heard)) = next else {
            let has_worked = next.is_err() || open.is_heard || open.since.elapsed() >= WATCH_TIME_MIN;
            self.open = None;
            if !has_worked {
                return Err(kube::Error::Service("the server closes every watch at once".into()));
            }
            self.backoff = DefaultBackoff::default();
            return Ok(None);
        };
        open.is_heard = true;
        Ok(match heard? {
            Heard::Applied(object) => {
                self.from = object.version().map(str::to_owned);
                Some(Event::Apply(object))
            }
            Heard::Deleted(object) => {
                self.from = object.version().map(str::to_owned);
                Some(Event::Delete(object))
            }
            Heard::Bookmark(version) => {
                self.from = Some(version);
                None
            }
            Heard::Failed(status) => return Err(kube::Error::Api(status)),
        })
    }
}

async fn send<T: Object>(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<Response<Body>> {
    let mut request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
    if T::READS_PROTOBUF {
        Form::prefer_protobuf(request.headers_mut());
    }
    request.extensions_mut().insert(Wanted);
    let answer = client.send(request).await?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (status, form) = (answer.status(), Form::of(answer.headers()));
    Err(T::refusal(form, status, &answer.into_body().collect_bytes().await?))
}

/// What a watch says, in whatever form it says it.
fn events<T: Object>(answer: Response<Body>) -> BoxStream<'static, kube::Result<Heard<T>>> {
    if let Some(handed) = answer.extensions().get::<Handed>().and_then(Handed::take) {
        return handed.map(|said| Heard::of(said.kind, &said.object)).boxed();
    }
    let form = Form::of(answer.headers());
    let body = answer.into_body();
    let frames = match form {
        Form::Json => {
            let (line_end, unused) = (b"\n".to_vec(), Vec::new());
            frames(body, AnyDelimiterCodec::new_with_max_length(line_end, unused, FRAME_BYTES_MAX)).boxed()
        }
        Form::Protobuf => {
            frames(body, LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec())
                .boxed()
        }
    };
    frames
        .try_filter(|frame| std::future::ready(!frame.is_empty()))
        .map(move |frame| T::event(form, &frame?))
        .boxed()
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
