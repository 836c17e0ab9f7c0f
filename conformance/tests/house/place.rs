//! Where one scenario is played on one side: its namespace and nodes, what people and kubelets do there, and what is
//! written down to be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass_conformance::normal::Names;
use windlass_conformance::scenario::{list, merge, text};
use windlass_conformance::session::{STRATEGIC, Session};

/// No step takes longer, on a busy machine: a lost pod is looked at for a minute before it is collected.
const PATIENCE: Duration = Duration::from_secs(180);
/// An event that is not there by then never comes. Only ours can be found to miss one, and that is a difference.
const EVENT_PATIENCE: Duration = Duration::from_secs(20);

/// Nodes whose kubelets live.
pub type Hearts = Arc<Mutex<BTreeSet<String>>>;

/// One scenario on one side.
pub struct Place {
    session: Session,
    hearts: Hearts,
    /// There is a scheduler, and it must have seen a node before its pods come.
    has_scheduler: bool,
    nodes: Vec<String>,
}

/// The collections that scenarios look at.
pub const PODS: &str = "pods";
pub const NODES: &str = "nodes";
pub const JOBS: &str = "jobs";
pub const CRON_JOBS: &str = "cronjobs";
pub const BUDGETS: &str = "poddisruptionbudgets";
pub const MAPS: &str = "configmaps";
pub const NAMESPACES: &str = "namespaces";

impl Place {
    /// Makes the namespace.
    pub async fn new(client: Client, name: &str, hearts: Hearts, has_scheduler: bool) -> Result<Self> {
        let session = Session::new(BTreeMap::from([("admin", client)]), name);
        let place = Self { session, hearts, has_scheduler, nodes: Vec::new() };
        place.namespace(name).await?;
        Ok(place)
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        &self.session.namespace
    }

    /// The name of a node of this scenario: nodes have no namespaces.
    pub fn on(&self, node: &str) -> String {
        format!("{}-{node}", self.name())
    }

    /// The path of a collection.
    pub fn path(&self, plural: &str) -> String {
        self.path_in(self.name(), plural)
    }

    fn path_in(&self, namespace: &str, plural: &str) -> String {
        match plural {
            NODES | NAMESPACES => format!("/api/v1/{plural}"),
            JOBS | CRON_JOBS => format!("/apis/batch/v1/namespaces/{namespace}/{plural}"),
            BUDGETS => format!("/apis/policy/v1/namespaces/{namespace}/{plural}"),
            _ => format!("/api/v1/namespaces/{namespace}/{plural}"),
        }
    }

