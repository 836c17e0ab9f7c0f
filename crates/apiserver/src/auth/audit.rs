//! The audit file: one line of JSON for each write, an `Event` of audit.k8s.io/v1 at level Metadata.
//!
//! What is sent and answered is never in it, nor is any header but the name of the client: no tokens, no Secrets. Lines
//! are written by a thread of their own; a request waits only when very many lines are queued.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc;

use super::action::{Action, Object};
use super::identity::Identity;
use super::policy::Verdict;

/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// upstream: what is kept of a longer name of a client.
const AGENT_MAX: usize = 1024;
/// A longer address is cut: the queries that are served need less.
const URI_MAX: usize = 8192;

/// Where audit lines go, and how much of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// A file that would be larger is put aside, as `{path}.1`.
    pub bytes_max: u64,
    /// How many are kept aside.
    pub backups: usize,
}

impl Settings {
    /// A file with the usual bounds: 100 MiB, and ten more of them.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), bytes_max: 100 << 20, backups: 10 }
    }
}

/// Takes audit lines.
#[derive(Clone, Debug)]
pub struct Audit(mpsc::Sender<String>);

impl Audit {
    /// Opens the file, with mode 0600, and starts the thread that writes to it. It ends with the last clone.
    pub fn open(settings: Settings) -> io::Result<Self> {
        let mut file = Rotated::open(settings)?;
        let (sender, mut lines) = mpsc::channel::<String>(QUEUE);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || {
            while let Some(line) = lines.blocking_recv() {
                file.write(&line);
                while let Ok(line) = lines.try_recv() {
                    file.write(&line);
                }
                file.flush();
            }
        })?;
        Ok(Self(sender))
    }

    pub(super) async fn write(&self, line: String) {
        if self.0.send(line).await.is_err() {
            tracing::error!("an audit line is lost: its thread has ended");
        }
    }
}

/// A request of which a line will be written: the line without its end.
#[derive(Debug)]
pub(super) struct Draft(String);

/// What is known when a request has been judged.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Judged<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: Cow<'a, str>,
    verb: &'a str,
    user: &'a Identity,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source_ips: Option<[IpAddr; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef<'a>>,
    request_received_timestamp: String,
    annotations: Annotations<'a>,
}

#[derive(Serialize)]
struct Annotations<'a> {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: &'static str,
    #[serde(rename = "authorization.k8s.io/reason")]
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

impl<'a> ObjectRef<'a> {
    fn of(action: &'a Action, path: &'a str) -> Option<Self> {
        let Object::Resource(target) = &action.to else { return None };
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let place = if target.group.is_empty() { 1 } else { 2 };
        Some(Self {
            resource: &target.resource,
            namespace: &target.namespace,
            name: &target.name,
            api_group: &target.group,
            api_version: parts.nth(place).unwrap_or_default(),
            subresource: &target.subresource,
        })
    }
}

impl Draft {
    /// What is known when a request has been judged.
    pub(super) fn new(
        head: &Parts,
        from: Option<IpAddr>,
        who: &Identity,
        action: &Action,
        (verdict, now): (&Verdict, Timestamp),
    ) -> Self {
        let uri = head.uri.path_and_query().map_or_else(|| head.uri.path(), |uri| uri.as_str());
        let agent = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let judged = Judged {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: uuid::Uuid::new_v4().to_string(),
            stage: "ResponseComplete",
            request_uri: cut(uri, URI_MAX),
            verb: &action.verb,
            user: who,
            source_ips: from.map(|from| [from]),
            user_agent: agent.map(|agent| cut(agent, AGENT_MAX)),
            object_ref: ObjectRef::of(action, head.uri.path()),
            request_received_timestamp: micros(now),
            annotations: Annotations {
                decision: if verdict.is_allowed { "allow" } else { "forbid" },
                reason: &verdict.reason,
            },
        };
        let mut line = serde_json::to_string(&judged).expect("texts are always JSON");
        // It ends with what the answer will be.
        line.pop();
        Self(line)
    }

    /// The line, once the answer is known.
    pub(super) fn line(self, code: StatusCode, now: Timestamp) -> String {
        let (mut line, code, now) = (self.0, code.as_u16(), micros(now));
        _ = write!(line, r#","responseStatus":{{"metadata":{{}},"code":{code}}},"stageTimestamp":"{now}"}}"#);
        line
    }
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}...TRUNCATED", &text[..end]))
}

/// A file that is put aside when it is full.
#[derive(Debug)]
struct Rotated {
    settings: Settings,
    file: BufWriter<File>,
    bytes: u64,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl Rotated {
    fn open(settings: Settings) -> io::Result<Self> {
        let file = open(&settings.path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { settings, file: BufWriter::new(file), bytes })
    }

    /// A line that can't be written is reported, and the requests go on.
    fn write(&mut self, line: &str) {
        let length = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + length > self.settings.bytes_max {
            self.rotate().unwrap_or_else(|error| self.report(&error));
        }
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
        match written {
            Ok(()) => self.bytes += length,
            Err(error) => self.report(&error),
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.file.flush() {
            self.report(&error);
        }
    }

    fn report(&self, error: &io::Error) {
        tracing::error!("write to the audit file {}: {error}", self.settings.path.display());
    }

    fn aside(&self, number: usize) -> PathBuf {
        let mut path = self.settings.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        for number in (1..self.settings.backups).rev() {
            let from = self.aside(number);
            if from.exists() {
                fs::rename(from, self.aside(number + 1))?;
            }
        }
        if self.settings.backups > 0 {
            fs::rename(&self.settings.path, self.aside(1))?;
        } else {
            fs::remove_file(&self.settings.path)?;
        }
        self.file = BufWriter::new(open(&self.settings.path)?);
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let mut file =
            Rotated::open(Settings { path: path.clone(), bytes_max: 10, backups: 2 }).expect("a file");
        for line in ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "a line that is longer than a file"] {
            file.write(line);
        }
        file.flush();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("a file");
        assert_eq!(read("audit.log"), "a line that is longer than a file\n");
        assert_eq!(read("audit.log.1"), "eeee\nffff\n");
        assert_eq!(read("audit.log.2"), "cccc\ndddd\n");
        assert!(!dir.path().join("audit.log.3").exists());
        drop(file);
        let mut again = Rotated::open(Settings { path, bytes_max: 100, backups: 0 }).expect("a file");
        again.write("more");
        again.flush();
        assert_eq!(read("audit.log"), "a line that is longer than a file\nmore\n", "it goes on where it was");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abüd", 3), "ab...TRUNCATED");
    }
}
