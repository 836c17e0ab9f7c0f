//! Questions about who one is and what one may do. Nothing of it is stored.

use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_api::field::{Error, Errors, Path};

use super::action::{Action, Object, Resource};
use super::identity::Identity;
use super::policy::{self, Verdict};
use super::tokens::{self, Tokens};
use crate::service_account::ISSUER;
use crate::status::{Result, Status};
use crate::{Shared, answer};

/// The kinds of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    SelfSubject,
    Token,
    SelfSubjectAccess,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
}

impl Review {
    /// The review that a path asks for, and its namespace.
    pub(super) fn of(path: &str) -> Option<(Self, String)> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (review, namespace) = match parts.as_slice() {
            ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"] => (Self::SelfSubject, ""),
            ["apis", "authentication.k8s.io", "v1", "tokenreviews"] => (Self::Token, ""),
            ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
                (Self::SelfSubjectAccess, "")
            }
            ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"] => (Self::SubjectAccess, ""),
            ["apis", "authorization.k8s.io", "v1", "selfsubjectrulesreviews"] => (Self::SelfSubjectRules, ""),
            ["apis", "authorization.k8s.io", "v1", "namespaces", namespace, "localsubjectaccessreviews"] => {
                (Self::LocalSubjectAccess, *namespace)
            }
            _ => return None,
        };
        Some((review, namespace.to_owned()))
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::SelfSubject => "SelfSubjectReview",
            Self::Token => "TokenReview",
            Self::SelfSubjectAccess => "SelfSubjectAccessReview",
            Self::SubjectAccess => "SubjectAccessReview",
            Self::LocalSubjectAccess => "LocalSubjectAccessReview",
            Self::SelfSubjectRules => "SelfSubjectRulesReview",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::SelfSubject | Self::Token => "authentication.k8s.io/v1",
            Self::SelfSubjectAccess
            | Self::SubjectAccess
            | Self::LocalSubjectAccess
            | Self::SelfSubjectRules => "authorization.k8s.io/v1",
        }
    }

    /// Answers a review. `body` is what the client sent.
    pub(super) fn answer(
        self,
        shared: &Shared,
        tokens: &Tokens,
        who: &Identity,
        method: &Method,
        (namespace, body): (&str, &Value),
    ) -> Result<Response<Body>> {
        if method != Method::POST {
            return Err(Status::method_not_allowed());
        }
        let given = body["kind"].as_str().unwrap_or(self.kind());
        if !body.is_object() || given != self.kind() {
            let kind = self.kind();
            return Err(Status::bad_request(format!(
                "{given} in version \"v1\" cannot be handled as a {kind}"
            )));
        }
        let spec = &body["spec"];
        let status = match self {
            Self::SelfSubject => json!({"userInfo": who}),
            Self::Token => token_status(shared, tokens, spec)?,
            Self::SelfSubjectAccess | Self::SubjectAccess | Self::LocalSubjectAccess => {
                let spec = self.read::<AccessSpec>(spec)?;
                self.check(&spec, namespace)?;
                let subject = match self {
                    Self::SelfSubjectAccess => who.clone(),
                    // upstream: a review names all groups itself
                    _ => Identity {
                        groups: spec.groups.clone(),
                        ..Identity::new(spec.user.clone(), Vec::new())
                    },
                };
                access_status(&policy::judge(&shared.store, &subject, &spec.action()))
            }
            Self::SelfSubjectRules => rules_status(shared, who, spec)?,
        };
        let mut review = Map::new();
        review.insert("kind".to_owned(), json!(self.kind()));
        review.insert("apiVersion".to_owned(), json!(self.api_version()));
        let mut metadata = body["metadata"].as_object().cloned().unwrap_or_default();
        match self {
            Self::SelfSubject => {
                metadata.insert("creationTimestamp".to_owned(), json!(shared.now_text()));
            }
            Self::LocalSubjectAccess => {
                metadata.insert("namespace".to_owned(), json!(namespace));
            }
            Self::Token | Self::SelfSubjectAccess | Self::SubjectAccess | Self::SelfSubjectRules => {}
        }
        review.insert("metadata".to_owned(), Value::Object(metadata));
        if self != Self::SelfSubject {
            review.insert("spec".to_owned(), shown_spec(self, spec));
        }
        review.insert("status".to_owned(), status);
        Ok(answer::json(StatusCode::CREATED, &Value::Object(review), &[]))
    }

    fn read<'a, T: Deserialize<'a>>(self, spec: &'a Value) -> Result<T> {
        let kind = self.kind();
        T::deserialize(spec).map_err(|error| {
            Status::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {kind}: {error}"))
        })
    }

    fn check(self, spec: &AccessSpec, namespace: &str) -> Result<()> {
        let path = Path::new("spec");
        let mut errors = Errors::new();
        match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(_), Some(_)) => errors.push(Error::invalid(
                &path.child("nonResourceAttributes"),
                Value::Null,
                "cannot be specified in combination with resourceAttributes",
            )),
            (None, None) => errors.push(Error::invalid(
                &path.child("resourceAttributes"),
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if self != Self::SelfSubjectAccess && spec.user.is_empty() && spec.groups.is_empty() {
            let why = "at least one of user or group must be specified";
            errors.push(Error::invalid(&path.child("user"), "", why));
        }
        let asked = spec.resource_attributes.as_ref().map_or("", |attributes| &attributes.namespace);
        if self == Self::LocalSubjectAccess && asked != namespace {
            let why = "must match metadata.namespace";
            errors.push(Error::invalid(&path.child("resourceAttributes").child("namespace"), asked, why));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            // upstream: the kind is not named
            Err(Status::invalid("authorization.k8s.io", "", "", &errors))
        }
    }
}