    /// Makes a namespace as clusters have them.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.make(NAMESPACES, json!({"metadata": {"name": name}})).await?;
        let account = json!({"metadata": {"name": "default"}});
        self.session.prepare(Method::POST, &self.path_in(name, "serviceaccounts"), account).await?;
        Ok(())
    }

    /// Makes an object.
    pub async fn make(&self, plural: &str, body: Value) -> Result<Value> {
        self.session.prepare(Method::POST, &self.path(plural), body).await
    }

    /// Makes an object in another namespace.
    pub async fn make_in(&self, namespace: &str, plural: &str, body: Value) -> Result<Value> {
        self.session.prepare(Method::POST, &self.path_in(namespace, plural), body).await
    }

    /// Makes a ready node with four CPUs; `more` is merged into it.
    pub async fn node(&mut self, name: &str, more: Value) -> Result<()> {
        let name = self.on(name);
        let taints = more.pointer("/spec/taints").cloned().unwrap_or_else(|| json!([]));
        let mut object = node(&name, more);
        if !self.has_scheduler {
            // A zone of its own: what happens to other nodes does not matter here.
            merge(&mut object, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": self.name()}}}));
        }
        self.make(NODES, object).await?;
        // Admission adds a taint to a new node, which somebody takes away when it is ready.
        self.patch(NODES, &name, json!({"spec": {"taints": taints}})).await?;
        self.hearts.lock().insert(name.clone());
        self.nodes.push(name.clone());
        if self.has_scheduler {
            self.wait_until_scheduler_knows(&name).await?;
        }
        Ok(())
    }

    /// A pod that runs on this node only, whatever taints it has, is placed there.
    async fn wait_until_scheduler_knows(&self, node: &str) -> Result<()> {
        let scout = json!({
            "metadata": {"name": node},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [{"operator": "Exists"}],
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "host"}],
            },
        });
        let pods = self.path_in("default", PODS);
        self.session.prepare(Method::POST, &pods, scout).await?;
        let one = format!("{pods}?fieldSelector=metadata.name%3D{node}");
        let is_placed =
            |items: &[Value]| items.iter().any(|pod| !text(pod, "/spec/nodeName").is_empty()).then_some(());
        self.session.until(&one, "the scheduler to know the node", PATIENCE, is_placed).await?;
        let now = json!({"gracePeriodSeconds": 0});
        self.session.prepare(Method::DELETE, &format!("{pods}/{node}"), now).await?;
        self.session
            .until(&one, "the end of the scout", PATIENCE, |items| items.is_empty().then_some(()))
            .await
    }

    /// The kubelet of the node says nothing any more.
    pub fn lose(&self, node: &str) {
        self.hearts.lock().remove(&self.on(node));
    }

    /// The kubelet of the node is back.
    pub fn revive(&self, node: &str) {
        self.hearts.lock().insert(self.on(node));
    }

    /// Takes a node away.
    pub async fn remove_node(&self, node: &str) -> Result<()> {
        self.lose(node);
        self.delete(NODES, &self.on(node), json!({})).await.map(drop)
    }

    /// Makes a pod; `more` is merged into it.
    pub async fn pod(&self, name: &str, more: Value) -> Result<()> {
        self.make(PODS, pod(name, more)).await.map(drop)
    }

    /// Makes a pod that runs on a node and is ready; `more` is merged into it.
    pub async fn running(&self, name: &str, node: &str, mut more: Value) -> Result<()> {
        merge(&mut more, json!({"spec": {"nodeName": self.on(node)}}));
        self.pod(name, more).await?;
        self.runs(name).await
    }

    /// The kubelet says that the pod runs and is ready.
    pub async fn runs(&self, name: &str) -> Result<()> {
        let state = json!({"running": {"startedAt": ago(60)}});
        let status = json!({
            "phase": "Running", "startTime": ago(60),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(60)}],
            "containerStatuses": [container(state, true)],
        });
        self.status(name, status).await
    }

    /// The kubelet says how the pod ended.
    pub async fn ends(&self, name: &str, code: i32) -> Result<()> {
        let reason = if code == 0 { "Completed" } else { "Error" };
        let state = json!({"terminated": {
            "exitCode": code, "reason": reason, "startedAt": ago(60), "finishedAt": ago(1),
        }});
        let status = json!({
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": ago(1)}],
            "containerStatuses": [container(state, false)],
        });
        self.status(name, status).await
    }

    /// The kubelet ends a deleted pod, and it is gone.
    pub async fn ends_and_goes(&self, name: &str, code: i32) -> Result<()> {
        self.ends(name, code).await?;
        self.delete(PODS, name, json!({"gracePeriodSeconds": 0})).await?;
        self.until_gone(PODS, name).await
    }

    /// What a kubelet says of a pod.
    pub async fn status(&self, pod: &str, status: Value) -> Result<()> {
        let path = format!("{}/{pod}/status", self.path(PODS));
        self.session.prepare_as(Method::PATCH, &path, STRATEGIC, json!({"status": status})).await.map(drop)
    }

    /// What a kubelet says of its node: a condition.
    pub async fn condition(&self, node: &str, kind: &str, status: &str, reason: &str) -> Result<()> {
        let path = format!("{}/{}/status", self.path(NODES), self.on(node));
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": "so says the kubelet",
            "lastHeartbeatTime": ago(0), "lastTransitionTime": ago(0)});
        let patch = json!({"status": {"conditions": [condition]}});
        self.session.prepare_as(Method::PATCH, &path, STRATEGIC, patch).await.map(drop)
    }

    /// Gives a node these taints and no others.
    pub async fn taint(&self, node: &str, taints: Value) -> Result<()> {
        self.patch(NODES, &self.on(node), json!({"spec": {"taints": taints}})).await
    }

    /// Changes an object: a merge patch.
    pub async fn patch(&self, plural: &str, name: &str, patch: Value) -> Result<()> {
        let path = format!("{}/{name}", self.path(plural));
        self.session.prepare(Method::PATCH, &path, patch).await.map(drop)
    }

    /// Changes the status of an object: a merge patch.
    pub async fn patch_status(&self, plural: &str, name: &str, status: Value) -> Result<()> {
        self.patch(plural, &format!("{name}/status"), json!({"status": status})).await
    }

    /// Deletes an object, and gives the answer.
    pub async fn delete(&self, plural: &str, name: &str, options: Value) -> Result<Value> {
        let path = format!("{}/{name}", self.path(plural));
        self.session.prepare(Method::DELETE, &path, options).await
    }

    /// Lets go of an object.
    pub async fn release(&self, plural: &str, name: &str) -> Result<()> {
        self.patch(plural, name, json!({"metadata": {"finalizers": null}})).await
    }

    /// Waits until a collection is such, and gives its objects.
    pub async fn until_all(
        &self,
        plural: &str,
        what: &str,
        is_so: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let find = |items: &[Value]| is_so(items).then(|| items.to_vec());
        self.session.until(&self.path(plural), what, PATIENCE, find).await
    }

    /// Waits until an object is such, and gives it.
    pub async fn until(
        &self,
        plural: &str,
        name: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let one = format!("{}?fieldSelector=metadata.name%3D{name}", self.path(plural));
        let find = |items: &[Value]| items.iter().find(|item| is_so(item)).cloned();
        self.session.until(&one, &format!("{name} {what}"), PATIENCE, find).await
    }

    /// Waits until an object is gone.
    pub async fn until_gone(&self, plural: &str, name: &str) -> Result<()> {
        let one = format!("{}?fieldSelector=metadata.name%3D{name}", self.path(plural));
        let is_empty = |items: &[Value]| items.is_empty().then_some(());
        self.session.until(&one, &format!("{name} to be gone"), PATIENCE, is_empty).await
    }

    /// Waits until a pod is placed.
    pub async fn until_placed(&self, pod: &str) -> Result<Value> {
        self.until(PODS, pod, "to be placed", |pod| !text(pod, "/spec/nodeName").is_empty()).await
    }

    /// Waits until a pod is told that it can't be placed.
    pub async fn until_refused(&self, pod: &str) -> Result<Value> {
        self.until_told(pod, "").await
    }

    /// Waits until a pod is told that it can't be placed, with a message that contains this.
    pub async fn until_told(&self, pod: &str, part: &str) -> Result<Value> {
        self.until(PODS, pod, &format!("to be told: {part}"), |pod| {
            let told = condition(pod, "PodScheduled");
            told.is_some_and(|one| {
                text(one, "/reason") == "Unschedulable" && text(one, "/message").contains(part)
            })
        })
        .await
    }

    /// Places a pod, as a scheduler does.
    pub async fn bind(&self, pod: &str, node: &str) -> Result<()> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"kind": "Node", "name": self.on(node)}});
        self.make(&format!("pods/{pod}/binding"), binding).await.map(drop)
    }

    /// Waits until a pod is being deleted as disrupted.
    pub async fn until_disrupted(&self, pod: &str) -> Result<Value> {
        self.until(PODS, pod, "to be disrupted", |pod| {
            is_deleted(pod) && condition(pod, "DisruptionTarget").is_some()
        })
        .await
    }

    /// Waits until an object is being deleted.
    pub async fn until_deleted(&self, plural: &str, name: &str) -> Result<Value> {
        self.until(plural, name, "to be deleted", is_deleted).await
    }

    /// Writes down an object as it is now.
    pub async fn note(&mut self, step: &str, plural: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}", self.path(plural));
        let object = self.session.prepare(Method::GET, &path, Value::Null).await?;
        self.write_down(step, object);
        Ok(())
    }

    /// Writes down all objects of a collection, in the order of their names.
    pub async fn note_all(&mut self, step: &str, plural: &str) -> Result<()> {
        let list = self.session.prepare(Method::GET, &self.path(plural), Value::Null).await?;
        let items: Vec<Value> = items_by_name(&list).into_iter().map(comparable).collect();
        self.session.note(step, Value::Array(items));
        Ok(())
    }

    /// Writes down an object.
    pub fn write_down(&mut self, step: &str, object: Value) {
        self.session.note(step, comparable(object));
    }

    /// Sends a request and writes its answer down.
    pub async fn post(&mut self, step: &str, path: &str, body: Value) -> Value {
        self.session.post(step, path, body).await
    }

    /// Waits for these events, each as `Kind name Reason`, and writes all down that there are about the objects of this
    /// scenario. What was told more often is told once.
    pub async fn events(&mut self, wanted: &[&str]) -> Result<()> {
        let of_nodes = wanted.iter().any(|event| event.starts_with("Node "));
        let (inner, outer): (Vec<&str>, Vec<&str>) =
            wanted.iter().copied().partition(|event| !event.starts_with("Node "));
        let mut told = self.events_in(self.name(), "", &inner).await?;
        if of_nodes {
            let prefix = self.on("");
            told.extend(self.events_in("default", &prefix, &outer).await?);
        }
        self.session.note("events", Value::Array(told));
        Ok(())
    }

    async fn events_in(&self, namespace: &str, prefix: &str, wanted: &[&str]) -> Result<Vec<Value>> {
        let path = self.path_in(namespace, "events");
        let title = |event: &Value| {
            let about = text(event, "/involvedObject/name").replacen(prefix, "", 1);
            format!("{} {about} {}", text(event, "/involvedObject/kind"), text(event, "/reason"))
        };
        let all = |items: &[Value]| {
            let titles: BTreeSet<String> = items.iter().map(title).collect();
            wanted.iter().all(|wanted| titles.contains(*wanted)).then_some(())
        };
        // Whether it came or not is compared.
        let _ = self.session.until(&path, &wanted.join(", "), EVENT_PATIENCE, all).await;
        let list = self.session.prepare(Method::GET, &path, Value::Null).await?;
        let mut told: Vec<Value> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|event| text(event, "/involvedObject/name").starts_with(prefix))
            .filter(|event| !is_chance(event) || wanted.contains(&title(event).as_str()))
            .map(|event| {
                json!({
                    "about": title(event), "type": event["type"], "message": event["message"],
                    "action": event.get("action"), "component": event["reportingComponent"],
                    "related": event.pointer("/related/name"),
                })
            })
            .collect();
        told.sort_by_cached_key(Value::to_string);
        told.dedup();
        Ok(told)
    }

    /// What was written down, without what must differ.
    pub fn transcript(&mut self) -> Vec<(String, Value)> {
        let mut names = Names::default();
        let mut said = Vec::new();
        for mut answer in std::mem::take(&mut self.session.transcript) {
            names.normalise(&mut answer.value);
            said.push((answer.step, answer.value));
        }
        said
    }

    /// Leaves nothing behind that others could stumble over.
    pub async fn leave(&mut self) -> Result<()> {
        // A Job that is still there would replace its pods.
        for kind in [CRON_JOBS, JOBS] {
            for item in
                items_by_name(&self.session.prepare(Method::GET, &self.path(kind), Value::Null).await?)
            {
                let options = json!({"propagationPolicy": "Background"});
                let _ = self.delete(kind, text(&item, "/metadata/name"), options).await;
            }
        }
        for pod in self.session.prepare(Method::GET, &self.path(PODS), Value::Null).await?["items"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let name = text(pod, "/metadata/name");
            if !list(pod, "/metadata/finalizers").is_empty() {
                // It may go at any moment.
                let _ = self.release(PODS, name).await;
            }
            let _ = self.delete(PODS, name, json!({"gracePeriodSeconds": 0})).await;
        }
        self.until_all(PODS, "no pods", <[Value]>::is_empty).await.context("leave")?;
        for node in std::mem::take(&mut self.nodes) {
            self.hearts.lock().remove(&node);
            let _ = self.delete(NODES, &node, json!({})).await;
        }
        Ok(())
    }
}

