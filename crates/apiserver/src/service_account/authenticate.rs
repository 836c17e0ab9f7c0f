//! Whether a token counts now: its time, for whom it is, and everything that it is bound to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_store::Key as StoreKey;

use super::claims::{Claims, Ref};
use super::{ISSUER, key_of};
use crate::Shared;
use crate::auth::Identity;
use crate::object::Object;

/// upstream: clocks differ by no more than this.
const LEEWAY_SECONDS: i64 = 60;

/// Why a token does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not one of ours.
    Unknown,
    /// It is one of ours, and this is wrong with it.
    Invalid(String),
}

/// The user of a token, and for whom of `wanted` it is.
pub(crate) fn authenticate(
    shared: &Shared,
    token: &str,
    wanted: &[String],
) -> Result<(Identity, Vec<String>), Refusal> {
    let claims = key_of(shared).verify(token).ok_or(Refusal::Unknown)?;
    if claims.issuer != ISSUER {
        return Err(Refusal::Unknown);
    }
    check(shared, &claims, wanted).map_err(Refusal::Invalid)?;
    let audiences = claims.audiences.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    Ok((identity(&claims), audiences))
}

fn check(shared: &Shared, claims: &Claims, wanted: &[String]) -> Result<(), String> {
    if !claims.audiences.iter().any(|audience| wanted.contains(audience)) {
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(&claims.audiences),
            quoted(wanted)
        ));
    }
    let now = shared.config.clock.now().as_second();
    if now - LEEWAY_SECONDS > claims.expires {
        return Err("service account token has expired".to_owned());
    }
    if now + LEEWAY_SECONDS < claims.not_before {
        return Err("service account token is not valid yet".to_owned());
    }
    if now + LEEWAY_SECONDS < claims.issued {
        return Err("service account token is issued in the future".to_owned());
    }
    let bound = Bound { shared, now };
    let private = &claims.private;
    bound.account(&private.namespace, &private.serviceaccount)?;
    if let Some(secret) = &private.secret {
        bound.object("secret", StoreKey::new("secrets", &private.namespace, &secret.name), &secret.uid)?;
    }
    match (&private.pod, &private.node) {
        (Some(pod), _) => {
            bound.object("pod", StoreKey::new("pods", &private.namespace, &pod.name), &pod.uid)?;
        }
        (None, Some(node)) => {
            bound.object("node", StoreKey::new("nodes", "", &node.name), &node.uid)?;
        }
        (None, None) => {}
    }
    Ok(())
}

/// As Go prints a list of texts.
fn quoted(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", list.join(" "))
}

/// Looks for what a token is bound to.
struct Bound<'a> {
    shared: &'a Shared,
    now: i64,
}

impl Bound<'_> {
    fn find(&self, key: &StoreKey) -> Option<Object> {
        Object::from_stored(&self.shared.store.get(key)?.bytes).ok()
    }

    fn is_gone(&self, object: &Object) -> bool {
        let end: Option<Timestamp> = object.meta_text("deletionTimestamp").parse().ok();
        end.is_some_and(|end| end.as_second() < self.now - LEEWAY_SECONDS)
    }

    fn account(&self, namespace: &str, account: &Ref) -> Result<(), String> {
        let Ref { name, uid } = account;
        let found = self.find(&StoreKey::new("serviceaccounts", namespace, name));
        let found = found.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        if found.uid() != uid {
            return Err(format!("service account UID ({}) does not match claim ({uid})", found.uid()));
        }
        if self.is_gone(&found) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        Ok(())
    }

    fn object(&self, kind: &str, key: StoreKey, uid: &str) -> Result<(), String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let found = self.find(&key).ok_or_else(invalidated)?;
        if found.uid() != uid {
            return Err(format!(
                "{kind} UID ({}) does not match service account {kind} ref claim ({uid})",
                found.uid()
            ));
        }
        if self.is_gone(&found) { Err(invalidated()) } else { Ok(()) }
    }
}

fn identity(claims: &Claims) -> Identity {
    let private = &claims.private;
    let Ref { name, uid } = &private.serviceaccount;
    let groups =
        vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", private.namespace)];
    let mut identity = Identity::new(format!("system:serviceaccount:{}:{name}", private.namespace), groups);
    uid.clone_into(&mut identity.uid);
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: String| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        }
    };
    if !claims.id.is_empty() {
        add("credential-id", format!("JTI={}", claims.id));
    }
    for (kind, object) in [("pod", &private.pod), ("node", &private.node)] {
        if let Some(Ref { name, uid }) = object {
            add(&format!("{kind}-name"), name.clone());
            add(&format!("{kind}-uid"), uid.clone());
        }
    }
    identity.extra = extra;
    identity
}