/// The part of a review that comes back: all of it, but never a token.
fn shown_spec(review: Review, spec: &Value) -> Value {
    match (review, spec) {
        (_, Value::Null) => json!({}),
        (Review::Token, Value::Object(spec)) => {
            spec.iter().filter(|(field, _)| *field != "token").map(|(f, v)| (f.clone(), v.clone())).collect()
        }
        (_, spec) => spec.clone(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
    user: String,
    groups: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

impl AccessSpec {
    fn action(&self) -> Action {
        match (&self.resource_attributes, &self.non_resource_attributes) {
            (Some(asked), _) => Action {
                verb: asked.verb.clone(),
                to: Object::Resource(Resource {
                    group: asked.group.clone(),
                    resource: asked.resource.clone(),
                    subresource: asked.subresource.clone(),
                    namespace: asked.namespace.clone(),
                    name: asked.name.clone(),
                    selected_node: String::new(),
                }),
            },
            (None, Some(asked)) => Action { verb: asked.verb.clone(), to: Object::Path(asked.path.clone()) },
            (None, None) => Action { verb: String::new(), to: Object::Path(String::new()) },
        }
    }
}

fn access_status(verdict: &Verdict) -> Value {
    let mut status = json!({"allowed": verdict.is_allowed});
    if !verdict.reason.is_empty() {
        status["reason"] = json!(verdict.reason);
    }
    status
}

fn token_status(shared: &Shared, tokens: &Tokens, spec: &Value) -> Result<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let named = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut wanted: Vec<String> = named.map(str::to_owned).collect();
    if wanted.is_empty() {
        wanted.push(ISSUER.to_owned());
    }
    Ok(match tokens::identify(shared, tokens, token, &wanted) {
        Ok((who, audiences)) => {
            json!({"authenticated": true, "user": who, "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}

fn rules_status(shared: &Shared, who: &Identity, spec: &Value) -> Result<Value> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = policy::rules_of(&shared.store, who, namespace);
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| !rule.non_resource_urls.is_empty());
    Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
}
