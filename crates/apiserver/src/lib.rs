//! A Kubernetes API server for batch work, as a tower service inside the process.
//!
//! ```text
//!  kube::Client ──► Server::router() ──► request (path, query, body) ──► discovery (what is served, health)
//!                                          │
//!              ┌──────────────┬────────────┴─┬───────────────┬─────────────┐
//!            read           watch       create, write      delete        pods, streams
//!        (get, list)   (stream of events) (POST, PUT,    (grace, final-  (binding, eviction;
//!              │              │            PATCH)         izers)         log, exec, attach)
//!              └──────────────┴──────┬───────┴───────────────┴─────────────┘
//!              form (object, table, metadata)   decode (unknown fields)
//!                                    │
//!                        resources (one table) + hooks (per kind)
//!                                    │
//!                              windlass_store
//! ```
//!
//! The record of an object is its JSON: fields that this server does not know survive every write. Typed structs are
//! views, taken only where a rule needs one. Errors are made in [`status`], and nowhere else.

mod accept;
mod admission;
mod answer;
mod apply;
pub mod auth;
mod body;
mod bootstrap;
mod create;
mod decode;
mod delete;
mod discovery;
mod environment;
mod events;
mod eviction;
mod fields;
mod form;
mod go_json;
mod health;
pub mod hooks;
mod managed;
mod metrics;
mod object;
mod patch;
mod pods;
pub mod protobuf;
mod read;
mod recent;
mod request;
pub mod resources;
pub mod serve;
pub mod service_account;
mod specs;
pub mod status;
mod strategic;
mod streams;
mod table;
mod types;
mod view;
mod watch;
mod write;
mod yaml;

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Collected};
use windlass_api::Gates;
use windlass_store::{Key, Limits, Log, OnDamage, Store};
use windlass_streams::door::{self, Door};
use windlass_streams::{PodStreams, Remote, wire};

pub use environment::{Clock, Entropy, SystemClock, SystemEntropy};
pub use object::{Attributes, Object};
pub use pods::Placing;

use form::Form;
use managed::Writer;
use request::{Query, Target};
use status::{Result, Status};
use write::Answer;

/// How a server is set up.
pub struct Config {
    /// Which features are on.
    pub gates: Gates,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives UIDs and generated names.
    pub entropy: Arc<dyn Entropy>,
    /// Bounds of the watch history.
    pub limits: Limits,
    /// What accounts and priority classes mean to pods.
    pub accounts: Accounts,
}

/// What accounts, priority classes and lost nodes mean to pods: upstream's admission plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// Nothing: one user runs their own Jobs, and what a pod says about a cluster need not be there.
    Ignored,
    /// What they mean in a cluster, but for tokens: nodes have no volumes to put them in.
    Checked,
    /// All that they mean in a cluster.
    Mounted,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gates: Gates::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            limits: Limits::default(),
            accounts: Accounts::Mounted,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("gates", &self.gates)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Gives the figures of a component as Prometheus reads them, `# EOF` at the end.
pub type Figures = Box<dyn Fn() -> String + Send + Sync>;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) store: Arc<Store<Attributes>>,
    pub(crate) config: Config,
    pub(crate) recent: recent::Recent,
    pub(crate) specs: specs::Specs,
    /// Watches opened so far: spreads the ends of those that were opened together.
    pub(crate) watches: AtomicU64,
    /// The certificate that clients in pods trust, once it is known.
    pub(crate) root_ca: OnceLock<String>,
    /// What tokens are signed with.
    pub(crate) token_key: OnceLock<service_account::Key>,
    /// Whether the server is about to end.
    pub(crate) is_stopping: AtomicBool,
    pub(crate) metrics: metrics::Metrics,
    /// The figures of other components, once somebody has them.
    pub(crate) figures: OnceLock<Figures>,
    /// Who places pods while they are made, once somebody does.
    pub(crate) placing: OnceLock<Arc<dyn Placing>>,
    /// Who answers for the nodes of this process, once somebody does.
    pub(crate) streams: OnceLock<Arc<dyn PodStreams>>,
    /// The nodes in processes of their own.
    pub(crate) remote: Arc<Remote>,
    /// Whether writes wait for a disk.
    pub(crate) is_durable: bool,
}

/// Why a server that keeps its objects could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store was not opened.
    #[error(transparent)]
    Store(#[from] windlass_store::OpenError),
    /// What every server has could not be made.
    #[error("create the first objects: {0}")]
    First(String),
}

