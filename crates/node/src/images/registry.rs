//! Images from registries, over the distribution API (OCI distribution specification 1.1, the pulling part).
//!
//! Plain HTTP is spoken on the loopback of this machine only: registries, mirrors, realms of tokens and redirects
//! alike.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HeaderValue, LOCATION, USER_AGENT, WWW_AUTHENTICATE,
};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use super::auth::{Challenge, Credentials};
use super::digest::Digest;
use super::manifest::{self, ACCEPTED, DOCUMENT_BYTES_MAX};
use super::reference::Reference;

/// How long a registry may take to answer, and to send the next piece.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often an answer may lead elsewhere.
const REDIRECTS_MAX: usize = 5;
/// The longest error that is read.
const ERROR_BYTES_MAX: u64 = 8 << 10;

const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

/// Why a registry did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was not reached.
    #[error("get {uri}: {error}")]
    Connect {
        /// Where.
        uri: String,
        /// Why not.
        error: String,
    },
    /// It took too long.
    #[error("get {0}: no answer in {seconds} s", seconds = ANSWER_TIME_MAX.as_secs())]
    Slow(String),
    /// It does not have it.
    #[error("{0}: not found")]
    NotFound(String),
    /// It does not let us.
    #[error("{name}: {status}: {text}")]
    Denied {
        /// What was asked for.
        name: String,
        /// What it said.
        status: StatusCode,
        /// And why.
        text: String,
    },
    /// It answered something else.
    #[error("{uri}: {status}: {text}")]
    Status {
        /// Where.
        uri: String,
        /// What it said.
        status: StatusCode,
        /// And why.
        text: String,
    },
    /// An address that we do not use.
    #[error("{0}: plain HTTP is for registries on this machine only")]
    Insecure(String),
    /// An address that is none.
    #[error("{0:?} is no address")]
    Address(String),
    /// An answer that leads on and on.
    #[error("{0}: too many redirects")]
    Redirects(String),
    /// What came is not what was asked for.
    #[error("{name}: the content has the digest {got}, not {want}")]
    Digest {
        /// What was asked for.
        name: String,
        /// What was asked for.
        want: Digest,
        /// What came.
        got: Digest,
    },
    /// What came is shorter or longer than what was asked for.
    #[error("{name}: the content has {got} bytes, not {want}")]
    Length {
        /// What was asked for.
        name: String,
        /// What was asked for.
        want: u64,
        /// What came.
        got: u64,
    },
    /// What was asked for is too large.
    #[error(transparent)]
    Document(#[from] manifest::Error),
    /// What came could not be kept.
    #[error("write {path}: {error}", path = .path.display())]
    Write {
        /// The file.
        path: std::path::PathBuf,
        /// What the kernel said.
        #[source]
        error: std::io::Error,
    },
}

/// Where a registry is asked: a mirror of it, or itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://registry.example` or `http://127.0.0.1:5000`.
    base: String,
    /// It is the registry itself: only then it sees the credentials for it.
    is_origin: bool,
}

/// Other places to ask for the images of registries, by the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors(Vec<(String, String)>);

impl Mirrors {
    /// Reads `REGISTRY=URL`, such as `docker.io=http://127.0.0.1:5000`; `*` stands for every registry.
    pub fn parse(texts: &[String]) -> Result<Self, Error> {
        let mut mirrors = Vec::new();
        for text in texts {
            let (registry, base) = text.split_once('=').ok_or_else(|| Error::Address(text.clone()))?;
            let base = base.trim_end_matches('/');
            check(&base.parse().map_err(|_| Error::Address(base.to_owned()))?)?;
            mirrors.push((registry.to_owned(), base.to_owned()));
        }
        Ok(Self(mirrors))
    }

