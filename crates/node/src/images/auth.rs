//! Who we are for a registry: what it asks for, and what the pull secrets of a pod have.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::digest::Digest;

/// What a registry that refused a request wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password.
    Basic,
    /// A token that `realm` gives.
    Bearer {
        /// The address to get it from.
        realm: String,
        /// For whom.
        service: Option<String>,
        /// For what.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads a `WWW-Authenticate` header (RFC 9110, section 11.6.1); `None` for what we can't answer.
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut values = parameters(rest);
        let realm = values.remove("realm")?;
        Some(Self::Bearer { realm, service: values.remove("service"), scope: values.remove("scope") })
    }
}

/// `name="value", name=value`, where quotes hold commas and escapes.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        found.insert(name.trim().to_ascii_lowercase(), value);
        rest = after.trim_start_matches([' ', ',']);
    }
    found
}

/// What is before the closing quote, and what is behind it.
fn unquote(text: &str) -> (String, &str) {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (place, c) in text.char_indices() {
        match c {
            _ if is_escaped => (value, is_escaped) = (value + c.encode_utf8(&mut [0; 4]), false),
            '\\' => is_escaped = true,
            '"' => return (value, &text[place + 1..]),
            c => value.push(c),
        }
    }
    (value, "")
}

/// A user of a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// Never shows the password.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user)
    }
}

impl Credentials {
    /// The value of an `Authorization` header.
    pub fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }

    /// Tells credentials apart without having them.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(format!("{}\0{}", self.user, self.password).as_bytes())
    }
}

/// The credentials of pull secrets, by the registries that they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(Vec<(String, Credentials)>);

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl Entry {
    fn credentials(&self) -> Option<Credentials> {
        if self.auth.is_empty() {
            let (user, password) = (self.username.clone(), self.password.clone());
            return (!user.is_empty()).then_some(Credentials { user, password });
        }
        // Some tools leave the padding out, others fill up with NULs.
        let text = STANDARD.decode(&self.auth).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (user, password) = text.trim_end_matches('\0').split_once(':')?;
        Some(Credentials { user: user.to_owned(), password: password.to_owned() })
    }
}

impl Keyring {
    /// Adds the data of a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`. What can't be
    /// read is left out, as upstream does.
    pub fn add(&mut self, data: &BTreeMap<String, Vec<u8>>) {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            auths: BTreeMap<String, Entry>,
        }
        let new = data.get(".dockerconfigjson").and_then(|bytes| serde_json::from_slice::<File>(bytes).ok());
        let old = || {
            let bytes = data.get(".dockercfg")?;
            serde_json::from_slice::<BTreeMap<String, Entry>>(bytes).ok()
        };
        let entries = new.map(|file| file.auths).or_else(old).unwrap_or_default();
        for (place, entry) in entries {
            if let Some(credentials) = entry.credentials() {
                self.0.push((plain(&place), credentials));
            }
        }
        // The most exact first.
        self.0.sort_by(|(a, _), (b, _)| b.cmp(a));
    }

    /// Those for a repository such as `registry.example/team/app`, the most exact first.
    pub fn lookup(&self, repository: &str) -> Vec<&Credentials> {
        let fitting = self.0.iter().filter(|(place, _)| fits(place, repository));
        fitting.map(|(_, credentials)| credentials).collect()
    }
}

/// Without scheme and version: `https://index.docker.io/v1/` is `index.docker.io`, which is `docker.io`.
fn plain(place: &str) -> String {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let place = place.trim_end_matches('/');
    let place = place.strip_suffix("/v1").or(place.strip_suffix("/v2")).unwrap_or(place);
    match place.strip_prefix("index.docker.io") {
        Some(rest) => format!("docker.io{rest}"),
        None => place.to_owned(),
    }
}

/// Whether credentials for `place` are for `repository`: the parts of the host are equal or a `*`, the port is equal,
/// and the path begins alike.
fn fits(place: &str, repository: &str) -> bool {
    let split = |text: &str| -> (Vec<String>, Option<String>, String) {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port.to_owned())),
            _ => (host, None),
        };
        (host.split('.').map(str::to_owned).collect(), port, path.to_owned())
    };
    let ((wanted, port, path), (host, its_port, its_path)) = (split(place), split(repository));
    let is_host =
        wanted.len() == host.len() && wanted.iter().zip(&host).all(|(wanted, part)| is_glob(wanted, part));
    is_host && port == its_port && its_path.starts_with(&path)
}

/// `*` stands for any text.
fn is_glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| is_glob(after, &rest[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        for (header, want) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a.io/token\",service=\"a.io\",scope=\"repository:x/y:pull,push\"",
                Some(bearer("https://a.io/token", Some("a.io"), Some("repository:x/y:pull,push"))),
            ),
            ("bearer  Realm=https://a.io/t , service=s", Some(bearer("https://a.io/t", Some("s"), None))),
            ("Bearer realm=\"a\\\"b\", error=\"x\"", Some(bearer("a\"b", None, None))),
            ("Bearer realm=\"open", Some(bearer("open", None, None))),
            ("Bearer service=\"s\"", None),
            ("Negotiate abc", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), want, "{header}");
        }
    }

    #[test]
    fn pull_secrets_have_credentials_for_registries() {
        let mut keyring = Keyring::default();
        let auth = STANDARD.encode("u:p:w");
        let file = json!({"auths": {
            "https://index.docker.io/v1/": {"auth": auth},
            "r.io:5000": {"username": "a", "password": "b"},
            "r.io:5000/team": {"username": "team", "password": "b"},
            "*.corp.io": {"username": "corp", "password": "c"},
            "bad.io": {"auth": "?"},
        }});
        keyring.add(&BTreeMap::from([(".dockerconfigjson".into(), file.to_string().into_bytes())]));
        let old = json!({"old.io": {"username": "old", "password": "d"}});
        keyring.add(&BTreeMap::from([(".dockercfg".into(), old.to_string().into_bytes())]));
        keyring.add(&BTreeMap::from([(".dockerconfigjson".into(), b"{".to_vec())]));
        for (repository, want) in [
            ("docker.io/library/busybox", vec!["u"]),
            ("r.io:5000/x", vec!["a"]),
            ("r.io:5000/team/x", vec!["team", "a"]),
            ("r.io/x", vec![]),
            ("a.corp.io/x", vec!["corp"]),
            ("a.b.corp.io/x", vec![]),
            ("old.io/x", vec!["old"]),
            ("bad.io/x", vec![]),
        ] {
            let got: Vec<&str> = keyring.lookup(repository).iter().map(|found| found.user.as_str()).collect();
            assert_eq!(got, want, "{repository}");
        }
        let found = keyring.lookup("docker.io/library/busybox")[0];
        assert_eq!((found.password.as_str(), found.basic()), ("p:w", format!("Basic {auth}")));
        assert_eq!(format!("{found:?}"), "Credentials(u)");
    }
}
