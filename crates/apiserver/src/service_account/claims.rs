//! What a token says.

use serde::{Deserialize, Serialize};

/// The claims of a token. upstream: jwt.Claims and privateClaims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Claims {
    #[serde(rename = "aud", skip_serializing_if = "Vec::is_empty")]
    pub(super) audiences: Vec<String>,
    #[serde(rename = "exp")]
    pub(super) expires: i64,
    #[serde(rename = "iat")]
    pub(super) issued: i64,
    #[serde(rename = "iss")]
    pub(super) issuer: String,
    #[serde(rename = "jti")]
    pub(super) id: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) private: Private,
    #[serde(rename = "nbf")]
    pub(super) not_before: i64,
    #[serde(rename = "sub")]
    pub(super) subject: String,
}

/// What Kubernetes adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Private {
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Ref>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Ref>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Ref>,
    pub(super) serviceaccount: Ref,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<i64>,
}

/// An object, with the UID that tells it from another of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ref {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
}