impl Shared {
    /// The time, as objects write it.
    pub(crate) fn now_text(&self) -> String {
        environment::text(self.config.clock.now())
    }
}

/// The API server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Server {
    /// A server with a store in memory, with nothing in it but what every server has.
    pub fn new(config: Config) -> Self {
        let store = Store::new(config.limits);
        Self::with_store(config, store, false).expect("the store is empty and the namespaces valid")
    }

    /// A server that keeps its objects in a directory, and has those that an earlier one kept there.
    pub fn open(config: Config, directory: &Path) -> std::result::Result<Self, OpenError> {
        let store = Store::open(directory, config.limits, OnDamage::Refuse, &attributes_of)?;
        Self::with_store(config, store, true)
            .map_err(|status| OpenError::First(status.to_json()["message"].to_string()))
    }

    /// A server on a log that may fail: for tests.
    pub fn open_log(config: Config, log: Box<dyn Log>) -> std::result::Result<Self, OpenError> {
        let store = Store::open_log(log, config.limits, OnDamage::Refuse, &attributes_of)?;
        Self::with_store(config, store, true)
            .map_err(|status| OpenError::First(status.to_json()["message"].to_string()))
    }

    fn with_store(config: Config, store: Store<Attributes>, is_durable: bool) -> Result<Self> {
        let shared = Shared {
            store: Arc::new(store),
            config,
            recent: recent::Recent::default(),
            specs: specs::Specs::default(),
            watches: AtomicU64::new(0),
            root_ca: OnceLock::new(),
            token_key: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            metrics: metrics::Metrics::new(),
            figures: OnceLock::new(),
            placing: OnceLock::new(),
            streams: OnceLock::new(),
            remote: Arc::default(),
            is_durable,
        };
        bootstrap::install(&shared)?;
        Ok(Self(Arc::new(shared)))
    }

    /// Shows the figures of other components in the same process at `/metrics`, beside its own.
    pub fn publish_figures(&self, figures: Figures) {
        self.0.figures.get_or_init(|| figures);
    }

    /// Tells clients in pods which certificate to trust: a ConfigMap of it is in every namespace from now on.
    pub fn publish_ca(&self, pem: &str) -> Result<()> {
        self.0.root_ca.get_or_init(|| pem.to_owned());
        bootstrap::fill_all(&self.0)
    }

    /// Signs tokens with this key instead of one that is gone with the process. Only the first key counts, so this comes
    /// before the first token.
    pub fn sign_tokens_with(&self, key: service_account::Key) {
        self.0.token_key.get_or_init(|| key);
    }

    /// The HTTP service. `kube::Client::new(server.router(), "default")` talks to it without a socket.
    pub fn router(&self) -> Router {
        Router::new().fallback(serve).with_state(Arc::clone(&self.0))
    }

    /// The same for components of this process. Objects that they create do not say who owns their fields, until somebody
    /// applies to them: nobody does that to the pods of a Job, and it would make them half as large again.
    pub fn own_service(&self) -> OwnService {
        OwnService { shared: Arc::clone(&self.0), is_counted: true }
    }

    /// The same for a process whose figures nobody can ask for: requests are not counted.
    pub fn own_service_without_figures(&self) -> OwnService {
        OwnService { is_counted: false, ..self.own_service() }
    }

    /// Has pods placed while they are made, so that they are not written once more to get a node. Only the first call counts.
    pub fn place_pods(&self, placing: Arc<dyn Placing>) {
        if self.0.placing.set(placing).is_err() {
            tracing::warn!("somebody places pods already");
        }
    }

    /// Has logs, exec and attach answered by the nodes of this process. Only the first call counts.
    pub fn serve_streams(&self, streams: Arc<dyn PodStreams>) {
        if self.0.streams.set(streams).is_err() {
            tracing::warn!("somebody answers for the nodes already");
        }
    }

    /// The store behind the server, for those who look at it without HTTP (tests, `windlass run` at its end).
    pub fn store(&self) -> &Arc<Store<Attributes>> {
        &self.0.store
    }
}

/// The HTTP service for components of this process. It has no router: to find the only one who answers would take longer than
/// many an answer.
#[derive(Clone)]
pub struct OwnService {
    shared: Arc<Shared>,
    is_counted: bool,
}

