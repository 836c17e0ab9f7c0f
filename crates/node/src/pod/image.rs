//! The images of a pod's containers: found or pulled by a task of their own, so that a pod whose image is on its way can
//! still be deleted (upstream: the image manager of the kubelet, its events and texts).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::work::Work;
use super::{Context, Notice};
use crate::attend::Attendant;
use crate::backoff::{self, Limits};
use crate::container::{State, Waiting};
use crate::env::Reference as Object;
use crate::events::{self, Report};
use crate::images::auth::Keyring;
use crate::images::reference::Reference;
use crate::images::{Image, Images, Presence};
use crate::{lifecycle, prepare};

/// How long a failed pull is shown before it counts as one that waits (upstream: until the next look at the pod).
const FAILURE_SHOWN: Duration = Duration::from_secs(1);
/// The reason of a container whose image has a name that is none.
const INVALID_NAME: &str = "InvalidImageName";
/// The reason of a container whose image is not there and may not be pulled.
const NEVER_PULL: &str = "ErrImageNeverPull";
/// The reason of a container whose image could not be pulled.
const PULL_FAILED: &str = "ErrImagePull";
/// The reason of one that waits until it is tried again.
const PULL_BACKS_OFF: &str = "ImagePullBackOff";

/// How far the image of a container is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It is being looked for.
    Pulling(Attendant),
    /// It is there.
    Ready(Arc<Image>),
    /// It could not be had; it is tried again when the time has come.
    Failed {
        /// When.
        until: Timestamp,
        /// Why.
        message: String,
    },
}

/// The image of a container, and how often it could not be had.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// What the pod called the image that was looked for last. It may be given another.
    name: String,
    /// How long the last failure had to wait, and when it was.
    delay: Option<(Duration, Timestamp)>,
}

/// Why there is no image for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Its name is none.
    Name(String),
    /// It may not be pulled.
    Never(String),
    /// It could not be pulled.
    Pull(String),
}

impl Progress {
    /// How long to wait after a failure: longer each time (upstream: flowcontrol.Backoff).
    fn failed(&mut self, now: Timestamp, limits: &Limits) -> Duration {
        let is_recent = |at: Timestamp| {
            now.duration_since(at) <= SignedDuration::try_from(limits.max * 2).unwrap_or(SignedDuration::MAX)
        };
        let delay = match self.delay.filter(|(_, at)| is_recent(*at)) {
            Some((delay, _)) => (delay * 2).min(limits.max),
            None => limits.base.min(limits.max),
        };
        self.delay = Some((delay, now));
        delay
    }
}

impl Work {
    /// The image of a container that is about to start. `None`: it is not there yet, and the container waits.
    pub(super) fn image(&mut self, place: usize) -> Option<Arc<Image>> {
        let now = Timestamp::now();
        let name = self.image_name(place).to_owned();
        let is_same = self.images[place].name == name;
        match std::mem::take(&mut self.images[place].stage) {
            Stage::Ready(image) if is_same => return Some(image),
            Stage::Pulling(task) => self.images[place].stage = Stage::Pulling(task),
            Stage::Failed { until, message } if is_same && now < until => {
                self.publish(Some(place), false, "BackOff", format!("Back-off pulling image {name:?}"));
                self.publish(Some(place), true, "Failed", "Error: ImagePullBackOff".into());
                let text = format!("Back-off pulling image {name:?}: ErrImagePull: {message}");
                self.wait(place, PULL_BACKS_OFF, text, Some(until));
                self.images[place].stage = Stage::Failed { until, message };
                return None;
            }
            Stage::Unknown | Stage::Ready(_) | Stage::Failed { .. } => {
                let stage = Stage::Pulling(self.look_for(place)?);
                let delay = self.images[place].delay.filter(|_| is_same);
                self.images[place] = Progress { stage, name, delay };
            }
        }
        match &mut self.records[place].state {
            // Most likely the answer is the same: it is no news that it is looked at again.
            State::Waiting(Waiting { reason: Some(INVALID_NAME | NEVER_PULL), retry_at, .. }) if is_same => {
                *retry_at = None;
            }
            _ => {
                let usual = self.usual_waiting();
                self.wait(place, usual, String::new(), None);
            }
        }
        None
    }

    /// A container that waits for an image is looked at now if the pod has been given another.
    pub(super) fn heed_images(&mut self) {
        for place in 0..self.images.len() {
            let is_other =
                !self.images[place].name.is_empty() && self.images[place].name != self.image_name(place);
            if is_other
                && !matches!(self.images[place].stage, Stage::Pulling(_))
                && let State::Waiting(Waiting { reason: Some(reason), retry_at, .. }) =
                    &mut self.records[place].state
                && [INVALID_NAME, NEVER_PULL, PULL_FAILED, PULL_BACKS_OFF].contains(reason)
            {
                *retry_at = Some(Timestamp::now());
            }
        }
    }

    /// What the pod calls the image of a container.
    fn image_name(&self, place: usize) -> &str {
        self.container(place).and_then(|container| container.image.as_deref()).unwrap_or_default()
    }

    fn wait(&mut self, place: usize, reason: &'static str, message: String, retry_at: Option<Timestamp>) {
        lifecycle::held(&mut self.records[place], Waiting { reason: Some(reason), message, retry_at });
    }

