//! Who makes a request.

use std::collections::BTreeMap;

use serde::Serialize;

/// The group whose members may do everything, whatever the roles say.
pub const MASTERS: &str = "system:masters";
/// The group of everybody who has said who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all nodes.
pub const NODES: &str = "system:nodes";
/// What stands before the name of a node in the name of its user.
pub const NODE_PREFIX: &str = "system:node:";

/// A user, as a credential names them. Its JSON is the `UserInfo` of reviews and audit lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// The name.
    #[serde(rename = "username")]
    pub name: String,
    /// A name that is never given again; empty when the credential has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, [`AUTHENTICATED`] among them.
    pub groups: Vec<String>,
    /// What else the credential tells, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user with these groups, and [`AUTHENTICATED`].
    pub fn new(name: impl Into<String>, mut groups: Vec<String>) -> Self {
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// The user of a node.
    pub fn of_node(name: &str) -> Self {
        Self::new(format!("{NODE_PREFIX}{name}"), vec![NODES.to_owned()])
    }

    /// The name of the node whose user this is. upstream: NodeIdentity
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|_| self.is_in(NODES))
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}
