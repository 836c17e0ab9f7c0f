//! Pods that wait for something that may never come: room on the node, an image, a ConfigMap.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::ListParams;

use super::JobName;

/// Pods looked at; one that is blocked is as good as a thousand.
const PODS_MAX: u32 = 20;

/// Looks at pods that have not started. The texts are the same for all pods that wait for the same.
pub async fn look(client: &kube::Client) -> Vec<(JobName, String)> {
    let pending = ListParams::default().fields("status.phase=Pending").limit(PODS_MAX);
    match Api::<Pod>::all(client.clone()).list(&pending).await {
        Ok(pods) => pods.items.iter().filter_map(of_pod).collect(),
        Err(error) => {
            tracing::warn!(%error, "list pending pods");
            Vec::new()
        }
    }
}

fn of_pod(pod: &Pod) -> Option<(JobName, String)> {
    let status = pod.status.as_ref()?;
    let text = unschedulable(status).or_else(|| waiting(status))?;
    Some((super::owner(pod)?, format!("pods can't start: {text}")))
}

fn unschedulable(status: &PodStatus) -> Option<String> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let refused = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    refused.message.clone()
}

fn waiting(status: &PodStatus) -> Option<String> {
    let containers = [&status.init_container_statuses, &status.container_statuses];
    containers.into_iter().flatten().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        // Only a reason for good has a message.
        let message = waiting.message.as_deref().filter(|message| !message.is_empty())?;
        Some(format!("{}: {message}", waiting.reason.as_deref().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(status: serde_json::Value) -> Option<String> {
        let labels = json!({"batch.kubernetes.io/job-name": "j"});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "labels": labels}, "status": status});
        of_pod(&serde_json::from_value(pod).expect("a pod")).map(|(_, text)| text)
    }

    #[test]
    fn a_pod_that_waits_for_something_says_for_what() {
        let condition = |status: &str| json!({"conditions": [{"type": "PodScheduled", "status": status, "message": "0/1 nodes"}]});
        assert_eq!(told(condition("False")).as_deref(), Some("pods can't start: 0/1 nodes"));
        assert_eq!(told(condition("True")), None);
        let waits = |waiting: serde_json::Value| json!({"containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]});
        assert_eq!(told(waits(json!({"reason": "ContainerCreating"}))), None);
        assert_eq!(
            told(waits(
                json!({"reason": "CreateContainerConfigError", "message": "configmap \"c\" not found"})
            ))
            .as_deref(),
            Some("pods can't start: CreateContainerConfigError: configmap \"c\" not found")
        );
    }
}
