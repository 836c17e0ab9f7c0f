//! The audit file: one line of JSON for each write, an `Event` of audit.k8s.io/v1 at level Metadata.
//!
//! What is sent and answered is never in it, nor is any header but the name of the client: no tokens, no Secrets. Lines
//! are written by a thread of their own; a request waits only when very many lines are queued.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
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

/// A request of which a line will be written.
#[derive(Debug)]
pub(super) struct Draft {
    event: Value,
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
        let decision = if verdict.is_allowed { "allow" } else { "forbid" };
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
            "auditID": uuid::Uuid::new_v4().to_string(), "stage": "ResponseComplete",
            "requestURI": cut(uri, URI_MAX), "verb": action.verb, "user": who.to_json(),
            "requestReceivedTimestamp": micros(now),
            "annotations": {
                "authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": verdict.reason,
            },
        });
        if let Some(from) = from {
            event["sourceIPs"] = json!([from.to_string()]);
        }
        if let Some(agent) = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()) {
            event["userAgent"] = json!(cut(agent, AGENT_MAX));
        }
        if let Object::Resource(target) = &action.to {
            let version = head.uri.path().split('/').filter(|part| !part.is_empty());
            let version =
                version.clone().nth(if target.group.is_empty() { 1 } else { 2 }).unwrap_or_default();
            let fields = [
                ("resource", target.resource.as_str()),
                ("namespace", target.namespace.as_str()),
                ("name", target.name.as_str()),
                ("apiGroup", target.group.as_str()),
                ("apiVersion", version),
                ("subresource", target.subresource.as_str()),
            ];
            let fields: BTreeMap<&str, &str> =
                fields.into_iter().filter(|(_, text)| !text.is_empty()).collect();
            event["objectRef"] = json!(fields);
        }
        Self { event }
    }

    /// The line, once the answer is known.
    pub(super) fn line(mut self, code: StatusCode, now: Timestamp) -> String {
        self.event["responseStatus"] = json!({"metadata": {}, "code": code.as_u16()});
        self.event["stageTimestamp"] = json!(micros(now));
        self.event.to_string()
    }
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...TRUNCATED", &text[..end])
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
