//! What every namespace has: an account for pods that name none, and the certificate that they trust. Both come back when
//! somebody deletes them; the certificate also when somebody changes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_api::names::{ROOT_CA, ROOT_CA_DESCRIPTION};

use crate::calls::is_namespace_ending;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch;

const WORKERS: usize = 5;
const ACCOUNT: &str = "default";

/// Gives namespaces what they lack, until cancelled. Without a certificate, only accounts.
pub async fn run(client: Client, root_ca: Option<String>, metrics: Metrics, cancel: CancellationToken) {
    let accounts_due = Queue::new("serviceaccount", &metrics);
    let certificates_due = Queue::new("root_ca_cert_publisher", &metrics);
    let known = Mutex::default();
    let this = Arc::new(Controller { client, root_ca, metrics, known, accounts_due, certificates_due });
    let mut tasks = JoinSet::new();
    for _ in 0..WORKERS {
        tasks.spawn(Arc::clone(&this).work(Gift::Account, cancel.clone()));
        if this.root_ca.is_some() {
            tasks.spawn(Arc::clone(&this).work(Gift::Certificate, cancel.clone()));
        }
    }
    let client = || this.client.clone();
    let namespaces =
        watch::follow(Api::<Namespace>::all(client()), cancel.clone(), |event| this.take_namespace(event));
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let accounts =
        watch::follow_with(Api::<ServiceAccount>::all(client()), named(ACCOUNT), cancel.clone(), |event| {
            this.take(&event, Gift::Account);
        });
    let certificates = async {
        if this.root_ca.is_some() {
            let all = Api::<ConfigMap>::all(client());
            watch::follow_with(all, named(ROOT_CA), cancel.clone(), |event| {
                this.take(&event, Gift::Certificate)
            })
            .await;
        }
    };
    futures::future::join3(namespaces, accounts, certificates).await;
    while tasks.join_next().await.is_some() {}
}

/// What a namespace gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gift {
    Account,
    Certificate,
}

struct Controller {
    client: Client,
    root_ca: Option<String>,
    metrics: Metrics,
    known: Mutex<BTreeSet<String>>,
    /// Namespaces that may lack the one or the other.
    accounts_due: Queue<String>,
    certificates_due: Queue<String>,
}

impl Controller {
    fn due(&self, gift: Gift) -> &Queue<String> {
        match gift {
            Gift::Account => &self.accounts_due,
            Gift::Certificate => &self.certificates_due,
        }
    }

    fn take_namespace(&self, event: Event<Namespace>) {
        match event {
            Event::InitApply(namespace) | Event::Apply(namespace) => {
                self.known.lock().insert(namespace.name_any());
                self.accounts_due.add(namespace.name_any());
                if self.root_ca.is_some() {
                    self.certificates_due.add(namespace.name_any());
                }
            }
            Event::Delete(namespace) => _ = self.known.lock().remove(&namespace.name_any()),
            Event::Init | Event::InitDone => {}
        }
    }

    /// One of the objects is gone or, if that matters, another.
    fn take<K: Resource>(&self, event: &Event<K>, gift: Gift) {
        let due = self.due(gift);
        match event {
            Event::Delete(object) => due.add(object.namespace().unwrap_or_default()),
            Event::Apply(object) if gift == Gift::Certificate => {
                due.add(object.namespace().unwrap_or_default())
            }
            // What a new list does not bring was deleted unseen.
            Event::InitDone => self.known.lock().iter().for_each(|name| due.add(name.clone())),
            Event::Apply(_) | Event::Init | Event::InitApply(_) => {}
        }
    }

    async fn work(self: Arc<Self>, gift: Gift, cancel: CancellationToken) {
        let due = self.due(gift);
        loop {
            let name = tokio::select! { () = cancel.cancelled() => return, name = due.next() => name };
            match self.give(gift, &name).await {
                Ok(()) => due.forget_failures(&name),
                Err(error) => {
                    tracing::debug!(namespace = name, %error, "a namespace lacks what it should have, trying again");
                    due.retry(name.clone());
                }
            }
            due.done(&name);
        }
    }