    fn look_for(&self, place: usize) -> Option<Attendant> {
        let context = Arc::downgrade(&self.context);
        let (pod, container) = (self.pod.clone(), self.container(place)?.clone());
        let notices = self.notices.clone();
        Some(Attendant::of(async move {
            let Some(context) = context.upgrade() else { return };
            let Some(oci) = &context.config.oci else { return };
            let found = ensure(&context, &oci.images, &pod, &container).await;
            // A pod that is over does not care.
            let _ = notices.send((place, 0, Notice::Image(found)));
        }))
    }

    /// The task has ended.
    pub(super) fn on_image(&mut self, place: usize, found: Result<Arc<Image>, Failure>) {
        let now = Timestamp::now();
        self.is_changed = true;
        if self.images[place].name != self.image_name(place) {
            // The pod has been given another one meanwhile.
            self.images[place].stage = Stage::Unknown;
            let usual = self.usual_waiting();
            return self.wait(place, usual, String::new(), Some(now));
        }
        match found {
            Ok(image) => {
                self.images[place].stage = Stage::Ready(image);
                self.images[place].delay = None;
                let usual = self.usual_waiting();
                self.wait(place, usual, String::new(), Some(now));
            }
            Err(Failure::Name(message)) => self.refuse(place, INVALID_NAME, message, now),
            Err(Failure::Never(message)) => self.refuse(place, NEVER_PULL, message, now),
            Err(Failure::Pull(message)) => {
                let delay = self.images[place].failed(now, &self.context.config.image_backoff);
                self.publish(Some(place), true, "Failed", "Error: ErrImagePull".into());
                let shown_until = backoff::add(now, FAILURE_SHOWN.min(delay / 2));
                self.images[place].stage =
                    Stage::Failed { until: backoff::add(now, delay), message: message.clone() };
                self.wait(place, PULL_FAILED, message, Some(shown_until));
            }
        }
    }

    /// Nothing is pulled, but what stands in the way may change: the image may come to the machine by other ways, and the
    /// pod may be given another one. So it is looked at again, as upstream does, but less and less often.
    fn refuse(&mut self, place: usize, reason: &'static str, message: String, now: Timestamp) {
        let delay = self.images[place].failed(now, &self.context.config.image_backoff);
        self.publish(Some(place), true, "Failed", format!("Error: {reason}"));
        self.images[place].stage = Stage::Unknown;
        self.wait(place, reason, message, Some(backoff::add(now, delay)));
    }
}

/// The image of a container, by its pull policy.
async fn ensure(
    context: &Context,
    images: &Images,
    pod: &Pod,
    container: &Container,
) -> Result<Arc<Image>, Failure> {
    let text = container.image.as_deref().unwrap_or_default();
    let say = |is_warning: bool, reason: &str, message: String| {
        let about = events::about(pod, Some(container));
        context.publish(Report { about, is_warning, reason: reason.to_owned(), message });
    };
    let name = Reference::parse(text).map_err(|error| {
        let message = format!(
            "Failed to apply default image tag {text:?}: couldn't parse image name {text:?}: {error}"
        );
        say(true, "InspectFailed", message.clone());
        Failure::Name(message)
    })?;
    let keyring = keyring(context, pod).await.map_err(Failure::Pull)?;
    let policy = container.image_pull_policy.as_deref();
    if policy != Some("Always") {
        let found = images.find(&name, &keyring).await.map_err(|error| Failure::Pull(error.to_string()))?;
        match found {
            Presence::Present(image) => {
                let message = format!(
                    "Container image {text:?} already present on machine and can be accessed by the pod"
                );
                say(false, "Pulled", message);
                return Ok(image);
            }
            // One that is there but not for this pod is not to be told from one that is not there.
            Presence::Absent | Presence::Private if policy == Some("Never") => {
                let message = format!("Container image {text:?} is not present with pull policy of Never");
                say(true, NEVER_PULL, message.clone());
                return Err(Failure::Never(message));
            }
            Presence::Absent | Presence::Private => {}
        }
    }
    say(false, "Pulling", format!("Pulling image {text:?}"));
    let start = std::time::Instant::now();
    match images.pull(&name, &keyring).await {
        Ok(image) => {
            let took = backoff::go_text(Duration::from_millis(
                u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            ));
            let size = image.size;
            say(
                false,
                "Pulled",
                format!(
                    "Successfully pulled image {text:?} in {took} ({took} including waiting). Image size: {size} bytes."
                ),
            );
            Ok(image)
        }
        Err(error) => {
            let message = format!("failed to pull image {:?}: {error}", name.to_string());
            say(true, "Failed", format!("Failed to pull image {text:?}: {message}"));
            Err(Failure::Pull(message))
        }
    }
}

/// What the pull secrets of a pod have. One that is not there is left out, as upstream does.
async fn keyring(context: &Context, pod: &Pod) -> Result<Keyring, String> {
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let references = secrets.map(|secret| Object::Secret(secret.name.clone())).collect();
    let found = prepare::objects(context, pod, &references).await?;
    let mut keyring = Keyring::default();
    found.values().for_each(|secret| keyring.add(&secret.data));
    Ok(keyring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::fixtures::at;

    #[test]
    fn each_failure_waits_twice_as_long_up_to_the_limit() {
        let (mut progress, limits) = (Progress::default(), Limits::default());
        let mut now = at(0);
        let mut seconds = Vec::new();
        for _ in 0..7 {
            let delay = progress.failed(now, &limits);
            seconds.push(delay.as_secs());
            now = backoff::add(now, delay);
        }
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300]);
        now = backoff::add(now, Duration::from_secs(601));
        assert_eq!(progress.failed(now, &limits), Duration::from_secs(10), "long ago is forgotten");
    }
}
