//! What `/metrics` tells, under upstream's names.

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use windlass_store::Prefix;

use crate::Shared;
use crate::request::{Query, Target};
use crate::status::{Result, Status};

/// upstream: the bounds of `apiserver_request_duration_seconds`, every second of them.
const SECONDS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 15.0, 60.0];
/// The form of the text.
const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The last line of it.
const END: &str = "# EOF\n";

/// On the request that a guard passes on: it is counted already. Or nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted;

/// What a request is counted as. Only names of the table and of HTTP: no client can make new ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Asked {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    request_kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    reason: &'static str,
}

/// The subresources that are told apart.
const SUBRESOURCES: [&str; 9] =
    ["attach", "binding", "eviction", "exec", "finalize", "log", "portforward", "status", "token"];

impl Asked {
    /// What a request is counted as.
    pub(crate) fn of(head: &Parts) -> Self {
        let query = Query::parse(&head.uri).unwrap_or_default();
        let dry_run = if query.text("dryRun") == "All" { "All" } else { "" };
        let target = Target::parse(head.uri.path()).ok();
        let is_collection = target.as_ref().is_some_and(|target| target.name.is_empty());
        let is_watch = is_collection && query.flag("watch").unwrap_or(false);
        let media = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let verb = match head.method {
            Method::GET | Method::HEAD if is_watch => "WATCH",
            Method::GET | Method::HEAD if is_collection => "LIST",
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH if media.starts_with(b"application/apply-patch") => "APPLY",
            Method::PATCH => "PATCH",
            Method::DELETE if is_collection => "DELETECOLLECTION",
            Method::DELETE => "DELETE",
            _ => "OTHER",
        };
        let scope = match &target {
            None => "",
            Some(target) if !target.name.is_empty() => "resource",
            Some(target) if !target.namespace.is_empty() => "namespace",
            Some(_) => "cluster",
        };
        let subresource = target.as_ref().map_or("", |target| target.subresource.as_str());
        let subresource = SUBRESOURCES.into_iter().find(|known| *known == subresource).unwrap_or_default();
        let (group, version, resource) = target.map_or(("", "", ""), |target| {
            (target.resource.group, target.resource.version, target.resource.plural)
        });
        Self { verb, group, version, resource, subresource, scope, component: "apiserver", dry_run }
    }

    fn answered(&self, code: StatusCode) -> Answered {
        let Self { verb, group, version, resource, subresource, scope, component, dry_run } = *self;
        Answered {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            component,
            dry_run,
            code: code.as_u16(),
        }
    }
}

type NewHistogram = fn() -> Histogram;

/// The counters of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<Asked, Histogram, NewHistogram>,
    inflight: Family<Kind, Gauge>,
    streams: Gauge,
    refused: Family<Refusal, Counter>,
    objects: Family<Of, Gauge>,
    revision: Gauge,
    writable: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let durations: Family<Asked, Histogram, NewHistogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let metrics = Self {
            requests: Family::default(),
            durations,
            inflight: Family::default(),
            streams: Gauge::default(),
            refused: Family::default(),
            objects: Family::default(),
            revision: Gauge::default(),
            writable: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("apiserver_request", "Requests that were answered", metrics.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "How long requests took that are not streams",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests under way, by what they do",
            metrics.inflight.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Watches and other streams that are open",
            metrics.streams.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that were refused because there was too much to do",
            metrics.refused.clone(),
        );
        registry.register("apiserver_storage_objects", "Objects that are stored", metrics.objects.clone());
        registry.register(
            "windlass_store_revision",
            "The last revision of the store",
            metrics.revision.clone(),
        );
        registry.register(
            "windlass_store_writable",
            "1 while the store takes writes",
            metrics.writable.clone(),
        );
        Self { registry, ..metrics }
    }

    /// Counts an answer. Streams have no duration: they end when they end.
    pub(crate) fn count(&self, asked: &Asked, code: StatusCode, took: Duration) {
        self.requests.get_or_create(&asked.answered(code)).inc();
        if code == StatusCode::TOO_MANY_REQUESTS && asked.subresource != "eviction" {
            self.refused.get_or_create(&Refusal { reason: "concurrency-limit" }).inc();
        }
        let is_stream =
            asked.verb == "WATCH" || matches!(asked.subresource, "log" | "exec" | "attach" | "portforward");
        if !is_stream {
            self.durations.get_or_create(asked).observe(took.as_secs_f64());
        }
    }

    /// What is under way now: reads, writes and streams.
    pub(crate) fn set_inflight(&self, (reads, writes): (usize, usize), streams: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.inflight.get_or_create(&Kind { request_kind: "readOnly" }).set(number(reads));
        self.inflight.get_or_create(&Kind { request_kind: "mutating" }).set(number(writes));
        self.streams.set(number(streams));
    }
}

/// `/metrics`.
pub(crate) fn serve(shared: &Shared) -> Result<Response<Body>> {
    let metrics = &shared.metrics;
    for resource in crate::resources::all() {
        let count = shared.store.count(&Prefix::resource_wide(resource.plural));
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        metrics.objects.get_or_create(&Of { resource: resource.qualified() }).set(count);
    }
    metrics.revision.set(i64::try_from(shared.store.revision()).unwrap_or(i64::MAX));
    metrics.writable.set(i64::from(shared.store.check_writable().is_ok()));
    let mut out = String::new();
    text::encode(&mut out, &metrics.registry)
        .map_err(|error| Status::internal(&format!("encode metrics: {error}")))?;
    if let Some(figures) = shared.figures.get() {
        // One end for both.
        out.truncate(out.trim_end_matches(END).len());
        out.push_str(&figures());
    }
    let mut response = Response::new(Body::from(out));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
    Ok(response)
}
