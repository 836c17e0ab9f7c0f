//! Our API server with our scheduler, in this process: one for each scenario.

use anyhow::Result;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_apiserver::{Config, Server};
use windlass_scheduler::Scheduler;

use crate::place::{Hearts, Place};
use crate::theirs;

/// A server, and what acts in it.
pub struct House {
    server: Server,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl House {
    /// With our scheduler, and nobody else.
    pub fn with_scheduler() -> Self {
        let server = Server::new(Config::default());
        let client = Client::new(server.own_router(), "default");
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Scheduler::new(client).run(cancel.clone()));
        Self { server, cancel, tasks }
    }

    /// Where the scenario is played.
    pub async fn place(&self, name: &str) -> Result<Place> {
        let client = Client::new(self.server.router(), "default");
        theirs::make_priorities(&client).await?;
        Place::new(client, name, Hearts::default(), true).await
    }

    /// Ends everybody.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