/// A Job that was made for a CronJob is unexpected until the status names it: whether somebody looks in between is chance.
fn is_chance(event: &Value) -> bool {
    text(event, "/reason") == "UnexpectedJob"
}

fn items_by_name(list: &Value) -> Vec<Value> {
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    items.sort_by_cached_key(|item| text(item, "/metadata/name").to_owned());
    items
}

/// Without what says how an object came about: how many writes, and by whom.
fn comparable(mut object: Value) -> Value {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
        meta.remove("resourceVersion");
    }
    if let Some(object) = object.as_object_mut() {
        // Items of a list do not say it.
        object.remove("apiVersion");
        object.remove("kind");
    }
    // Lists with keys: who is first to taint a node or to write a condition is chance.
    for list in ["/spec/taints", "/status/conditions"] {
        if let Some(items) = object.pointer_mut(list).and_then(Value::as_array_mut) {
            items.sort_by_cached_key(|item| format!("{} {} {}", item["type"], item["key"], item["effect"]));
        }
    }
    object
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether a condition is true.
pub fn is(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Whether an object is being deleted.
pub fn is_deleted(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether a node has a taint: `key:effect`.
pub fn has_taint(node: &Value, taint: &str) -> bool {
    let named = |taint: &Value| format!("{}:{}", text(taint, "/key"), text(taint, "/effect"));
    list(node, "/spec/taints").iter().any(|one| named(one) == taint)
}

/// A time so many seconds ago.
pub fn ago(seconds: i64) -> String {
    (Timestamp::now() - SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A pod; `more` is merged into it.
pub fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "host"}],
        },
    });
    merge(&mut pod, more);
    pod
}

/// What a pod asks for.
pub fn needs(resources: Value) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "host", "resources": {"requests": resources}}]}})
}

/// Two parts of an object.
pub fn and(mut a: Value, b: Value) -> Value {
    merge(&mut a, b);
    a
}

/// What keeps an object from going before it was looked at.
pub fn held() -> Value {
    json!({"metadata": {"finalizers": ["example.com/hold"]}})
}

/// Makes an object belong to another.
pub fn owned_by(owner: &Value, kind: &str, blocks: bool) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "v1" };
    json!({"metadata": {"ownerReferences": [{
        "apiVersion": version, "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }]}})
}

fn container(state: Value, is_ready: bool) -> Value {
    json!({"name": "main", "image": "host", "imageID": "", "restartCount": 0, "ready": is_ready, "state": state})
}

fn node(name: &str, more: Value) -> Value {
    let room = json!({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "110"});
    let good = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "so says the kubelet",
            "lastHeartbeatTime": ago(0), "lastTransitionTime": ago(0)})
    };
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [
            good("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            good("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            good("PIDPressure", "False", "KubeletHasSufficientPID"),
            good("Ready", "True", "KubeletReady"),
        ]},
    });
    merge(&mut node, more);
    node
}
