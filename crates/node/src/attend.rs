//! Probes and hooks of containers that run: the tasks that do them and tell the pod what came of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use windlass_streams::Streams;

use crate::check::{self, Check, Outcome};
use crate::pod::{Context, Notice};
use crate::probe::{Kind, Spec, Tracker};
use crate::runtimes::Exit;
use crate::runtimes::host::Event;
use crate::runtimes::streams::Ends;

/// What is kept of the output of a command (upstream: maxReadLength).
const OUTPUT_BYTES_MAX: u64 = 10 << 10;

/// One run of a container.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The UID of its pod.
    pub(crate) uid: String,
    /// Its name.
    pub(crate) container: String,
    /// Its place in the pod.
    pub(crate) place: usize,
    /// Which run.
    pub(crate) run: i32,
}

pub(crate) type Notices = mpsc::UnboundedSender<(usize, i32, Notice)>;

impl Target {
    fn tell(&self, notices: &Notices, notice: Notice) {
        // A pod that is over does not care.
        let _ = notices.send((self.place, self.run, notice));
    }
}

/// A task that ends when it is no longer wanted.
#[derive(Debug)]
pub(crate) struct Attendant {
    pub(crate) kind: Option<Kind>,
    task: AbortHandle,
}

impl Attendant {
    /// Does this, and tells nobody.
    pub(crate) fn of(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { kind: None, task: tokio::spawn(work).abort_handle() }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a `postStart` hook.
pub(crate) fn post_start(
    context: &Arc<Context>,
    target: Target,
    check: Result<Check, String>,
    notices: Notices,
) -> Attendant {
    hook(context, target, check, notices, Notice::PostStarted)
}

/// Runs a `preStop` hook.
pub(crate) fn pre_stop(
    context: &Arc<Context>,
    target: Target,
    check: Result<Check, String>,
    notices: Notices,
) -> Attendant {
    hook(context, target, check, notices, Notice::PreStopped)
}

fn hook(
    context: &Arc<Context>,
    target: Target,
    check: Result<Check, String>,
    notices: Notices,
    notice: impl FnOnce(Outcome) -> Notice + Send + 'static,
) -> Attendant {
    let context = Arc::downgrade(context);
    let task = tokio::spawn(async move {
        let Some(context) = context.upgrade() else { return };
        let outcome = match check {
            Ok(check) => run(&context, &target, &check, None).await,
            Err(error) => Outcome::Error(error),
        };
        target.tell(&notices, notice(outcome));
    });
    Attendant { kind: None, task: task.abort_handle() }
}

/// Probes a container until it has ended; for a startup probe until it is believed.
pub(crate) fn probe(
    context: &Arc<Context>,
    target: Target,
    kind: Kind,
    spec: Spec,
    notices: Notices,
) -> Attendant {
    let context = Arc::downgrade(context);
    let task = tokio::spawn(async move {
        tokio::time::sleep(spec.initial_delay).await;
        let mut tracker = Tracker::default();
        let mut ticks = tokio::time::interval(spec.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(context) = context.upgrade() else { return };
            let outcome = match &spec.check {
                Ok(check) => run(&context, &target, check, Some(spec.timeout)).await,
                Err(error) => Outcome::Error(error.clone()),
            };
            drop(context);
            let is_success = outcome == Outcome::Success;
            // What could not be done says nothing about the container.
            let believed = match &outcome {
                Outcome::Error(_) => None,
                Outcome::Success | Outcome::Failure(_) => tracker.add(is_success, &spec),
            };
            if !is_success {
                target.tell(&notices, Notice::Unhealthy(kind, outcome));
            }
            if let Some(is_success) = believed {
                target.tell(&notices, Notice::Probed(kind, is_success));
                if kind == Kind::Startup || (kind == Kind::Liveness && !is_success) {
                    return;
                }
            }
        }
    });
    Attendant { kind: Some(kind), task: task.abort_handle() }
}

async fn run(context: &Context, target: &Target, check: &Check, timeout: Option<Duration>) -> Outcome {
    let done = async {
        match check {
            Check::Exec(argv) => exec(context, target, argv, timeout).await,
            Check::Http(http) => check::ask(http).await,
            Check::Tcp(host, port) => check::connect(host, *port).await,
            Check::Sleep(duration) => {
                tokio::time::sleep(*duration).await;
                Outcome::Success
            }
        }
    };
    match (timeout, check) {
        // A command that takes too long has to be killed, which it does itself.
        (Some(timeout), Check::Http(_) | Check::Tcp(..) | Check::Sleep(_)) => {
            let late = || Outcome::Failure(format!("timed out after {}", crate::backoff::go_text(timeout)));
            tokio::time::timeout(timeout, done).await.unwrap_or_else(|_| late())
        }
        (_, Check::Exec(_)) | (None, _) => done.await,
    }
}

async fn exec(context: &Context, target: &Target, argv: &[String], timeout: Option<Duration>) -> Outcome {
    let Some(guest) = context.running.guest(&target.uid, &target.container, argv.to_vec()) else {
        return Outcome::Error(format!("container {:?} does not run", target.container));
    };
    let asked = Streams { stdout: true, stderr: true, ..Streams::default() };
    let ends = match Ends::new(asked) {
        Ok(ends) => ends,
        Err(error) => return Outcome::Error(format!("make the streams of a process: {error}")),
    };
    let (sender, events) = mpsc::unbounded_channel();
    let Ends { guest: theirs, stdout, stderr, .. } = ends;
    let id = context.host.join(guest, &theirs, move |event| drop(sender.send(event)));
    drop(theirs);
    // Goes with this future too, when the container has ended or nobody wants to know any more.
    let _guard = Killer { context, id };
    let ended = async { tokio::join!(exit(events), read(stdout), read(stderr)) };
    let ended = match timeout {
        Some(timeout) => tokio::time::timeout(timeout, ended).await.map_err(|_| timeout),
        None => Ok(ended.await),
    };
    match ended {
        Ok((Ok(Exit::Code(0)), ..)) => Outcome::Success,
        Ok((Ok(_), out, err)) => Outcome::Failure(String::from_utf8_lossy(&[out, err].concat()).into_owned()),
        Ok((Err(error), ..)) => Outcome::Error(error),
        Err(timeout) => {
            let seconds = crate::backoff::go_text(timeout);
            Outcome::Failure(format!("command timed out: {:?} timed out after {seconds}", argv.join(" ")))
        }
    }
}

async fn exit(mut events: mpsc::UnboundedReceiver<Event>) -> Result<Exit, String> {
    loop {
        match events.recv().await {
            Some(Event::Started(_)) => {}
            Some(Event::Exited(exit)) => return Ok(exit),
            Some(Event::Failed(error)) => return Err(error.to_string()),
            Some(Event::Lost) | None => return Err("the process keeper is gone".to_owned()),
        }
    }
}

/// What a process prints, until nobody has its stream open.
async fn read(stream: Option<Receiver>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut text).await;
    }
    text
}

/// Kills a process when it is dropped. Nothing happens to one that has ended.
struct Killer<'a> {
    context: &'a Context,
    id: crate::runtimes::host::Id,
}

impl Drop for Killer<'_> {
    fn drop(&mut self) {
        self.context.host.signal(self.id, rustix::process::Signal::KILL);
    }
}
