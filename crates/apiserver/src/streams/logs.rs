//! `pods/log`: which run of which container, and which part of what it printed.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use windlass_api::field;
use windlass_streams::{LogOptions, Run};

use super::{check_node, find, node, refusal};
use crate::request::{Query, Target};
use crate::status::{Result, Status};
use crate::{Shared, answer};

/// What is sent at most to somebody who neither follows nor says how much.
const BYTES_MAX: u64 = 16 << 20;

/// Answers a GET of `pods/log`.
pub(super) async fn serve(shared: &Shared, target: &Target, query: &Query) -> Result<Response<Body>> {
    let mut options = options(query, &target.name, shared.config.clock.now())?;
    let (pod, container) = find(shared, target, query)?;
    if pod.node.is_empty() {
        // upstream: nobody has printed anything yet
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    check_node(shared, &pod.node)?;
    let id =
        run(&pod.pod, &container, query.flag("previous").unwrap_or(false)).map_err(Status::bad_request)?;
    let is_bounded = options.follow || options.limit_bytes.is_some();
    if !is_bounded {
        options.limit_bytes = Some(BYTES_MAX);
    }
    let run = Run { container: pod.container(target, container), id };
    let log = node(shared, &pod.node).await?.logs(run, options).await.map_err(|error| refusal(&error))?;
    let mut response = empty(StatusCode::OK);
    if !is_bounded && log.bytes > BYTES_MAX {
        let text = format!(
            "the log has {} bytes, of which the first {BYTES_MAX} are sent: ask for --tail, --since, --limit-bytes or --follow",
            log.bytes
        );
        answer::warn(response.headers_mut(), &[text]);
    }
    *response.body_mut() = Body::from_stream(log.chunks);
    Ok(response)
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    if code == StatusCode::OK {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    response
}

/// upstream: ValidatePodLogOptions, with the gate PodLogsQuerySplitStreams off as it is by default.
fn options(query: &Query, pod: &str, now: Timestamp) -> Result<LogOptions> {
    let (tail, limit) = (query.number("tailLines")?, query.number("limitBytes")?);
    let seconds = query.number("sinceSeconds")?;
    let time = match query.text("sinceTime") {
        "" => None,
        text => Some(time(text)?),
    };
    let mut errors = Vec::new();
    let path = field::Path::new;
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        errors.push(field::Error::invalid(&path("tailLines"), lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        errors.push(field::Error::invalid(&path("limitBytes"), bytes, "must be greater than 0"));
    }
    match (seconds, time) {
        (Some(_), Some(_)) => errors.push(field::Error::forbidden(
            &path(""),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        (Some(seconds), None) if seconds < 1 => {
            errors.push(field::Error::invalid(&path("sinceSeconds"), seconds, "must be greater than 0"));
        }
        (Some(_) | None, None) | (None, Some(_)) => {}
    }
    if !query.text("stream").is_empty() {
        errors.push(field::Error::forbidden(&path("stream"), "may not be specified"));
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", pod, &errors));
    }
    let ago = |seconds: i64| 0.second().try_seconds(seconds).ok().and_then(|span| now.checked_sub(span).ok());
    Ok(LogOptions {
        follow: query.flag("follow").unwrap_or(false),
        since: time.or_else(|| seconds.map(|seconds| ago(seconds).unwrap_or(Timestamp::MIN))),
        tail_lines: tail.and_then(|lines| u64::try_from(lines).ok()),
        limit_bytes: limit.and_then(|bytes| u64::try_from(bytes).ok()),
        timestamps: query.flag("timestamps").unwrap_or(false),
    })
}

/// upstream: the time reaches the node in whole seconds.
fn time(text: &str) -> Result<Timestamp> {
    let read = text.parse::<Timestamp>().ok().and_then(|time| Timestamp::from_second(time.as_second()).ok());
    read.ok_or_else(|| {
        Status::bad_request(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        ))
    })
}

/// The id of the run whose log is meant, or why there is none. upstream: validateContainerLogStatus
fn run(pod: &Pod, container: &str, is_previous: bool) -> std::result::Result<String, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let what = format!("container {container:?} in pod {name:?}");
    let Some(status) = status_of(pod, container) else { return Err(format!("{what} is not available")) };
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.map(|last| last.container_id.clone().unwrap_or_default());
    let state = status.state.clone().unwrap_or_default();
    if is_previous {
        let found = last.filter(|id| !id.is_empty());
        return found.ok_or_else(|| format!("previous terminated {what} not found"));
    }
    match (state, last) {
        (ContainerState { running: Some(_), .. }, _) => Ok(status.container_id.clone().unwrap_or_default()),
        // A run that could not be started has no log: the one before it is meant.
        (ContainerState { terminated: Some(end), .. }, last) => {
            let own = end.container_id.filter(|id| !id.is_empty());
            own.or(last.filter(|id| !id.is_empty())).ok_or_else(|| format!("{what} is terminated"))
        }
        (_, Some(last)) if last.is_empty() => Err(format!("{what} is terminated")),
        (_, Some(last)) => Ok(last),
        (ContainerState { waiting: Some(waiting), .. }, None) => {
            Err(match waiting.reason.as_deref().unwrap_or_default() {
                "ErrImagePull" => format!("{what} is waiting to start: image can't be pulled"),
                "ImagePullBackOff" => format!("{what} is waiting to start: trying and failing to pull image"),
                reason => format!("{what} is waiting to start: {reason}"),
            })
        }
        (_, None) => Err(format!("{what} is waiting to start - no logs yet")),
    }
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == container)
}