    /// Where to ask, in this order.
    pub fn endpoints(&self, domain: &str) -> Vec<Endpoint> {
        let fitting = self.0.iter().filter(|(registry, _)| registry == domain || registry == "*");
        let mut found: Vec<Endpoint> =
            fitting.map(|(_, base)| Endpoint { base: base.clone(), is_origin: false }).collect();
        // Docker Hub's name is not the one of its registry.
        let host = if domain == "docker.io" { "registry-1.docker.io" } else { domain };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        found.push(Endpoint { base: format!("{scheme}://{host}"), is_origin: true });
        found
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses addresses that are neither HTTPS nor on this machine.
fn check(uri: &Uri) -> Result<(), Error> {
    let authority = uri.authority().map(|authority| authority.as_str());
    match (uri.scheme_str(), authority) {
        (Some("https"), Some(_)) => Ok(()),
        (Some("http"), Some(authority)) if is_loopback(authority) => Ok(()),
        (Some("http"), Some(_)) => Err(Error::Insecure(uri.to_string())),
        _ => Err(Error::Address(uri.to_string())),
    }
}

/// Where an answer leads. From a registry elsewhere nobody is sent to plain HTTP, on this machine either.
fn follow(from: &Uri, location: &str) -> Result<Uri, Error> {
    let bad = || Error::Address(location.to_owned());
    let to: Uri = location.parse().map_err(|_| bad())?;
    let to = match to.scheme() {
        Some(_) => to,
        None => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = to.into_parts().path_and_query;
            Uri::from_parts(parts).map_err(|_| bad())?
        }
    };
    check(&to)?;
    if from.scheme_str() == Some("https") && to.scheme_str() == Some("http") {
        return Err(Error::Insecure(to.to_string()));
    }
    Ok(to)
}

type Http = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// Endpoint, repository and user.
type Scope = (String, String, Option<Digest>);

/// Asks registries.
#[derive(Default)]
pub struct Registry {
    /// Made when it is first used: reading the certificates of a machine takes its time.
    http: OnceLock<Http>,
    /// Tokens and passwords that were accepted.
    authorizations: Mutex<HashMap<Scope, HeaderValue>>,
}

/// With the certificates that this machine trusts.
fn client() -> Http {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = hyper_rustls::HttpsConnectorBuilder::new();
    let builder = match builder.with_provider_and_native_roots(provider.clone()) {
        Ok(builder) => builder,
        // A machine without any: registries on loopback can be used.
        Err(error) => {
            tracing::debug!(%error, "no certificate authorities on this machine");
            let config = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .expect("the provider has the default versions")
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config)
        }
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIME_MAX));
    let connector = builder.https_or_http().enable_all_versions().wrap_connector(tcp);
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)
}

impl Registry {
    /// An index or manifest, and its digest. Checked against `want`, or against the digest that the name has.
    pub async fn manifest(
        &self,
        source: &Source<'_>,
        want: Option<&Digest>,
    ) -> Result<(Vec<u8>, Digest), Error> {
        let name = source.name;
        let selector = want.map_or_else(|| name.selector(), Digest::to_string);
        let path = format!("/v2/{}/manifests/{selector}", name.path);
        let answer = self.get(source, &path, &format!("{}@{selector}", name.repository())).await?;
        let bytes = read(&path, answer, DOCUMENT_BYTES_MAX).await?;
        let want = want.or(name.digest.as_ref());
        let got = want.map_or_else(
            || Digest::of(&bytes),
            |want| {
                let mut hasher = want.hasher();
                hasher.update(&bytes);
                hasher.finish()
            },
        );
        match want {
            Some(want) if *want != got => {
                Err(Error::Digest { name: name.to_string(), want: want.clone(), got })
            }
            _ => Ok((bytes, got)),
        }
    }

    /// A small blob, checked.
    pub async fn document(&self, source: &Source<'_>, digest: &Digest, size: u64) -> Result<Vec<u8>, Error> {
        manifest::within("image configuration", size, DOCUMENT_BYTES_MAX)?;
        let path = format!("/v2/{}/blobs/{digest}", source.name.path);
        let name = format!("{}@{digest}", source.name.repository());
        let answer = self.get(source, &path, &name).await?;
        let bytes = read(&path, answer, size).await?;
        match digest.is_of(&bytes) {
            true => Ok(bytes),
            false => Err(Error::Digest { name, want: digest.clone(), got: Digest::of(&bytes) }),
        }
    }

