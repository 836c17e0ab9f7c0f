//! Where an object is kept: `resource/namespace/name`, or `resource/name` for objects of the whole cluster.

use std::fmt;
use std::sync::Arc;

/// The place of one object. Keys order as etcd orders Kubernetes' own: by the bytes of the whole text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of `name` in `namespace`; an empty namespace means an object of the whole cluster.
    ///
    /// None of the parts may hold a `/`: Kubernetes names cannot.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        debug_assert!(!resource.contains('/') && !namespace.contains('/') && !name.contains('/'));
        if namespace.is_empty() {
            Self(format!("{resource}/{name}").into())
        } else {
            Self(format!("{resource}/{namespace}/{name}").into())
        }
    }

    /// The key whose whole text is `text`, if that is the text of a key.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.split('/').count();
        let is_key = (2..=3).contains(&parts) && text.split('/').all(|part| !part.is_empty());
        is_key.then(|| Self(text.into()))
    }

    /// The first part.
    pub fn resource(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// The part between the first and the last, or nothing.
    pub fn namespace(&self) -> &str {
        let mut parts = self.0.splitn(3, '/').skip(1);
        match (parts.next(), parts.next()) {
            (Some(namespace), Some(_)) => namespace,
            _ => "",
        }
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A set of keys: a resource, or one namespace of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// Every object of `resource`.
    pub fn resource_wide(resource: &str) -> Self {
        Self(format!("{resource}/"))
    }

    /// The objects of `resource` in `namespace`; an empty namespace means all of them.
    pub fn namespaced(resource: &str, namespace: &str) -> Self {
        if namespace.is_empty() {
            Self::resource_wide(resource)
        } else {
            Self(format!("{resource}/{namespace}/"))
        }
    }

    /// Whether `key` is in the set.
    pub fn contains(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }

    pub(crate) fn resource(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
