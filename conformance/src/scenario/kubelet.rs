//! What kubelets, node controllers and people do to pods, as requests to the API server.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use windlass_api::names::{DISRUPTION_TARGET, disruption};

use super::mirror::{Kind, Space};
use super::{Deed, list, settled, text};

/// Containers ended so long ago: longer than any back-off.
const AGO: SignedDuration = SignedDuration::from_hours(1);

/// Does things to the pods of a namespace.
#[derive(Debug)]
pub struct Kubelet<'a> {
    /// The pods.
    pub pods: Api<DynamicObject>,
    /// What is seen of them.
    pub space: &'a Space,
}

impl<'a> Kubelet<'a> {
    /// For the pods of a namespace.
    pub fn new(client: &Client, namespace: &str, space: &'a Space) -> Self {
        let resource = ApiResource::erase::<Pod>(&());
        Self { pods: Api::namespaced_with(client.clone(), namespace, &resource), space }
    }

    /// Does it, and returns when what it did is seen.
    pub async fn does(&self, deed: &Deed, pod: &Value) -> Result<()> {
        let name = text(pod, "/metadata/name");
        self.try_to(deed, pod).await.with_context(|| format!("{deed:?} to pod {name}"))
    }

    async fn try_to(&self, deed: &Deed, pod: &Value) -> Result<()> {
        match deed {
            Deed::Run => {
                self.bind(pod).await?;
                let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": ago()}]);
                self.status(pod, json!({"phase": "Running", "conditions": ready})).await
            }
            Deed::Restarts(count) => {
                self.bind(pod).await?;
                let containers = containers(pod).into_iter().map(|name| {
                    json!({"name": name, "image": "host", "imageID": "", "ready": false, "restartCount": count,
                           "state": {"waiting": {"reason": "CrashLoopBackOff"}}})
                });
                let containers: Vec<Value> = containers.collect();
                self.status(pod, json!({"phase": "Running", "containerStatuses": containers})).await
            }
            Deed::Exit(code) => self.exit(pod, &[(None, *code)], json!([])).await,
            Deed::Exits(codes) => {
                let codes: Vec<_> = codes.iter().map(|(name, code)| (Some(*name), *code)).collect();
                self.exit(pod, &codes, json!([])).await
            }
            Deed::FailNow => {
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let ended = json!({"exitCode": 1, "startedAt": now, "finishedAt": now});
                let containers: Vec<Value> = containers(pod)
                    .into_iter()
                    .map(|name| {
                        json!({"name": name, "image": "host", "imageID": "", "ready": false,
                                       "restartCount": 0, "state": {"terminated": ended}})
                    })
                    .collect();
                let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
                let status =
                    json!({"phase": "Failed", "conditions": conditions, "containerStatuses": containers});
                self.status(pod, status).await
            }
            Deed::Disrupted(reason, code) => {
                self.exit(pod, &[(None, *code)], json!([disrupted(reason)])).await
            }
            Deed::Status(status) => self.status(pod, status.clone()).await,
            Deed::Delete => {
                self.not_ready(pod).await?;
                self.delete(pod, None).await
            }
            Deed::ForceDelete => self.delete(pod, Some(0)).await,
            Deed::End(code) => {
                if !settled::is_terminal(pod) {
                    self.exit(pod, &[(None, *code)], json!([])).await?;
                }
                self.delete(pod, Some(0)).await
            }
            Deed::LoseNode => self.lose_node(pod).await,
            Deed::Patch(patch) => self.patch(pod, patch.clone()).await,
        }
    }