    /// A blob into a file, checked.
    pub async fn blob(
        &self,
        source: &Source<'_>,
        digest: &Digest,
        size: u64,
        into: &Path,
    ) -> Result<(), Error> {
        let path = format!("/v2/{}/blobs/{digest}", source.name.path);
        let name = format!("{}@{digest}", source.name.repository());
        let answer = self.get(source, &path, &name).await?;
        let failed = |error| Error::Write { path: into.to_owned(), error };
        let mut file = tokio::fs::File::create_new(into).await.map_err(failed)?;
        let (mut hasher, mut length) = (digest.hasher(), 0);
        let mut body = answer.into_body();
        while let Some(piece) = next(&path, &mut body).await? {
            length += piece.len() as u64;
            if length > size {
                return Err(Error::Length { name, want: size, got: length });
            }
            hasher.update(&piece);
            file.write_all(&piece).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        if length != size {
            return Err(Error::Length { name, want: size, got: length });
        }
        let got = hasher.finish();
        if got != *digest {
            return Err(Error::Digest { name, want: digest.clone(), got });
        }
        Ok(())
    }

    /// Asks an endpoint, and says who we are if it wants to know.
    async fn get(&self, source: &Source<'_>, path: &str, what: &str) -> Result<Response<Incoming>, Error> {
        let uri = format!("{}{path}", source.endpoint.base);
        let uri: Uri = uri.parse().map_err(|_| Error::Address(uri.clone()))?;
        let credentials = source.credentials.filter(|_| source.endpoint.is_origin);
        let key = (
            source.endpoint.base.clone(),
            source.name.path.clone(),
            credentials.map(Credentials::fingerprint),
        );
        let known = self.authorizations.lock().get(&key).cloned();
        let answer = self.send(&uri, known, Some(ACCEPTED)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return accept(answer, &uri, what).await;
        }
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenge = challenges.filter_map(|value| Challenge::parse(value.to_str().ok()?)).next();
        let authorization = match (challenge, credentials) {
            (Some(Challenge::Basic), Some(credentials)) => credentials.basic(),
            (Some(Challenge::Bearer { realm, service, scope }), credentials) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", source.name.path));
                self.token(&realm, service.as_deref(), &scope, credentials).await?
            }
            (Some(Challenge::Basic) | None, _) => return accept(answer, &uri, what).await,
        };
        let mut authorization =
            HeaderValue::from_str(&authorization).map_err(|_| Error::Address("authorization".into()))?;
        authorization.set_sensitive(true);
        let answer = self.send(&uri, Some(authorization.clone()), Some(ACCEPTED)).await?;
        if answer.status().is_success() {
            self.authorizations.lock().insert(key, authorization);
        }
        accept(answer, &uri, what).await
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
        credentials: Option<&Credentials>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let separator = if realm.contains('?') { '&' } else { '?' };
        let service = service.map(|service| format!("service={}&", escape(service))).unwrap_or_default();
        let address = format!("{realm}{separator}{service}scope={}", escape(scope));
        let uri: Uri = address.parse().map_err(|_| Error::Address(realm.to_owned()))?;
        check(&uri)?;
        let authorization =
            credentials.and_then(|credentials| HeaderValue::from_str(&credentials.basic()).ok());
        let answer = self.send(&uri, authorization, None).await?;
        let answer = accept(answer, &uri, &format!("token for {scope}")).await?;
        let bytes = read(realm, answer, DOCUMENT_BYTES_MAX).await?;
        let token = serde_json::from_slice::<Token>(&bytes)
            .map_err(|error| manifest::Error::Read { what: "token", error: error.to_string() })?;
        Ok(format!("Bearer {}", token.token.or(token.access_token).unwrap_or_default()))
    }

    /// One request, and those that its answer leads to.
    async fn send(
        &self,
        uri: &Uri,
        authorization: Option<HeaderValue>,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, Error> {
        let (mut uri, origin) = (uri.clone(), uri.authority().cloned());
        for _ in 0..=REDIRECTS_MAX {
            let mut request = Request::get(uri.clone()).header(USER_AGENT, AGENT);
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            // A password is for the one who asked for it.
            if let Some(value) = authorization.clone().filter(|_| uri.authority() == origin.as_ref()) {
                request = request.header(AUTHORIZATION, value);
            }
            let request = request.body(Empty::new()).map_err(|_| Error::Address(uri.to_string()))?;
            let answer =
                tokio::time::timeout(ANSWER_TIME_MAX, self.http.get_or_init(client).request(request)).await;
            let answer = answer.map_err(|_| Error::Slow(uri.to_string()))?;
            let answer = answer.map_err(|error| connect_error(&uri, &error))?;
            let location = answer.headers().get(LOCATION).filter(|_| answer.status().is_redirection());
            let Some(location) = location.and_then(|value| value.to_str().ok()) else { return Ok(answer) };
            uri = follow(&uri, location)?;
        }
        Err(Error::Redirects(uri.to_string()))
    }
}

/// What is asked for, where, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The image.
    pub name: &'a Reference,
    /// Where.
    pub endpoint: &'a Endpoint,
    /// By whom.
    pub credentials: Option<&'a Credentials>,
}

/// With what is below it, which says more than that a request failed.
fn connect_error(uri: &Uri, error: &dyn std::error::Error) -> Error {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    Error::Connect { uri: uri.to_string(), error: text }
}

fn escape(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Passes good answers on, and makes errors of the others.
async fn accept(answer: Response<Incoming>, uri: &Uri, what: &str) -> Result<Response<Incoming>, Error> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let bytes = read("", answer, ERROR_BYTES_MAX).await.unwrap_or_default();
    let text = said(&bytes);
    Err(match status {
        StatusCode::NOT_FOUND => Error::NotFound(what.to_owned()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::Denied { name: what.to_owned(), status, text }
        }
        status => Error::Status { uri: uri.to_string(), status, text },
    })
}

/// The first message of an error body, or the body.
fn said(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let first = serde_json::from_slice::<Errors>(bytes).ok().and_then(|all| all.errors.into_iter().next());
    match first {
        Some(One { code, message }) if message.is_empty() => code,
        Some(One { message, .. }) => message,
        None => String::from_utf8_lossy(bytes).trim().chars().take(200).collect(),
    }
}