impl<B> tower::Service<Request<B>> for OwnService
where
    B: axum::body::HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_door_wanted = request.extensions().get::<door::Wanted>().is_some();
        let door = is_door_wanted.then(|| self.clone().into_door());
        let answering = self.answer(request.map(Body::new));
        async move {
            let mut answer = answering.await;
            if let Some(door) = door {
                answer.extensions_mut().insert(door);
            }
            Ok(answer)
        }
        .boxed()
    }
}

impl OwnService {
    fn answer(&self, mut request: Request<Body>) -> impl Future<Output = Response<Body>> + Send + use<> {
        request.extensions_mut().insert(managed::Own);
        if !self.is_counted {
            request.extensions_mut().insert(metrics::Counted);
        }
        serve(State(Arc::clone(&self.shared)), request)
    }

    fn into_door(self) -> Door {
        Door::new(move |request| {
            let answering = self.answer(request.map(Body::from));
            async move {
                let (head, body) = answering.await.into_parts();
                // Whole bodies can't fail, and those that are no answers to writes are not read by this way.
                Response::from_parts(head, body.collect().await.map(Collected::to_bytes).unwrap_or_default())
            }
            .boxed()
        })
    }
}

/// What a stored object is selected by.
fn attributes_of(key: &Key, bytes: &Bytes) -> std::result::Result<Attributes, String> {
    let resource = resources::all().iter().find(|resource| resource.plural == key.resource());
    let resource = resource.ok_or_else(|| format!("there is no resource {:?}", key.resource()))?;
    let object = Object::from_stored(bytes).map_err(|status| status.to_json()["message"].to_string())?;
    Ok(object.attributes(resource, None))
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let takes_gzip = accept::takes_gzip(request.headers());
    let (head, body) = request.into_parts();
    let counted = head.extensions.get::<metrics::Counted>().is_none();
    let counted = counted.then(|| (metrics::Asked::of(&head), Instant::now()));
    let is_other_event = events::is_path(head.uri.path());
    let request = Request::from_parts(head, body);
    let done =
        if is_other_event { events::serve(&shared, request).await } else { route(&shared, request).await };
    let response = match done {
        Ok(response) if takes_gzip => answer::compressed(response).await,
        Ok(response) => response,
        Err(status) => status.into_response(),
    };
    if let Some((asked, started)) = counted {
        shared.metrics.count(&asked, response.status(), started.elapsed());
    }
    response
}

async fn route(shared: &Arc<Shared>, request: Request<Body>) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        match head.uri.path() {
            "/.well-known/openid-configuration" => return Ok(service_account::discovery(&head)),
            "/openid/v1/jwks" => return service_account::key_set(shared),
            "/metrics" => return metrics::serve(shared),
            _ => {}
        }
    }
    if let Some(node) = wire::node_of(head.uri.path()).map(str::to_owned) {
        return streams::accept(shared, &mut head, &node);
    }
    if health::is_path(head.uri.path()) {
        return health::serve(shared, &head);
    }
    if let Some(answer) = discovery::serve(&head) {
        return answer;
    }
    if let Some(namespace) = pods::bindings_of(head.uri.path()) {
        return bind(shared, head, body, &namespace).await;
    }
    let target = Target::parse(head.uri.path())?.asked_by(&head);
    let query = Query::parse(&head.uri)?;
    if streams::concerns(&target) {
        return streams::serve(shared, head, &target, &query).await;
    }
    let form = Form::negotiate(&head.headers, &query)?;
    if head.method == Method::GET {
        return match (target.name.as_str(), target.subresource.as_str()) {
            (_, "binding" | "eviction" | "finalize" | "token") if target.has_subresource() => {
                Err(Status::method_not_allowed())
            }
            ("", _) if query.flag("watch").unwrap_or(false) => {
                watch::open(shared, &target, &query, &head, form)
            }
            ("", _) => read::list(shared, &target, &query, form).await,
            (_, "") => read::get(shared, &target, &query, form),
            (_, "status") if target.resource.has_status => read::get(shared, &target, &query, form),
            (_, name) if target.resource.subresources.iter().any(|sub| sub.name == name) => {
                Err(Status::method_not_allowed())
            }
            _ => Err(Status::no_such_path()),
        };
    }
    let body = request::read_body(&mut head, body).await?;
    let resource = target.resource;
    let answer = if shared.is_durable && waits_in_between(&head.method, &target) {
        let shared = Arc::clone(shared);
        let work = move || change(&shared, &head, &target, &query, &body);
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Status::internal(&format!("write: {error}")))??
    } else {
        change(shared, &head, &target, &query, &body)?
    };
    let response = answer.done().await?;
    form.convert(resource, response, shared.config.clock.now()).await
}

