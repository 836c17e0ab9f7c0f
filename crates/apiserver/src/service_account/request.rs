//! `serviceaccounts/{name}/token`: a token for those who may have one. Nothing of it is stored.

use axum::body::Body;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_api::field::{Error, Errors, Path};
use windlass_store::Key;

use super::claims::{Claims, Private, Ref};
use super::{ISSUER, key_of};
use crate::admission::TOKEN_SECONDS;
use crate::admission::node_restriction::{self, TokenFor};
use crate::object::{self, Object};
use crate::request::Target;
use crate::resources;
use crate::status::{Result, Status};
use crate::{Shared, answer, environment};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const EXPIRATION_SECONDS: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// upstream: how long an injected token really counts, for clients that never read it again.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    audiences: Vec<String>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<Bound>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bound {
    kind: String,
    api_version: String,
    name: String,
    uid: String,
}

/// POST of a TokenRequest.
pub(crate) fn create(shared: &Shared, target: &Target, body: &[u8]) -> Result<Response<Body>> {
    let (mut request, raw) = decode(body)?;
    check_place(&request.metadata, target)?;
    let Spec { bound_object_ref, audiences, .. } = &request.spec;
    let bound = bound_object_ref.as_ref().map(|bound| TokenFor {
        api_version: &bound.api_version,
        kind: &bound.kind,
        name: &bound.name,
        uid: &bound.uid,
        audiences,
    });
    node_restriction::token(shared, target, bound.as_ref())?;
    let accounts = target.resource;
    let record = shared.store.get(&target.key()).ok_or_else(|| Status::not_found(accounts, &target.name))?;
    let account = Object::from_stored(&record.bytes)?;
    let asked = &request.metadata.uid;
    if !asked.is_empty() && asked != account.uid() {
        let why = format!(
            "the UID in the token request ({asked}) does not match the UID of the service account ({})",
            account.uid()
        );
        return Err(Status::conflict(GROUP, KIND, &target.name, &why));
    }
    let seconds = request.spec.expiration_seconds.unwrap_or(EXPIRATION_SECONDS);
    check_seconds(seconds)?;
    if request.spec.audiences.is_empty() {
        request.spec.audiences = vec![ISSUER.to_owned()];
    }
    let mut private = Private {
        namespace: target.namespace.clone(),
        serviceaccount: Ref { name: target.name.clone(), uid: account.uid().to_owned() },
        ..Private::default()
    };
    if let Some(bound) = &request.spec.bound_object_ref {
        bind(shared, target, bound, &mut private)?;
    }
    let is_injected = private.pod.is_some()
        && seconds == TOKEN_SECONDS
        && request.spec.audiences.iter().all(|audience| audience == ISSUER);
    let now = shared.config.clock.now();
    let second = now.as_second();
    if is_injected {
        private.warnafter = Some(second + seconds);
    }
    let claims = Claims {
        audiences: request.spec.audiences.clone(),
        expires: second + if is_injected { EXTENDED_SECONDS } else { seconds },
        issued: second,
        issuer: ISSUER.to_owned(),
        id: environment::uid(shared.config.entropy.next()),
        private,
        not_before: second,
        subject: format!("system:serviceaccount:{}:{}", target.namespace, target.name),
    };
    let token = key_of(shared)
        .sign(&claims)
        .map_err(|_| Status::internal("failed to generate token: the key signs nothing"))?;
    let end = environment::text(now + jiff::SignedDuration::from_secs(seconds));
    let metadata = json!({
        "name": target.name, "namespace": target.namespace, "uid": account.uid(),
        "creationTimestamp": environment::text(now),
    });
    let reply = json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": metadata,
        "spec": {
            "audiences": request.spec.audiences, "expirationSeconds": seconds,
            // upstream: said also when there is none
            "boundObjectRef": raw.pointer("/spec/boundObjectRef").cloned().unwrap_or_default(),
        },
        "status": {"token": token, "expirationTimestamp": end},
    });
    Ok(answer::json(StatusCode::CREATED, &reply, &[]))
}

fn decode(body: &[u8]) -> Result<(Request, Value)> {
    let unreadable = |why: &str| {
        Status::bad_request(format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {why}"))
    };
    let mut raw: Value = serde_json::from_slice(body).map_err(|error| unreadable(&error.to_string()))?;
    object::strip_nulls(&mut raw);
    let kind = raw["kind"].as_str().unwrap_or(KIND);
    if kind != KIND {
        return Err(Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {KIND}: converting ({kind}) to ({KIND}): unknown conversion"
        )));
    }
    let request = Request::deserialize(&raw).map_err(|error| unreadable(&error.to_string()))?;
    Ok((request, raw))
}

fn check_place(meta: &Meta, target: &Target) -> Result<()> {
    let path = Path::new("metadata");
    let checks = [("name", &meta.name, &target.name), ("namespace", &meta.namespace, &target.namespace)];
    for (field, given, expected) in checks {
        if !given.is_empty() && given != expected {
            let why = format!("must match the service account {field} if specified");
            let error = Error::invalid(&path.child(field), given.as_str(), why);
            return Err(Status::invalid(GROUP, KIND, &target.name, &[error]));
        }
    }
    Ok(())
}

fn check_seconds(seconds: i64) -> Result<()> {
    let path = Path::new("spec").child("expirationSeconds");
    let mut errors = Errors::new();
    if seconds < EXPIRATION_SECONDS_MIN {
        errors.push(Error::invalid(&path, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > EXPIRATION_SECONDS_MAX {
        errors.push(Error::invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GROUP, KIND, "", &errors)) }
}

/// Ties the token to an object: it counts while that object is there.
fn bind(shared: &Shared, target: &Target, bound: &Bound, private: &mut Private) -> Result<()> {
    let get = |plural: &str, namespace: &str, name: &str| -> Result<Object> {
        let record = shared.store.get(&Key::new(plural, namespace, name));
        let record = record.ok_or_else(|| Status::not_found(resources::core(plural), name))?;
        Object::from_stored(&record.bytes)
    };
    let is_core = !bound.api_version.contains('/');
    let (slot, object) = match bound.kind.as_str() {
        "Pod" if is_core => {
            let pod = get("pods", &target.namespace, &bound.name)?;
            if pod.text_at("spec", "serviceAccountName") != target.name {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    target.name
                )));
            }
            private.node = node_of(shared, &pod);
            (&mut private.pod, pod)
        }
        "Node" if is_core => (&mut private.node, get("nodes", "", &bound.name)?),
        "Secret" if is_core => (&mut private.secret, get("secrets", &target.namespace, &bound.name)?),
        kind => {
            let (group, version) = bound.api_version.split_once('/').unwrap_or(("", &bound.api_version));
            let text = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {text}")));
        }
    };
    if !bound.uid.is_empty() && bound.uid != object.uid() {
        let why = format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            bound.uid
        );
        return Err(Status::conflict("", &bound.kind, &bound.name, &why));
    }
    *slot = Some(Ref { name: bound.name.clone(), uid: object.uid().to_owned() });
    Ok(())
}

/// The node of a pod, by name alone when there is no such node any more.
fn node_of(shared: &Shared, pod: &Object) -> Option<Ref> {
    let name = pod.text_at("spec", "nodeName");
    if name.is_empty() {
        return None;
    }
    let record = shared.store.get(&Key::new("nodes", "", name));
    let node = record.and_then(|record| Object::from_stored(&record.bytes).ok());
    Some(Ref { name: name.to_owned(), uid: node.map(|node| node.uid().to_owned()).unwrap_or_default() })
}
