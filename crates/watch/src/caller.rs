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
}
