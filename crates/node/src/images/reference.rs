//! Names of images: `busybox`, `registry.example/team/app:1.2`, `app@sha256:…`, as Kubernetes reads them.

use std::fmt;

use super::digest::{self, Digest};

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
/// The longest path of a repository.
const PATH_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;

/// A name with nothing left to guess.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The registry, with its port if one was given.
    pub domain: String,
    /// The repository in it.
    pub path: String,
    /// The tag. Always there when there is no digest.
    pub tag: Option<String>,
    /// The digest. Wins over the tag.
    pub digest: Option<Digest>,
}

/// Why a text is no name of an image; the texts end in waiting messages and are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not have the form of a name.
    #[error("invalid reference format")]
    Format,
    /// The repository has capital letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// It is an image id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// The repository is too long.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// The digest can't be one.
    #[error(transparent)]
    Digest(#[from] digest::Error),
}

impl Reference {
    /// Reads a name: no registry means Docker Hub, and neither tag nor digest means `latest`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Error::Identifier(text.to_owned()));
        }
        let (domain, rest) = split_domain(text);
        let rest = match domain == DEFAULT_DOMAIN && !rest.contains('/') {
            true => format!("library/{rest}"),
            false => rest.to_owned(),
        };
        let name = rest.split_once(':').map_or(rest.as_str(), |(name, _)| name);
        if name.to_lowercase() != name {
            return Err(Error::Uppercase(name.to_owned()));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest.to_owned(), Some(digest.to_owned())),
            None => (rest, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) => (path.to_owned(), Some(tag.to_owned())),
            None => (rest, None),
        };
        let is_fine = is_domain(domain)
            && path.split('/').all(is_component)
            && tag.as_deref().is_none_or(is_tag)
            && digest.as_deref().is_none_or(is_like_digest);
        if !is_fine {
            return Err(Error::Format);
        }
        if path.len() > PATH_LENGTH_MAX {
            return Err(Error::TooLong);
        }
        let digest = digest.as_deref().map(Digest::parse).transpose()?;
        let tag = tag.or_else(|| digest.is_none().then(|| DEFAULT_TAG.to_owned()));
        Ok(Self { domain: domain.to_owned(), path, tag, digest })
    }

    /// What a registry is asked for: the digest, or the tag.
    pub fn selector(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// Registry and repository.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }
}

/// The whole name. Two texts that mean the same are the same here.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.path)?;
        match (&self.tag, &self.digest) {
            (Some(tag), None) => write!(f, ":{tag}"),
            (_, Some(digest)) => write!(f, "@{digest}"),
            (None, None) => Ok(()),
        }
    }
}

/// The registry is what looks like a host: it has a dot, a port or a capital letter, or is `localhost`.
fn split_domain(text: &str) -> (&str, &str) {
    let split = text.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':']) || *first == "localhost" || first.to_lowercase() != *first
    });
    match split {
        // The old name of Docker Hub.
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some(split) => split,
        None => (DEFAULT_DOMAIN, text),
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            let is_address =
                !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            let port = port.strip_prefix(':').or(port.is_empty().then_some("0"));
            return is_address && port.is_some_and(is_port);
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_fine) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Small letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| is_word(*byte));
    if !ends(bytes.first()) || !ends(bytes.last()) {
        return false;
    }
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    separators
        .filter(|part| !part.is_empty())
        .all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_LENGTH_MAX
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Has the form of a digest of any algorithm.
fn is_like_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_filled_in() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, want) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("team/app", "docker.io/team/app:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("registry.k8s.io/e2e-test-images/agnhost:2.53", "registry.k8s.io/e2e-test-images/agnhost:2.53"),
            ("localhost/app", "localhost/app:latest"),
            ("127.0.0.1:5000/a/b_c/d--e:v1", "127.0.0.1:5000/a/b_c/d--e:v1"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("Host/app", "Host/app:latest"),
            (&format!("busybox@{digest}"), &format!("docker.io/library/busybox@{digest}")),
            (&format!("r.io/x:1@{digest}"), &format!("r.io/x@{digest}")),
        ] {
            let got = Reference::parse(text).map(|reference| reference.to_string());
            assert_eq!(got.as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_the_words_of_kubernetes() {
        let upper = |name: &str| Error::Uppercase(name.into());
        for (text, want) in [
            ("", Error::Format),
            ("busybox:", Error::Format),
            ("bad image", Error::Format),
            ("a//b", Error::Format),
            ("r.io/", Error::Format),
            ("a..b", Error::Format),
            ("a___b", Error::Format),
            ("-a", Error::Format),
            ("a:b:c", Error::Format),
            ("busybox@sha256:1234", Error::Format),
            ("r.io:x/app", Error::Format),
            ("../../etc", Error::Format),
            ("FAILED_IMAGE", upper("library/FAILED_IMAGE")),
            ("r.io/App:1", upper("App")),
            (&"a".repeat(64), Error::Identifier("a".repeat(64))),
            (&"a".repeat(256), Error::TooLong),
            (&format!("a@md5:{}", "a".repeat(32)), Error::Digest(digest::Error::Algorithm)),
            (&format!("a@sha256:{}", "a".repeat(60)), Error::Digest(digest::Error::Length)),
        ] {
            assert_eq!(Reference::parse(text), Err(want), "{text}");
        }
    }

    #[test]
    fn a_registry_is_asked_for_the_digest_before_the_tag() {
        let digest = format!("sha256:{}", "b".repeat(64));
        for (text, want) in [("a", "latest"), ("a:1", "1"), (&format!("a:1@{digest}"), digest.as_str())] {
            assert_eq!(Reference::parse(text).expect("a name").selector(), want, "{text}");
        }
    }
}
