//! How pods find Services: variables, and names in `/etc/hosts`. Both lead to this machine's own address, for it is that of
//! every pod; nothing forwards one port to another.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long the first list of Services may take before a container waits for its next try.
const PATIENCE: Duration = Duration::from_secs(10);
/// The domain of a cluster, where nobody has chosen another.
const DOMAIN: &str = "cluster.local";

/// The Services of all namespaces, kept up to date.
pub(crate) struct Services {
    store: Store<Service>,
    /// They were listed once. The store's own way to wait wakes only one of several who do.
    is_listed: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Services {
    /// Begins to watch.
    pub(crate) fn watch(client: kube::Client) -> Self {
        Self::of(watcher(kube::Api::<Service>::all(client), watcher::Config::default()).default_backoff())
    }

    fn of(events: impl Stream<Item = watcher::Result<watcher::Event<Service>>> + Send + 'static) -> Self {
        let (store, writer) = reflector::store();
        let (listed, is_listed) = watch::channel(false);
        let events = events.reflect(writer).for_each(move |event| {
            match event {
                Ok(watcher::Event::InitDone) => _ = listed.send_replace(true),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "watch services"),
            }
            std::future::ready(())
        });
        Self { store, is_listed, task: tokio::spawn(events) }
    }

    /// All that have been seen, in the order of their names. An error, in upstream's words, when they were never listed.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<Service>>, String> {
        let mut is_listed = self.is_listed.clone();
        let listed = tokio::time::timeout(PATIENCE, is_listed.wait_for(|is_listed| *is_listed)).await;
        if !matches!(listed, Ok(Ok(_))) {
            return Err("services have not yet been read at least once, cannot construct envvars".into());
        }
        let mut all = self.store.state();
        all.sort_by(|a, b| key(a).cmp(&key(b)));
        Ok(all)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn key(service: &Service) -> (&str, &str) {
    let meta = &service.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// The spec of a Service that pods of this machine can answer for: it selects pods.
fn with_pods(service: &Service) -> Option<&ServiceSpec> {
    let spec = service.spec.as_ref()?;
    let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
    (selects && spec.type_.as_deref() != Some("ExternalName")).then_some(spec)
}

/// The variables about Services of its namespace that a pod's containers have. As in Kubernetes headless Services have none.
pub(crate) fn variables(all: &[Arc<Service>], pod: &Pod, ip: &str) -> Vec<(String, String)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let is_linked = pod.spec.as_ref().is_none_or(|spec| spec.enable_service_links != Some(false));
    let mut variables = Vec::new();
    for service in all.iter().filter(|_| is_linked) {
        let (of, name) = key(service);
        let spec = with_pods(service).filter(|spec| spec.cluster_ip.as_deref() != Some("None"));
        if let Some(spec) = spec.filter(|_| of == namespace) {
            add(&mut variables, &variable_name(name), spec, ip);
        }
    }
    variables
}

fn add(variables: &mut Vec<(String, String)>, name: &str, spec: &ServiceSpec, ip: &str) {
    let mut set = |name: String, value: String| variables.push((name, value));
    for (number, port) in spec.ports.iter().flatten().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let (upper, lower) = (protocol.to_uppercase(), protocol.to_lowercase());
        let (port, port_name) = (port.port, port.name.as_deref().filter(|name| !name.is_empty()));
        let url = format!("{lower}://{ip}:{port}");
        if number == 0 {
            set(format!("{name}_SERVICE_HOST"), ip.to_owned());
            set(format!("{name}_SERVICE_PORT"), port.to_string());
            set(format!("{name}_PORT"), url.clone());
        }
        if let Some(port_name) = port_name {
            set(format!("{name}_SERVICE_PORT_{}", variable_name(port_name)), port.to_string());
        }
        let link = format!("{name}_PORT_{port}_{upper}");
        set(format!("{link}_PROTO"), lower);
        set(format!("{link}_PORT"), port.to_string());
        set(format!("{link}_ADDR"), ip.to_owned());
        set(link, url);
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// The names by which a pod of `namespace` would ask a cluster's DNS for each Service.
pub(crate) fn names(all: &[Arc<Service>], namespace: &str) -> Vec<Vec<String>> {
    let all = all.iter().filter(|service| with_pods(service).is_some()).map(|service| key(service));
    all.map(|(of, name)| {
        let own = (of == namespace).then(|| name.to_owned());
        let long = [format!("{name}.{of}"), format!("{name}.{of}.svc"), format!("{name}.{of}.svc.{DOMAIN}")];
        own.into_iter().chain(long).collect()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn services() -> Vec<Arc<Service>> {
        let service = |namespace: &str, name: &str, spec: Value| {
            let service = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
            Arc::new(serde_json::from_value(service).expect("a Service"))
        };
        let selector = json!({"app": "x"});
        vec![
            service("a", "db", json!({"selector": selector, "ports": [{"port": 6379}]})),
            service(
                "a",
                "external",
                json!({"type": "ExternalName", "selector": selector, "ports": [{"port": 1}]}),
            ),
            service(
                "a",
                "headless",
                json!({"clusterIP": "None", "selector": selector, "ports": [{"port": 2}]}),
            ),
            service("a", "nobodys", json!({"ports": [{"port": 3}]})),
            service(
                "b",
                "two-ports",
                json!({"selector": selector, "clusterIP": "10.0.0.9", "ports": [
                    {"name": "a-b", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"},
                ]}),
            ),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_the_first_list_hear_of_it_at_once() {
        let (sender, events) = futures::channel::mpsc::unbounded();
        let watched = Arc::new(Services::of(events));
        let wait = |watched: Arc<Services>| async move { watched.all().await.map(|all| all.len()) };
        let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(wait(Arc::clone(&watched)))).collect();
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let service = Service::clone(&services()[0]);
        for event in [watcher::Event::Init, watcher::Event::InitApply(service), watcher::Event::InitDone] {
            sender.unbounded_send(Ok(event)).expect("somebody listens");
        }
        for waits in waiting {
            assert_eq!(waits.await.expect("no panic"), Ok(1));
        }
        assert!(begun.elapsed() < PATIENCE, "one of them was not woken");
    }

    #[test]
    fn a_pod_has_variables_about_the_services_of_its_namespace() {
        let of = |namespace: &str, spec: Value| {
            let pod = json!({"metadata": {"namespace": namespace}, "spec": spec});
            let pod = serde_json::from_value(pod).expect("a pod");
            let variables = variables(&services(), &pod, "127.0.0.1").into_iter();
            let mut lines: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
            lines.sort();
            lines
        };
        let linked = json!({"containers": [], "enableServiceLinks": true});
        assert_eq!(
            of("a", linked.clone()),
            [
                "DB_PORT=tcp://127.0.0.1:6379",
                "DB_PORT_6379_TCP=tcp://127.0.0.1:6379",
                "DB_PORT_6379_TCP_ADDR=127.0.0.1",
                "DB_PORT_6379_TCP_PORT=6379",
                "DB_PORT_6379_TCP_PROTO=tcp",
                "DB_SERVICE_HOST=127.0.0.1",
                "DB_SERVICE_PORT=6379",
            ]
        );
        assert_eq!(
            of("b", linked),
            [
                "TWO_PORTS_PORT=tcp://127.0.0.1:80",
                "TWO_PORTS_PORT_53_UDP=udp://127.0.0.1:53",
                "TWO_PORTS_PORT_53_UDP_ADDR=127.0.0.1",
                "TWO_PORTS_PORT_53_UDP_PORT=53",
                "TWO_PORTS_PORT_53_UDP_PROTO=udp",
                "TWO_PORTS_PORT_80_TCP=tcp://127.0.0.1:80",
                "TWO_PORTS_PORT_80_TCP_ADDR=127.0.0.1",
                "TWO_PORTS_PORT_80_TCP_PORT=80",
                "TWO_PORTS_PORT_80_TCP_PROTO=tcp",
                "TWO_PORTS_SERVICE_HOST=127.0.0.1",
                "TWO_PORTS_SERVICE_PORT=80",
                "TWO_PORTS_SERVICE_PORT_A_B=80",
                "TWO_PORTS_SERVICE_PORT_DNS=53",
            ]
        );
        assert_eq!(of("a", json!({"containers": [], "enableServiceLinks": false})), [""; 0]);
        assert_eq!(of("c", json!({"containers": []})), [""; 0]);
    }

    #[test]
    fn a_service_with_pods_has_the_names_of_a_cluster_and_a_short_one_in_its_namespace() {
        let lines = |namespace| {
            names(&services(), namespace).into_iter().map(|names| names.join(" ")).collect::<Vec<_>>()
        };
        let [db, headless, two] = [("db", "a"), ("headless", "a"), ("two-ports", "b")]
            .map(|(name, of)| format!("{name}.{of} {name}.{of}.svc {name}.{of}.svc.cluster.local"));
        assert_eq!(lines("a"), [format!("db {db}"), format!("headless {headless}"), two.clone()]);
        assert_eq!(lines("b"), [db, headless, format!("two-ports {two}")]);
    }
}
