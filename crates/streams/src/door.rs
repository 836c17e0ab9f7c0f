//! The short way into a server of the same process, for those who write to it all the time.
//!
//! A client of Kubernetes hands requests over to a task of its own. That is right for connections, and a tenth of what a short
//! pod costs where there is none. It is the same request all the same: who wants the short way puts [`Wanted`] among the
//! extensions of a first request, and finds the [`Door`] among those of the answer. A server elsewhere has none.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// In a request: who asks can use a door.
#[derive(Clone, Copy, Debug)]
pub struct Wanted;

/// In the answer: where to send the next ones.
#[derive(Clone)]
pub struct Door(Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>);

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    /// A door behind which somebody answers.
    pub fn new(
        answer: impl Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(answer))
    }

    /// The answer to a request.
    pub async fn send(&self, request: Request<Bytes>) -> Response<Bytes> {
        (self.0)(request).await
    }
}