async fn next(name: &str, body: &mut Incoming) -> Result<Option<Bytes>, Error> {
    let failed = |error: String| Error::Connect { uri: name.to_owned(), error };
    loop {
        let frame = tokio::time::timeout(ANSWER_TIME_MAX, body.frame()).await;
        match frame.map_err(|_| failed("the answer stopped half way".into()))? {
            None => return Ok(None),
            Some(Err(error)) => return Err(failed(error.to_string())),
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// A whole body of at most `limit` bytes.
async fn read(name: &str, answer: Response<Incoming>, limit: u64) -> Result<Vec<u8>, Error> {
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    manifest::within("answer", length.unwrap_or(0), limit)?;
    let (mut bytes, mut body) = (Vec::new(), answer.into_body());
    while let Some(piece) = next(name, &mut body).await? {
        manifest::within("answer", (bytes.len() + piece.len()) as u64, limit)?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_asked_after_its_mirrors() {
        let texts = ["docker.io=http://127.0.0.1:5000/", "*=https://all.example/mirror"].map(str::to_owned);
        let mirrors = Mirrors::parse(&texts).expect("fine");
        for (domain, want) in [
            (
                "docker.io",
                vec!["http://127.0.0.1:5000", "https://all.example/mirror", "https://registry-1.docker.io"],
            ),
            ("quay.io", vec!["https://all.example/mirror", "https://quay.io"]),
            ("127.0.0.1:5000", vec!["https://all.example/mirror", "http://127.0.0.1:5000"]),
            ("localhost:5000", vec!["https://all.example/mirror", "http://localhost:5000"]),
            ("[::1]:5000", vec!["https://all.example/mirror", "http://[::1]:5000"]),
            ("10.0.0.1:5000", vec!["https://all.example/mirror", "https://10.0.0.1:5000"]),
        ] {
            let endpoints = mirrors.endpoints(domain);
            let got: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.base.as_str()).collect();
            assert_eq!(got, want, "{domain}");
            let origins: Vec<bool> = endpoints.iter().map(|endpoint| endpoint.is_origin).collect();
            assert!(origins.iter().rev().skip(1).all(|is_origin| !is_origin) && origins.ends_with(&[true]));
        }
    }

    #[test]
    fn plain_http_is_refused_but_on_this_machine() {
        for (text, want) in [
            ("docker.io", Err("\"docker.io\" is no address")),
            ("docker.io=mirror", Err("\"mirror\" is no address")),
            ("docker.io=ftp://127.0.0.1", Err("\"ftp://127.0.0.1/\" is no address")),
            (
                "docker.io=http://10.0.0.1:5000",
                Err("http://10.0.0.1:5000/: plain HTTP is for registries on this machine only"),
            ),
            (
                "docker.io=http://127.0.0.1.evil.example",
                Err("http://127.0.0.1.evil.example/: plain HTTP is for registries on this machine only"),
            ),
            ("docker.io=http://localhost:5000", Ok(())),
            ("docker.io=https://m.example", Ok(())),
        ] {
            let got = Mirrors::parse(&[text.to_owned()]).map(drop).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn redirects_do_not_lead_from_https_to_http() {
        for (from, location, want) in [
            ("https://r.io/v2/x", "https://cdn.io/y?z=1", Some("https://cdn.io/y?z=1")),
            ("https://r.io/v2/x", "/other?a", Some("https://r.io/other?a")),
            ("http://127.0.0.1:5/x", "/y", Some("http://127.0.0.1:5/y")),
            ("http://127.0.0.1:5/x", "https://cdn.io/y", Some("https://cdn.io/y")),
            ("https://r.io/x", "http://cdn.io/y", None),
            ("https://r.io/x", "http://127.0.0.1/y", None),
            ("http://127.0.0.1/x", "file:///etc/passwd", None),
        ] {
            let got = follow(&from.parse().expect("an address"), location).ok().map(|uri| uri.to_string());
            assert_eq!(got.as_deref(), want, "{from} {location}");
        }
    }

    #[test]
    fn the_first_error_of_a_registry_is_what_it_said() {
        for (body, want) in [
            (r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#, "manifest unknown"),
            (r#"{"errors":[{"code":"DENIED"}]}"#, "DENIED"),
            (r#"{"errors":[]}"#, r#"{"errors":[]}"#),
            (" plain \n", "plain"),
        ] {
            assert_eq!(said(body.as_bytes()), want);
        }
    }

    #[test]
    fn what_is_put_into_an_address_is_escaped() {
        assert_eq!(escape("repository:a/b:pull&x=1"), "repository%3Aa%2Fb%3Apull%26x%3D1");
    }
}