    async fn bind(&self, pod: &Value) -> Result<()> {
        if !text(pod, "/spec/nodeName").is_empty() {
            return Ok(());
        }
        let name = text(pod, "/metadata/name");
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "node"},
        });
        let body = PostParams::default();
        self.pods.create_subresource::<_, Value>("binding", name, &body, &binding).await?;
        Ok(())
    }

    async fn exit(&self, pod: &Value, codes: &[(Option<&str>, i32)], mut conditions: Value) -> Result<()> {
        let ended = |name: &str, code: i32| {
            json!({"name": name, "image": "host", "imageID": "", "ready": false, "restartCount": 0,
                   "state": {"terminated": {"exitCode": code, "startedAt": ago(), "finishedAt": ago()}}})
        };
        let code_of = |name: &str| codes.iter().find(|(of, _)| of.is_none_or(|of| of == name));
        let containers: Vec<Value> = containers(pod)
            .into_iter()
            .filter_map(|name| code_of(name).map(|(_, code)| ended(name, *code)))
            .collect();
        let is_disrupted = conditions.as_array().is_some_and(|conditions| !conditions.is_empty());
        let is_failed = is_disrupted || codes.iter().any(|(_, code)| *code != 0);
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.push(json!({"type": "Ready", "status": "False", "lastTransitionTime": ago()}));
        }
        let status = json!({
            "phase": if is_failed { "Failed" } else { "Succeeded" },
            "conditions": conditions, "containerStatuses": containers,
        });
        self.status(pod, status).await
    }

    /// Its readiness ended long ago: a failure by deletion happened then, and needs no waiting either.
    async fn not_ready(&self, pod: &Value) -> Result<()> {
        if settled::is_terminal(pod) {
            return Ok(());
        }
        let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": ago()}]);
        self.status(pod, json!({"conditions": conditions})).await
    }

    /// As taint manager and pod garbage collector do it.
    async fn lose_node(&self, pod: &Value) -> Result<()> {
        let not_ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": ago()});
        let target = disrupted(disruption::DELETION_BY_TAINT_MANAGER);
        self.status(pod, json!({"conditions": [not_ready, target]})).await?;
        self.delete(pod, None).await?;
        let target = disrupted(disruption::DELETION_BY_POD_GC);
        self.status(pod, json!({"phase": "Failed", "conditions": [not_ready, target]})).await?;
        self.delete(pod, Some(0)).await
    }

    async fn status(&self, pod: &Value, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": uid(pod), "status": status}));
        let name = text(pod, "/metadata/name");
        let answer = self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        self.space.answered(Kind::Pod, serde_json::to_value(answer)?);
        Ok(())
    }

    async fn patch(&self, pod: &Value, patch: Value) -> Result<()> {
        let name = text(pod, "/metadata/name");
        let answer = self.pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        if settled::is_deleted(&serde_json::to_value(&answer)?) {
            return Ok(());
        }
        self.space.answered(Kind::Pod, serde_json::to_value(answer)?);
        Ok(())
    }

    async fn delete(&self, pod: &Value, grace_period_seconds: Option<u32>) -> Result<()> {
        let (name, uid) = (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
        let preconditions =
            Some(kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { grace_period_seconds, preconditions, ..DeleteParams::default() };
        self.space.others_delete(uid);
        match self.pods.delete(name, &params).await {
            // The controller may have let it go in between.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            other => _ = other?,
        }
        let find = |seen: &super::mirror::Seen| {
            let pods = seen.all(Kind::Pod);
            let item = pods.into_iter().find(|item| text(&item.object, "/metadata/uid") == uid)?;
            (item.is_gone || settled::is_deleted(&item.object)).then_some(())
        };
        self.space.until(&format!("the deletion of pod {name}"), find).await
    }
}

fn containers(pod: &Value) -> Vec<&str> {
    list(pod, "/spec/containers").iter().map(|container| text(container, "/name")).collect()
}

fn disrupted(reason: &str) -> Value {
    json!({"type": DISRUPTION_TARGET, "status": "True", "reason": reason, "message": "disrupted",
           "lastTransitionTime": ago()})
}

fn uid(pod: &Value) -> Value {
    json!({"uid": text(pod, "/metadata/uid")})
}

fn ago() -> String {
    (Timestamp::now() - AGO).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