/// What writes more than once waits for the disk before it is done: that needs a thread of its own.
fn waits_in_between(method: &Method, target: &Target) -> bool {
    method == Method::DELETE
        || (method == Method::POST && target.resource.plural == "namespaces")
        || target.subresource == "eviction"
}

/// POST to the collection of bindings: the body names the pod.
async fn bind(
    shared: &Arc<Shared>,
    mut head: http::request::Parts,
    body: Body,
    namespace: &str,
) -> Result<Response<Body>> {
    if head.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let query = Query::parse(&head.uri)?;
    let body = request::read_body(&mut head, body).await?;
    let target = pods::binding_target(namespace, &body)?.asked_by(&head);
    admission::node_restriction::request(shared, &target, &head.method)?;
    pods::bind(shared, &target, &query, &body)?.done().await
}

/// Everything that is not a GET.
fn change(
    shared: &Shared,
    head: &http::request::Parts,
    target: &Target,
    query: &Query,
    body: &[u8],
) -> Result<Answer> {
    let has_status = target.resource.has_status;
    let is_pod = target.resource.plural == "pods";
    let is_namespace = target.resource.plural == "namespaces";
    let is_account = target.resource.plural == "serviceaccounts";
    if head.method == Method::DELETE && !body.is_empty() {
        request::require_json(&head.headers)?;
    }
    admission::node_restriction::request(shared, target, &head.method)?;
    match (&head.method, target.name.as_str(), target.subresource.as_str()) {
        (_, _, "") if target.resource.is_read_only => Err(Status::method_not_allowed()),
        (&Method::POST, "", "binding") => {
            let target = Target { name: pods::bound_name(body)?, ..target.clone() };
            pods::bind(shared, &target, query, body)
        }
        (_, "", "binding") => Err(Status::method_not_allowed()),
        (&Method::POST, "", _) if target.resource.namespaced && target.namespace.is_empty() => {
            Err(Status::method_not_allowed())
        }
        (&Method::POST, "", _) => {
            request::require_json(&head.headers)?;
            let writer = Writer::parse(query, head, "CreateOptions", "")?;
            create::create(shared, target, query, &writer, body)
        }
        (&Method::POST, _, "binding") if is_pod => pods::bind(shared, target, query, body),
        (&Method::POST, _, "eviction") if is_pod => Ok(eviction::create(shared, target, query, body)?.into()),
        (&Method::POST, _, "token") if is_account => {
            request::require_json(&head.headers)?;
            Ok(service_account::create(shared, target, body)?.into())
        }
        (&Method::PUT, name, "") if !name.is_empty() => {
            request::require_json(&head.headers)?;
            write::replace(shared, target, query, head, body, write::Scope::Main)
        }
        (&Method::PUT, _, "status") if has_status => {
            request::require_json(&head.headers)?;
            write::replace(shared, target, query, head, body, write::Scope::Status)
        }
        (&Method::PUT, _, "finalize") if is_namespace => {
            request::require_json(&head.headers)?;
            write::replace(shared, target, query, head, body, write::Scope::Finalize)
        }
        (&Method::PATCH, name, "") if !name.is_empty() => {
            write::patch(shared, target, query, head, body, write::Scope::Main)
        }
        (&Method::PATCH, _, "status") if has_status => {
            write::patch(shared, target, query, head, body, write::Scope::Status)
        }
        (&Method::DELETE, "", _) => Ok(delete::collection(shared, target, query, body)?.into()),
        (&Method::DELETE, _, "") => Ok(delete::one(shared, target, query, body)?.into()),
        (_, _, "") => Err(Status::method_not_allowed()),
        (_, _, "status") if has_status => Err(Status::method_not_allowed()),
        (_, _, "finalize") if is_namespace => Err(Status::method_not_allowed()),
        (_, _, "token") if is_account => Err(Status::method_not_allowed()),
        (_, _, "binding" | "eviction") if is_pod => Err(Status::method_not_allowed()),
        _ => Err(Status::no_such_path()),
    }
}
