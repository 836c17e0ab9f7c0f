//! The service that the network reaches: authentication, authorisation and limits around the router.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use tower::ServiceExt;
use windlass_store::Key;

use super::action::{Action, Object};
use super::audit::{Audit, Draft};
use super::certificate::Certified;
use super::identity::Identity;
use super::lanes::{Lanes, Limits, Place};
use super::policy::Verdict;
use super::reviews::Review;
use super::tokens::{self, Tokens};
use super::{defaults, escalation, policy};
use crate::metrics::{Asked, Counted};
use crate::request::{BODY_BYTES_MAX, media_type, read_body, require_json};
use crate::status::{Result, Status};
use crate::streams::Held;
use crate::{Server, Shared, apply, resources, service_account};

/// upstream: what a request may take, unless it is a watch.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// What a connection says about its other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The user of its certificate, if it has one of ours.
    pub certified: Option<Certified>,
    /// Whether it has shown a certificate at all.
    pub has_certificate: bool,
    /// Where it is.
    pub address: Option<IpAddr>,
}

/// Lets those in who may come in.
pub struct Guard {
    shared: Arc<Shared>,
    router: Router,
    tokens: Tokens,
    lanes: Lanes,
    audit: Option<Audit>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl Guard {
    /// Guards a server, and gives it the roles that every server has.
    pub fn new(server: &Server, tokens: Tokens, limits: Limits) -> Result<Self> {
        defaults::install(&server.0)?;
        Ok(Self {
            shared: Arc::clone(&server.0),
            router: server.router(),
            tokens,
            lanes: Lanes::new(limits),
            audit: None,
        })
    }

    /// Writes a line for each write.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// What `/readyz` says.
    pub fn set_ready(&self, is_ready: bool) {
        self.shared.is_stopping.store(!is_ready, Ordering::Release);
    }

    /// Answers a request of a peer.
    pub async fn answer(&self, peer: &Peer, request: Request<Body>) -> Response<Body> {
        let version = request.version();
        let (head, body) = request.into_parts();
        let (asked, started) = (Asked::of(&head), Instant::now());
        let mut response = match self.serve(peer, head, body).await {
            Ok(response) => response,
            Err(status) => status.into_response(),
        };
        self.shared.metrics.count(&asked, response.status(), started.elapsed());
        if response.status() == StatusCode::UNAUTHORIZED && version < Version::HTTP_2 {
            // A stranger pays for each try with a handshake.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(&self, peer: &Peer, mut head: Parts, body: Body) -> Result<Response<Body>> {
        let Some(who) = self.identify(peer, &head.headers)? else {
            let _place = self.lanes.enter_unknown()?;
            return if is_health(&head) { self.pass(head, body).await } else { Err(Status::unauthorized()) };
        };
        // It has done its work, and nobody behind this line has a use for it.
        head.headers.remove(header::AUTHORIZATION);
        refuse_impersonation(&who, &head.headers)?;
        check_length(&head.headers)?;
        let action = Action::of(&head);
        let place = self.lanes.enter(&who, &action).await?;
        let verdict = policy::judge(&self.shared.store, &who, &action);
        let Some(audit) = self.audit.as_ref().filter(|_| action.is_audited()) else {
            return self.judged(head, body, &who, &action, &verdict, place).await;
        };
        let now = || self.shared.config.clock.now();
        let draft = Draft::new(&head, peer.address, &who, &action, (&verdict, now()));
        let done = self.judged(head, body, &who, &action, &verdict, place).await;
        let code = done.as_ref().map_or_else(Status::code, Response::status);
        audit.write(draft.line(code, now())).await;
        done
    }

    /// Does what somebody may do, and refuses the rest.
    async fn judged(
        &self,
        mut head: Parts,
        body: Body,
        who: &Identity,
        action: &Action,
        verdict: &Verdict,
        place: Place,
    ) -> Result<Response<Body>> {
        if !verdict.is_allowed {
            return Err(refusal(who, action, &verdict.reason));
        }
        if let Some(create) = self.hidden_create(action, &head.headers).or_else(|| action.opened()) {
            let verdict = policy::judge(&self.shared.store, who, &create);
            if !verdict.is_allowed {
                return Err(refusal(who, &create, &verdict.reason));
            }
        }
        head.extensions.insert(who.clone());
        if head.uri.path() == "/metrics" {
            self.shared.metrics.set_inflight(self.lanes.busy(), self.lanes.streaming());
        }
        if action.is_stream() {
            let held = Held::new(place);
            head.extensions.insert(held.clone());
            return Ok(hold(self.pass(head, body).await?, held));
        }
        let done = tokio::time::timeout(REQUEST_TIME_MAX, self.perform(head, body, who, action)).await;
        done.unwrap_or_else(|_| Err(Status::timed_out()))
    }

    /// The user. Nothing when there is no credential at all; 401 when there is none that counts.
    fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Identity>> {
        let now = self.shared.config.clock.now().as_second();
        if let Some(certified) = peer.certified.as_ref().filter(|certified| now <= certified.not_after) {
            return Ok(Some(certified.identity.clone()));
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return if peer.has_certificate { Err(Status::unauthorized()) } else { Ok(None) };
        };
        let token = value.to_str().ok().and_then(bearer).ok_or_else(Status::unauthorized)?;
        match tokens::identify(&self.shared, &self.tokens, token, &[service_account::ISSUER.to_owned()]) {
            Ok((who, _)) => Ok(Some(who)),
            Err(_) => Err(Status::unauthorized()),
        }
    }

    /// The create that an update of an object that is not there comes to, for the kinds that allow it, and an apply.
    fn hidden_create(&self, action: &Action, headers: &HeaderMap) -> Option<Action> {
        let Object::Resource(target) = &action.to else {
            return None;
        };
        let row = resources::all().iter().find(|r| r.group == target.group && r.plural == target.resource)?;
        let key = Key::new(row.plural, &target.namespace, &target.name);
        let may_create = match action.verb.as_str() {
            "update" => row.create_on_update,
            "patch" => media_type(headers) == apply::MEDIA_TYPE,
            _ => false,
        };
        let creates = may_create && target.subresource.is_empty() && self.shared.store.get(&key).is_none();
        creates.then(|| Action { verb: "create".to_owned(), to: action.to.clone() })
    }

    async fn perform(
        &self,
        mut head: Parts,
        body: Body,
        who: &Identity,
        action: &Action,
    ) -> Result<Response<Body>> {
        if let Some((review, namespace)) = Review::of(head.uri.path()) {
            if head.method != Method::POST {
                return Err(Status::method_not_allowed());
            }
            let bytes = read_body(&mut head, body).await?;
            require_json(&head.headers)?;
            let value = serde_json::from_slice(&bytes).map_err(|error| {
                Status::bad_request(format!("read the body of a {}: {error}", review.kind()))
            })?;
            return review.answer(&self.shared, &self.tokens, who, &head.method, (&namespace, &value));
        }
        let Some(target) = escalation::concerns(action) else {
            return self.pass(head, body).await;
        };
        let bytes = read_body(&mut head, body).await?;
        let object = match action.verb.as_str() {
            "patch" => None,
            _ => serde_json::from_slice(&bytes).ok(),
        };
        escalation::check(&self.shared.store, who, target, object.as_ref())?;
        self.pass(head, Body::from(bytes)).await
    }

    async fn pass(&self, mut head: Parts, body: Body) -> Result<Response<Body>> {
        head.extensions.insert(Counted);
        match self.router.clone().oneshot(Request::from_parts(head, body)).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

/// The only paths that nobody needs a name for.
fn is_health(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && matches!(head.uri.path(), "/livez" | "/readyz" | "/healthz")
}

/// The token of `Bearer token`.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// A body that says that it is too large is not read at all.
fn check_length(headers: &HeaderMap) -> Result<()> {
    let length: Option<u64> =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    match length {
        Some(length) if length > BODY_BYTES_MAX as u64 => Err(Status::body_too_large(BODY_BYTES_MAX)),
        _ => Ok(()),
    }
}

/// Nobody may act as somebody else here, not even those who may do everything.
fn refuse_impersonation(who: &Identity, headers: &HeaderMap) -> Result<()> {
    let Some((_, value)) = headers.iter().find(|(name, _)| name.as_str().starts_with("impersonate-")) else {
        return Ok(());
    };
    let user = headers.get("impersonate-user").unwrap_or(value).to_str().unwrap_or_default();
    let why = format!(
        "User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        who.name
    );
    Err(Status::denied("", "users", user, &why))
}

/// upstream: the text of a refusal by RBAC, with the characters of HTML made harmless.
fn refusal(who: &Identity, action: &Action, reason: &str) -> Status {
    let Action { verb, to } = action;
    let user = &who.name;
    let (what, group, resource, name) = match to {
        Object::Path(path) => (format!("User {user:?} cannot {verb} path {path:?}"), "", "", ""),
        Object::Resource(target) => {
            let place = match target.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let what = format!(
                "User {user:?} cannot {verb} resource {:?} in API group {:?} {place}",
                target.with_subresource(),
                target.group
            );
            (what, target.group.as_str(), target.resource.as_str(), target.name.as_str())
        }
    };
    let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { what } else { format!("{what}: {reason}") };
    Status::denied(group, resource, name, &why)
}

/// The place of a watch is taken until its last byte is sent.
fn hold(response: Response<Body>, place: impl Send + 'static) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &place;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use windlass_store::faults::{Fault, Faults, FaultyLog};
    use windlass_store::{OnDamage, Store};

    use super::*;
    use crate::{Config, attributes_of};

    #[tokio::test]
    async fn a_server_whose_store_takes_no_writes_is_not_ready_and_goes_on_reading() {
        let dir = tempfile::tempdir().expect("made");
        let faults = Faults::default();
        let config = Config::default();
        let log = Box::new(FaultyLog::open(dir.path(), faults.clone()).expect("opens"));
        let store = Store::open_log(log, config.limits, OnDamage::Refuse, &attributes_of).expect("opens");
        let server = Server::with_store(config, store, true).expect("namespaces");
        let guard = Guard::new(&server, Tokens::none(), Limits::default()).expect("roles");
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).expect("valid");
            let response = guard.answer(&Peer::default(), request).await;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.expect("whole").to_bytes();
            (status, String::from_utf8(body.to_vec()).expect("text"))
        };
        assert_eq!(ask("/readyz").await, (200, "ok".to_owned()));
        let (_, syncs) = faults.calls();
        faults.fail_sync(syncs + 1, Fault::Before);
        let key = Key::new("configmaps", "default", "a");
        let write = || server.store().create(key.clone(), crate::Attributes::default(), |_| "{}".into());
        write().expect_err("the disk is in doubt");
        // Only a restart helps, so that whoever restarts what is not healthy has to hear of it.
        for (endpoint, others) in [("readyz", "[+]shutdown ok\n"), ("healthz", ""), ("livez", "")] {
            let want = format!(
                "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n{others}{endpoint} check failed\n"
            );
            assert_eq!(ask(&format!("/{endpoint}")).await, (500, want));
        }
        assert!(server.store().get(&Key::new("namespaces", "", "default")).is_some());
    }
}
