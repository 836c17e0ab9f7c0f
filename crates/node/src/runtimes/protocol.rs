//! What the agent and its keeper say to each other: frames of JSON behind a length, over a socket pair.

use std::io;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::sandbox::Sandbox;

/// The longest frame that is read. Linux allows 2 MiB of arguments and environment by default (a quarter of
/// the stack limit), JSON escapes can make it longer; beyond this a peer is broken.
const FRAME_BYTES_MAX: usize = 32 << 20;

/// One process to run: a container's command with nothing left to expand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments; a program without a slash is looked for in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The file that gets its standard output and error. Made anew; its directory must be there.
    pub log: PathBuf,
    /// That file, and its directory, are made when there is something to write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub makes_log_late: bool,
    /// What it sees and may do, if that is not what the agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<Sandbox>>,
    /// It is a runtime that has to say when the container that it makes has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
    /// What it reads.
    #[serde(default)]
    pub input: Input,
    /// How much of its output is kept; nothing: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_limits: Option<LogLimits>,
}

impl Process {
    /// Whether it needs a keeper that is root, if only of a user namespace.
    pub fn is_apart(&self) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.image.is_some() || sandbox.has_own_pids)
    }
}

/// How much of the output of a container is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// A file that has so many bytes is put aside at the next end of a line.
    pub bytes_max: u64,
    /// How many files are kept, with the one that is written; at least 2.
    pub files_max: u64,
}

/// upstream: containerLogMaxSize and containerLogMaxFiles
impl Default for LogLimits {
    fn default() -> Self {
        Self { bytes_max: 10 << 20, files_max: 5 }
    }
}

/// The standard input of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// There is none.
    #[default]
    Nothing,
    /// A pipe, which was sent before, in one message on the socket for streams.
    Pipe,
    /// A terminal, which becomes the one of its session and is its output too. Both ends of it were sent before.
    Terminal,
}

/// How a runtime says that its container has started, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// A pipe that it writes to when it has.
    pub told_by: PathBuf,
    /// A file with what went wrong.
    pub errors: PathBuf,
    /// It does not stay with its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
}

/// What a runtime leaves behind that ends before its container does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The file in which it writes the number of the process.
    pub number: PathBuf,
    /// What lets that begin; nothing if it has begun then.
    pub begin: Vec<String>,
    /// Where the sockets are that it leaves, too.
    pub sockets: Option<PathBuf>,
}

/// One process to run beside the main one of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Program and arguments; a program without a slash is looked for in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment, with the mark of the container.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// Its standard input is a terminal, which becomes the one of its session.
    pub has_terminal: bool,
    /// It does not stay with what it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// The container is with the second keeper, if there is one.
    #[serde(skip)]
    pub is_apart: bool,
}

/// How a process ended, as the kernel said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The exit code of a container: 128 + N for signal N, as container runtimes report it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StartError {
    /// The log file could not be made.
    #[error("open log {path}: {error}", path = .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: String,
    },
    /// The working directory is not there or not a directory.
    #[error("working directory {path}: {error}", path = .path.display())]
    Cwd {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        error: String,
    },
    /// The program is missing, not executable, or the arguments are too long.
    #[error("exec {program:?}: {error}")]
    Exec {
        /// The first of the arguments.
        program: String,
        /// What the kernel said.
        error: String,
    },
    /// What it should see, or as whom it should run, could not be set up.
    #[error("set up the container: {error}")]
    Sandbox {
        /// What failed.
        error: String,
    },
    /// The runtime could not make the container.
    #[error("{error}")]
    Runtime {
        /// What it said.
        error: String,
    },
    /// The container in which it was to run has ended.
    #[error("the container has ended")]
    ContainerGone,
    /// Its standard streams did not reach the keeper.
    #[error("pass streams to the process keeper: {error}")]
    Streams {
        /// What the kernel said.
        error: String,
    },
    /// The keeper is gone, and with it every process of this agent.
    #[error("the process keeper is gone")]
    KeeperGone,
}

/// The agent asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Run this, and call it `id`.
    Start { id: u64, process: Process },
    /// Run this in the container whose mark it bears, and call it `id`. Its standard streams were sent before, in one
    /// message on the socket for them.
    Join { id: u64, guest: Guest },
    /// Send a signal to the process group of `id`; nothing happens when it has ended.
    Signal { id: u64, signal: i32 },
}

/// The keeper tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The keeper has its own session and adopts orphans: from here on nothing can be left behind.
    Ready,
    /// The keeper can't do what it is for, and ends.
    Refused { error: String },
    /// `id` runs.
    Started { id: u64, pid: i32 },
    /// `id` could not be run.
    Failed { id: u64, error: StartError },
    /// `id` has ended, and of a container no process is left.
    Exited { id: u64, exit: Exit },
}

/// A message as it goes over the socket.
pub(super) fn encode<T: Serialize>(message: &T, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *into, message).expect("protocol messages have string keys only");
    let length = u32::try_from(into.len() - start - 4).unwrap_or(u32::MAX);
    into[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The next message, or `None` at the end of the stream.
pub(super) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    frame: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    let length = match from.read_u32_le().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {length} bytes")));
    }
    frame.resize(length, 0);
    from.read_exact(frame).await?;
    Ok(Some(serde_json::from_slice(frame)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_reported_as_128_plus_its_number() {
        for (exit, want) in
            [(Exit::Code(0), 0), (Exit::Code(42), 42), (Exit::Signal(9), 137), (Exit::Signal(15), 143)]
        {
            assert_eq!(exit.code(), want, "{exit:?}");
        }
    }

    #[tokio::test]
    async fn messages_arrive_in_order_and_the_end_is_seen() {
        let mut bytes = Vec::new();
        encode(&Report::Started { id: 1, pid: 7 }, &mut bytes);
        encode(&Report::Exited { id: 1, exit: Exit::Signal(9) }, &mut bytes);
        let mut from = bytes.as_slice();
        let mut frame = Vec::new();
        let mut seen = Vec::new();
        while let Some(report) = read::<Report>(&mut from, &mut frame).await.expect("well formed") {
            seen.push(format!("{report:?}"));
        }
        assert_eq!(seen, ["Started { id: 1, pid: 7 }", "Exited { id: 1, exit: Signal(9) }"]);
    }

    #[tokio::test]
    async fn a_frame_beyond_the_bound_is_refused_before_it_is_read() {
        let mut from: &[u8] = &u32::MAX.to_le_bytes();
        let error = read::<Report>(&mut from, &mut Vec::new()).await.expect_err("too long");
        assert_eq!(error.to_string(), "frame of 4294967295 bytes");
    }
}
