//! Who makes a request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The group whose members may do everything, whatever the roles say.
pub const MASTERS: &str = "system:masters";
/// The group of everybody who has said who they are.
pub const AUTHENTICATED: &str = "system:authenticated";

/// A user, as a credential names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// A name that is never given again; empty when the credential has none.
    pub uid: String,
    /// The groups, [`AUTHENTICATED`] among them.
    pub groups: Vec<String>,
    /// What else the credential tells, by name.
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

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// As `UserInfo` of the reviews shows it.
    pub(crate) fn to_json(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), json!(self.name));
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), json!(self.uid));
        }
        info.insert("groups".to_owned(), json!(self.groups));
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }
}
