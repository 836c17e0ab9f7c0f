//! Every error a client can see: Kubernetes `Status` objects, with upstream's texts. The only place that makes them.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use windlass_api::field;
use windlass_store::LogError;

use crate::answer;
use crate::resources::Resource;

/// A refusal. Boxed, because results carry it everywhere and it is rare.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<Inner>);

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Map<String, Value>>,
    warnings: Vec<String>,
}

/// The result of anything a request can fail at.
pub type Result<T> = std::result::Result<T, Status>;

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// upstream: how much of a body is shown that is not an object.
const SHOWN_BYTES_MAX: usize = 30;

/// What strconv says of a text that is no number.
pub(crate) fn no_number(text: &str) -> String {
    format!("strconv.ParseUint: parsing {text:?}: invalid syntax")
}

/// The text of a watch or list that asks for more history than there is.
fn too_old_text(asked: u64, oldest: u64) -> String {
    format!("too old resource version: {asked} ({oldest})")
}

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, reason, message: message.into(), details: None, warnings: Vec::new() }))
    }

    fn with_details(mut self, details: Value) -> Self {
        if let Value::Object(mut details) = details {
            details.retain(|_, value| !(value.is_null() || value.as_str() == Some("")));
            self.0.details = Some(details);
        }
        self
    }

    /// The HTTP code.
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// Whether the object in question is not there.
    pub fn is_not_found(&self) -> bool {
        self.0.reason == "NotFound"
    }

    /// Whether there is an object of that name already.
    pub fn is_taken(&self) -> bool {
        self.0.reason == "AlreadyExists"
    }

    /// Whether the object in question was changed or replaced meanwhile.
    pub fn is_conflict(&self) -> bool {
        self.0.reason == "Conflict"
    }

    /// There is no object of that name.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} {name:?} not found", resource.qualified()))
            .with_details(json!({"name": name, "group": resource.group, "kind": resource.plural}))
    }

    /// There is no such path, or no such resource.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    /// There is an object of that name.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message)
            .with_details(json!({"name": name, "group": resource.group, "kind": resource.plural}))
    }

    /// There is an object of that name, and it is on its way out.
    pub fn still_deleting(resource: &Resource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.0.message = format!("object is being deleted: {}", status.0.message);
        status
    }

    /// The same refusal, with texts that the client is warned with besides.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.0.warnings.extend_from_slice(warnings);
        self
    }

    /// All generated names that were tried are taken.
    pub fn no_unique_name(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            resource.qualified()
        );
        let details = json!({
            "name": name, "group": resource.group, "kind": resource.plural, "retryAfterSeconds": 1
        });
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(details)
    }

    /// The object is not what the request takes it for.
    pub(crate) fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("Operation cannot be fulfilled on {resource}{dot}{group} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message)
            .with_details(json!({"name": name, "group": group, "kind": resource}))
    }

    /// The object is at another revision than the request names.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(resource.group, resource.plural, name, MODIFIED)
    }

    /// The object has another UID than a write names.
    pub fn another_uid(resource: &Resource, namespace: &str, name: &str, asked: &str, found: &str) -> Self {
        // upstream: the error of the storage layer shows through
        let slash = if namespace.is_empty() { "" } else { "/" };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}{slash}{name}, \
             ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, \
             UID in object meta: {found}",
            resource.registry
        );
        Self::conflict(resource.group, resource.plural, name, &why)
    }

    /// `preconditions.uid` of a delete does not hold.
    pub fn uid_precondition(resource: &Resource, name: &str, asked: &str, found: &str) -> Self {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({found}). \
             The object might have been deleted and then recreated"
        );
        // upstream: this check names the kind where the others name the resource
        Self::conflict(resource.group, resource.kind, name, &why)
    }

    /// `preconditions.resourceVersion` of a delete does not hold.
    pub fn version_precondition(resource: &Resource, name: &str, asked: &str, found: &str) -> Self {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record \
             ({found}). The object might have been modified"
        );
        Self::conflict(resource.group, resource.kind, name, &why)
    }

    /// The pod cannot be bound.
    pub fn binding_conflict(pod: &str, why: &str) -> Self {
        Self::conflict("", "pods/binding", pod, why)
    }

    /// Validation failed.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[field::Error]) -> Self {
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason(),
                message: error.body(),
                field: error.path.to_string(),
            })
            .collect::<Vec<_>>();
        Self::invalid_causes(group, kind, name, &causes)
    }

    /// An update of a kind that must name the version it is based on does not name one.
    pub fn version_required(resource: &Resource, name: &str) -> Self {
        let cause = Cause {
            reason: "FieldValueInvalid",
            message: "Invalid value: 0: must be specified for an update".to_owned(),
            field: "metadata.resourceVersion".to_owned(),
        };
        // upstream: this check names the resource where the others name the kind
        Self::invalid_causes(resource.group, resource.plural, name, &[cause])
    }

    fn invalid_causes(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            // upstream: an aggregate says the same thing once
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let dot = if group.is_empty() { "" } else { "." };
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind}{dot}{group} {name:?} is invalid: {all}"),
        )
        .with_details(json!({"name": name, "group": group, "kind": kind, "causes": causes}))
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The body is not an object at all.
    pub fn unrecognized(resource: &Resource, why: &str, body: &[u8]) -> Self {
        let shown = match body {
            [] => "<empty>".to_owned(),
            [b'{', ..] => String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]).into_owned(),
            body => body.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect(),
        };
        let more = if body.len() > SHOWN_BYTES_MAX { " ..." } else { "" };
        let kind = resource.kind;
        Self::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({shown}{more})"
        ))
    }

    /// A patch could not be applied.
    pub fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(json!({}))
    }

    /// The history does not reach back to the revision asked for.
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::new(StatusCode::GONE, "Expired", too_old_text(asked, oldest))
    }

    /// The history does not reach back to the snapshot of a continue token.
    pub fn continue_expired() -> Self {
        Self::new(
            StatusCode::GONE,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter.",
        )
    }

    /// The history does not reach back to the revision that a list must show.
    pub fn list_expired() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The revision asked for has not been reached.
    pub fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with_details(json!({"retryAfterSeconds": 1, "causes": causes}))
    }

    /// Fields that somebody applies are owned by others.
    pub fn apply_conflict(conflicts: &[Conflict]) -> Self {
        let message = match conflicts {
            [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field),
            many => {
                let mut lines: Vec<String> = Vec::new();
                let mut last = "";
                for conflict in many {
                    if conflict.manager != last {
                        lines.push(format!("conflicts with {}:", conflict.manager));
                        last = &conflict.manager;
                    }
                    lines.push(format!("- {}", conflict.field));
                }
                format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
            }
        };
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|conflict| {
                let message = format!("conflict with {}", conflict.manager);
                json!({"reason": "FieldManagerConflict", "message": message, "field": conflict.field})
            })
            .collect();
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(json!({"causes": causes}))
    }

    /// A UID is named of an object that is not there.
    pub fn no_object_of_uid(resource: &Resource, name: &str, uid: &str) -> Self {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        Self::conflict(resource.group, resource.plural, name, &why)
    }

    /// upstream: an error that nobody gave a reason.
    pub fn unexplained(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The verb is not offered here.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// The body is of a type that is not read here.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The patch is of a type that is not read here.
    pub fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with_details(json!({}))
    }

    /// None of the forms that the client accepts can be had.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The body is too large.
    pub fn body_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// An object is too large to be stored.
    pub(crate) fn object_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: the object is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The store did not keep a write.
    pub(crate) fn not_stored(error: &LogError) -> Self {
        let (code, reason) = match error {
            LogError::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage"),
            LogError::Failed(_) | LogError::Refused(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
        };
        Self::new(code, reason, error.to_string()).with_details(json!({}))
    }

    /// A JSON patch has too many operations.
    pub fn patch_too_large(limit: usize, count: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {limit}, got {count}"
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The server does not do that, whoever asks.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let quoted = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{quoted} is forbidden: {why}", resource.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
            .with_details(json!({"name": name, "group": resource.group, "kind": resource.plural}))
    }

    /// The namespace is being deleted, so nothing new may be made in it.
    pub fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Self::forbidden(resource, name, &why);
        let cause = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        if let Some(details) = &mut status.0.details {
            details.insert("causes".to_owned(), cause);
        }
        status
    }

    /// One of the namespaces that must always be there.
    pub fn namespace_protected(resource: &Resource, name: &str) -> Self {
        Self::forbidden(resource, name, "this namespace may not be deleted")
    }

    /// Nobody knows who asks.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Somebody may not do what they ask for: RBAC.
    pub fn denied(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", qualified(group, resource)),
            (_, name) => format!("{} {name:?} is forbidden: {why}", qualified(group, resource)),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
            .with_details(json!({"name": name, "group": group, "kind": resource}))
    }

    /// The server has as much to do as it can bear.
    pub fn too_many_requests(retry_after_seconds: u64) -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": retry_after_seconds}))
    }

    /// A disruption budget does not allow an eviction.
    pub(crate) fn eviction_refused(retry_after_seconds: u64, why: &str) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
        // upstream: 0 is left out, so that clients do not try again inside of one call
        if retry_after_seconds > 0 {
            details["retryAfterSeconds"] = json!(retry_after_seconds);
        }
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with_details(details)
    }

    /// A pod has more than one disruption budget.
    pub(crate) fn several_budgets() -> Self {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The request took too long.
    pub fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with_details(json!({}))
    }

    /// A create names a revision.
    pub fn version_on_create() -> Self {
        Self::unexplained("resourceVersion should not be set on objects to be created")
    }

    /// A text that should be a revision is none. upstream: what strconv says.
    pub fn no_version(text: &str) -> Self {
        Self::unexplained(&no_number(text))
    }

    /// Nobody is there who could answer.
    pub fn unavailable(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why)
    }

    /// Something that must not happen has happened.
    pub fn internal(why: &str) -> Self {
        let message = format!("Internal error occurred: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
            .with_details(json!({"causes": [{"message": why}]}))
    }

    /// The `Status` object.
    pub fn to_json(&self) -> Value {
        let Inner { code, reason, message, details, warnings: _ } = &*self.0;
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": code.as_u16(),
        });
        if !reason.is_empty() {
            object["reason"] = json!(reason);
        }
        if let Some(details) = details {
            object["details"] = Value::Object(details.clone());
        }
        object
    }

    /// The HTTP answer, on one line: clients of a watch read it line by line.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.to_json().to_string()));
        *response.status_mut() = self.0.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let seconds =
            self.0.details.as_ref().and_then(|d| d.get("retryAfterSeconds")).and_then(Value::as_u64);
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer::warn(headers, &self.0.warnings);
        response
    }
}

/// `jobs.batch`, or `pods`.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who, in upstream's words.
    pub manager: String,
    /// Its path.
    pub field: String,
}

struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

/// `Status` of a request that succeeded and has no object to show.
pub(crate) fn success(code: StatusCode, details: Option<Value>) -> Value {
    let mut object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
    });
    match details {
        Some(details) => object["details"] = details,
        None => object["code"] = json!(code.as_u16()),
    }
    object
}

/// `Status` of a process that has ended. Clients read the code from its cause.
pub(crate) fn of_exit(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}