    /// A namespace that is being deleted gets nothing.
    async fn give(&self, gift: Gift, name: &str) -> kube::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Some(namespace) = namespaces.get_opt(name).await? else { return Ok(()) };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let (Gift::Certificate, Some(root_ca)) = (gift, &self.root_ca) else {
            return self.give_account(name).await;
        };
        let start = Instant::now();
        let done = self.give_certificate(name, root_ca).await;
        let code = match &done {
            Ok(()) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(_) => 500,
        };
        self.metrics.root_ca_synced(code, start.elapsed());
        done
    }

    async fn give_account(&self, namespace: &str) -> kube::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        if accounts.get_metadata_opt(ACCOUNT).await?.is_some() {
            return Ok(());
        }
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(ACCOUNT.to_owned());
        or_in_vain(accounts.create(&PostParams::default(), &account).await)
    }

    async fn give_certificate(&self, namespace: &str, root_ca: &str) -> kube::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let Some(map) = maps.get_opt(ROOT_CA).await? else {
            let meta =
                json!({"name": ROOT_CA, "annotations": {ROOT_CA_DESCRIPTION.0: ROOT_CA_DESCRIPTION.1}});
            let map = json!({"metadata": meta, "data": {"ca.crt": root_ca}});
            let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
            return or_in_vain(maps.create(&PostParams::default(), &map).await);
        };
        match repair(&map, root_ca) {
            None => Ok(()),
            Some(patch) => maps.patch(ROOT_CA, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop),
        }
    }
}

/// Somebody else was quicker, or the namespace is about to go: both are fine.
fn or_in_vain<K>(made: kube::Result<K>) -> kube::Result<()> {
    match made {
        Err(kube::Error::Api(status))
            if status.is_already_exists() || status.is_not_found() || is_namespace_ending(&status) =>
        {
            Ok(())
        }
        other => other.map(drop),
    }
}

/// What makes the map say what it should, and nothing else.
fn repair(map: &ConfigMap, root_ca: &str) -> Option<Value> {
    let data = map.data.iter().flatten();
    let is_right = data.clone().map(|(name, text)| (&**name, &**text)).eq([("ca.crt", root_ca)]);
    let is_described = map.annotations().get(ROOT_CA_DESCRIPTION.0).is_some_and(|text| !text.is_empty());
    if is_right && is_described {
        return None;
    }
    let mut fresh: Map<String, Value> = data.map(|(name, _)| (name.clone(), Value::Null)).collect();
    fresh.insert("ca.crt".to_owned(), json!(root_ca));
    Some(json!({"metadata": {"annotations": {ROOT_CA_DESCRIPTION.0: ROOT_CA_DESCRIPTION.1}}, "data": fresh}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_repaired_when_it_or_its_description_is_not_what_it_should_be() {
        let map = |data: Value, text: &str| -> ConfigMap {
            let map = json!({"metadata": {"annotations": {ROOT_CA_DESCRIPTION.0: text}}, "data": data});
            serde_json::from_value(map).expect("a map")
        };
        let patch = |data: Value| {
            Some(
                json!({"metadata": {"annotations": {ROOT_CA_DESCRIPTION.0: ROOT_CA_DESCRIPTION.1}}, "data": data}),
            )
        };
        let cases = [
            (map(json!({"ca.crt": "x"}), "anything"), None),
            (map(json!({"ca.crt": "x"}), ""), patch(json!({"ca.crt": "x"}))),
            (map(json!({"ca.crt": "y"}), "t"), patch(json!({"ca.crt": "x"}))),
            (map(json!({"ca.crt": "x", "more": "z"}), "t"), patch(json!({"ca.crt": "x", "more": null}))),
            (map(json!(null), "t"), patch(json!({"ca.crt": "x"}))),
        ];
        for (map, expected) in cases {
            assert_eq!(repair(&map, "x"), expected, "{map:?}");
        }
    }
}
