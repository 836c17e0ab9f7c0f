//! Sending requests, by the short way where there is one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use windlass_streams::door::{Door, Wanted};

/// Who sends requests to an API server: as its client does, or through the [`Door`] of one in this process. Clones share it.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    door: Arc<OnceLock<Door>>,
}

impl From<Client> for Caller {
    fn from(client: Client) -> Self {
        Self { client, door: Arc::default() }
    }
}

impl Caller {
    /// The answer to a request, whatever it says.
    pub async fn send(&self, mut request: Request<Bytes>) -> kube::Result<Response<Bytes>> {
        if let Some(door) = self.door.get() {
            return Ok(door.send(request).await);
        }
        request.extensions_mut().insert(Wanted);
        let (head, body) = self.client.send(request.map(Body::from)).await?.into_parts();
        if let Some(door) = head.extensions.get::<Door>() {
            self.door.get_or_init(|| door.clone());
        }
        Ok(Response::from_parts(head, body.collect_bytes().await?))
    }
}

/// Whether there is no such object, or another one has its name: the precondition on its UID failed (409), or a patch would
/// change it (422). Any other conflict is a race with somebody else's write.
pub fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let is_other = match status.code {
        // A name has no capital letters.
        409 => status.message.contains("UID in "),
        422 => status.message.contains("metadata.uid: "),
        _ => false,
    };
    status.code == 404 || is_other
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;
    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;

    /// What a server hears by either way when three requests are sent, and what it answers.
    async fn sent(has_door: bool) -> (Vec<String>, Vec<Bytes>) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (by_client, by_door) = (Arc::clone(&heard), Arc::clone(&heard));
        let door = Door::new(move |request: Request<Bytes>| {
            by_door.lock().push(format!("door {} {:?}", request.uri(), request.body()));
            async { Response::new(Bytes::from("by door")) }.boxed()
        });
        let service = service_fn(move |request: Request<Body>| {
            let is_wanted = request.extensions().get::<Wanted>().is_some();
            by_client.lock().push(format!("client {}", request.uri()));
            let mut answer = Response::new(axum::body::Body::from("by client"));
            if has_door && is_wanted {
                answer.extensions_mut().insert(door.clone());
            }
            async { Ok::<_, Infallible>(answer) }
        });
        let caller = Caller::from(Client::new(service, "default"));
        let mut answers = Vec::new();
        for path in ["/a", "/b", "/c"] {
            let request = Request::get(path).body(Bytes::from("x")).expect("a request");
            answers.push(caller.clone().send(request).await.expect("an answer").into_body());
        }
        let heard = heard.lock().clone();
        (heard, answers)
    }

    #[tokio::test]
    async fn a_server_of_this_process_is_asked_directly_once_it_has_said_how() {
        let (heard, answers) = sent(true).await;
        assert_eq!(heard, ["client /a", "door /b b\"x\"", "door /c b\"x\""]);
        assert_eq!(answers, ["by client", "by door", "by door"]);
    }

    #[tokio::test]
    async fn a_server_elsewhere_is_asked_by_its_client() {
        let (heard, answers) = sent(false).await;
        assert_eq!(heard, ["client /a", "client /b", "client /c"]);
        assert_eq!(answers, ["by client"; 3]);
    }

    #[test]
    fn what_is_gone_is_told_from_a_race_for_it() {
        let api = |code: u16, reason: &str, message: &str| {
            kube::Error::Api(kube::core::Status::failure(message, reason).with_code(code).boxed())
        };
        let conflict = |why: &str| {
            api(409, "Conflict", &format!("Operation cannot be fulfilled on pods \"fluid-0\": {why}"))
        };
        let modified =
            "the object has been modified; please apply your changes to the latest version and try again";
        let patched = "StorageError: invalid object, Code: 4, Key: /registry/pods/d/p, ResourceVersion: 0, \
                       AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b";
        let deleted = "the UID in the precondition (a) does not match the UID in record (b). \
                       The object might have been deleted and then recreated";
        let immutable = "Pod \"p\" is invalid: metadata.uid: Invalid value: \"a\": field is immutable";
        for (error, want) in [
            (api(404, "NotFound", "pods \"p\" not found"), true),
            (conflict(patched), true),
            (conflict(deleted), true),
            (api(422, "Invalid", immutable), true),
            (conflict(modified), false),
            (api(422, "Invalid", "Pod \"fluid-0\" is invalid: status: Forbidden"), false),
            (api(500, "InternalError", "UID in "), false),
            (kube::Error::Service("UID in ".into()), false),
        ] {
            assert_eq!(is_gone(&error), want, "{error}");
        }
    }
}
