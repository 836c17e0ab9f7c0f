//! What `deploy/` installs, on the real API server: it is accepted, the controller can do its work with its rights, and
//! has no right that it does not use.

mod chart;
mod operator;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::{
    self,
    v1::{Pod, ServiceAccount},
};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use windlass_conformance::{Cluster, assets, cluster};
use windlass_controllers::connect;
use windlass_controllers::job::{self, JobController};
use windlass_controllers::lease::{self, Elector};
use windlass_job::observation::Manages;
use windlass_job::pod_names::PodNames;
use windlass_job::{Settings, Uid};

const NAMESPACE: &str = "windlass-system";
const NAME: &str = "windlass";
const USER: &str = "system:serviceaccount:windlass-system:windlass";
const PATIENCE: Duration = Duration::from_secs(180);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn output(command: &mut Command) -> Result<String> {
    let ran = command.output().with_context(|| format!("start {command:?}"))?;
    if !ran.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    Ok(String::from_utf8(ran.stdout)?)
}

fn render(flags: &[&str]) -> Result<String> {
    let base = ["template", NAME, "--namespace", NAMESPACE, "--kube-version", "1.36.4"];
    output(Command::new(assets::helm()?).args(base).args(flags).arg(deploy().join("chart")))
}

#[test]
fn the_plain_manifests_are_the_chart_with_its_defaults() -> Result<()> {
    let plain = std::fs::read_to_string(deploy().join("manifests/10-controller.yaml"))?;
    assert_eq!(plain, render(&[])?, "render it again: see deploy/README.md");
    Ok(())
}

/// One thing that may be done, or was: API group, resource, verb.
type Deed = (String, String, String);

/// The API server's log of who did what.
struct Audit(tempfile::TempDir);

impl Audit {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let policy =
            json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
        std::fs::write(directory.path().join("policy.yaml"), policy.to_string())?;
        Ok(Self(directory))
    }

    fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        vec![
            format!("--audit-policy-file={}", path("policy.yaml")),
            format!("--audit-log-path={}", path("audit.log")),
        ]
    }

    /// What the controller asked for, and the code that it was answered.
    fn deeds(&self) -> Result<Vec<(Deed, u64)>> {
        let text = std::fs::read_to_string(self.0.path().join("audit.log"))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        // A watch is only begun.
        let is_answered =
            |entry: &Value| ["ResponseComplete", "ResponseStarted"].iter().any(|s| entry["stage"] == *s);
        let ours = lines.filter(|entry| entry["user"]["username"] == USER && is_answered(entry));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(ours
            .map(|entry| {
                let about = &entry["objectRef"];
                let resource = match about["subresource"].as_str() {
                    Some(sub) => format!("{}/{sub}", text(&about["resource"])),
                    None => text(&about["resource"]),
                };
                let deed = (text(&about["apiGroup"]), resource, text(&entry["verb"]));
                (deed, entry["responseStatus"]["code"].as_u64().unwrap_or_default())
            })
            .collect())
    }

    async fn until(&self, what: impl Fn(&[(Deed, u64)]) -> bool) -> Result<Vec<(Deed, u64)>> {
        let start = Instant::now();
        loop {
            let deeds = self.deeds()?;
            if what(&deeds) {
                return Ok(deeds);
            }
            if start.elapsed() > PATIENCE {
                bail!("it never came to that: {deeds:#?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn deed(group: &str, resource: &str, verb: &str) -> Deed {
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

fn granted(rules: &[PolicyRule]) -> BTreeSet<Deed> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                all.extend(rule.verbs.iter().map(|verb| deed(group, resource, verb)));
            }
        }
    }
    all
}

struct World {
    cluster: Cluster,
    client: Client,
    audit: Audit,
}

impl World {
    /// A cluster in which `deploy/manifests` was applied, as docs/kubernetes.md says.
    async fn installed() -> Result<Self> {
        let audit = Audit::new()?;
        let mut apiserver = audit.flags();
        // With it, who blocks the deletion of an object must be allowed to.
        apiserver.push("--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned());
        let cluster =
            Cluster::start_with(&cluster::Options { apiserver, ..cluster::Options::default() }).await?;
        let mut kubectl = Command::new(assets::find("kubectl")?);
        kubectl
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig()?)
            .args(["apply", "-f"])
            .arg(deploy().join("manifests"));
        output(&mut kubectl)?;
        let client = cluster.client().await?;
        // Nobody makes accounts where there is no controller manager.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
        accounts.create(&PostParams::default(), &account).await?;
        Ok(Self { cluster, client, audit })
    }

    /// As the controller's own pod would see the cluster.
    async fn config(&self) -> Result<kube::Config> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let token = accounts.create_token_request(NAME, &PostParams::default(), &request).await?;
        let token = token.status.and_then(|status| status.token).context("a token")?;
        let file = Kubeconfig::read_from(self.cluster.kubeconfig_for(NAME, &token)?)?;
        Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
    }

    /// Starts the controller as `windlass controller` does.
    async fn controller(&self, cancel: &CancellationToken) -> Result<()> {
        let config = self.config().await?;
        let mut lease = lease::Config::new(NAMESPACE.into(), NAME.into(), "test".into());
        lease.retry_period = Duration::from_millis(200);
        let mut elector =
            Elector::new(connect::client(&config, None)?, lease, Arc::new(jiff::Timestamp::now));
        let fence = elector.acquire(cancel, |_| ()).await.context("the lease")?;
        let (ready, mut is_ready) = watch::channel(false);
        let settings = job::Config {
            settings: Settings { manages: Manages::OptedIn, ..Settings::default() },
            watch_client: Some(connect::client(&config, None)?),
            ready: Some(ready),
            ..job::Config::default()
        };
        let client = connect::client(&config, Some(fence.clone()))?;
        tokio::spawn(JobController::new(client, settings).run(cancel.clone()));
        let renewing = cancel.clone();
        tokio::spawn(async move { elector.keep(&fence, &renewing).await });
        tokio::time::timeout(PATIENCE, is_ready.wait_for(|is_ready| *is_ready)).await??;
        Ok(())
    }

    /// Every pod that the Job `lazy` does not own succeeds.
    fn kubelet(&self) {
        let client = self.client.clone();
        tokio::spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client, "default");
            let mut changes =
                watcher::watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
            while let Some(change) = changes.next().await {
                let Ok(Event::Apply(pod) | Event::InitApply(pod)) = change else { continue };
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Pending") && !pod.name_any().starts_with("lazy") {
                    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                    // It may be gone.
                    _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await;
                }
            }
        });
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create_job(&self, name: &str, spec: Value) -> Result<Job> {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"managedBy": "windlass.dev/job-controller", "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}],
            }}},
        });
        for (field, value) in spec.as_object().context("a map")? {
            job["spec"][field] = value.clone();
        }
        Ok(self.jobs().create(&PostParams::default(), &serde_json::from_value(job)?).await?)
    }

    async fn suspend(&self, name: &str, is_suspended: bool) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"suspend": is_suspended}}));
        self.jobs().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn until_job(&self, name: &str, what: impl Fn(&Job) -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let job = self.jobs().get(name).await?;
            if what(&job) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("{job:#?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_event(&self, job: &str, reason: &str) -> Result<()> {
        let events: Api<core::v1::Event> = Api::namespaced(self.client.clone(), "default");
        let wanted = ListParams::default().fields(&format!("reason={reason},involvedObject.name={job}"));
        let start = Instant::now();
        while events.list(&wanted).await?.items.is_empty() {
            if start.elapsed() > PATIENCE {
                bail!("there is no event {reason} of {job}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn is_complete(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.completion_time.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_has_the_rights_that_it_needs_and_no_others() -> Result<()> {
    let world = World::installed().await?;
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    world.controller(&cancel).await?;
    world.kubelet();
    world.create_job("many", json!({"completions": 15, "parallelism": 15})).await?;
    // A pod that is adopted: the Job is looked at before.
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name, "labels": {"adopt": "me"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]},
        })
    };
    pods.create(&PostParams::default(), &serde_json::from_value(pod("lazy-orphan"))?).await?;
    let labels = json!({"adopt": "me"});
    let template = json!({"metadata": {"labels": labels}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}});
    let spec = json!({"manualSelector": true, "selector": {"matchLabels": labels}, "template": template});
    world.create_job("adopts", spec).await?;
    // A name that somebody else has: the pod is looked at.
    let squatted = world.create_job("squatted", json!({"suspend": true})).await?;
    let name = PodNames::new("squatted", &Uid::new(&squatted.uid().context("a UID")?)).name(None, 0);
    let mut squatter = pod(&name);
    squatter["metadata"]["labels"] = json!({});
    pods.create(&PostParams::default(), &serde_json::from_value(squatter)?).await?;
    world.suspend("squatted", false).await?;
    // Pods that are deleted.
    world.create_job("lazy", json!({"parallelism": 2, "completions": 2})).await?;
    world.until_job("lazy", |job| job.status.as_ref().and_then(|status| status.active) == Some(2)).await?;
    world.suspend("lazy", true).await?;
    // An event that was there before: it is counted up.
    world.until_event("lazy", "Suspended").await?;
    world.suspend("lazy", false).await?;
    world.until_job("lazy", |job| job.status.as_ref().and_then(|status| status.active) == Some(2)).await?;
    world.suspend("lazy", true).await?;
    for name in ["many", "squatted"] {
        world.until_job(name, is_complete).await?;
    }
    world.until_job("adopts", |job| job.status.as_ref().and_then(|status| status.active) == Some(1)).await?;

    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let role = roles.get(NAME).await?;
    let lease: Api<Role> = Api::namespaced(world.client.clone(), NAMESPACE);
    let mut granted_all = granted(role.rules.as_deref().unwrap_or_default());
    granted_all.extend(granted(lease.get("windlass-lease").await?.rules.as_deref().unwrap_or_default()));
    // Not a request, but asked for when a pod is made.
    assert!(granted_all.remove(&deed("batch", "jobs/finalizers", "update")));
    let used =
        |deeds: &[(Deed, u64)]| -> BTreeSet<Deed> { deeds.iter().map(|(deed, _)| deed.clone()).collect() };
    let deeds = world.audit.until(|deeds| used(deeds).is_superset(&granted_all)).await?;
    assert_eq!(used(&deeds), granted_all, "it asks for nothing that it may not do");
    assert!(!deeds.iter().any(|(_, code)| *code == 403), "{deeds:#?}");

    // The one right that no request shows: without it, no pod can be made here.
    let mut without = role.clone();
    without.metadata.managed_fields = None;
    let is_finalizers = |rule: &PolicyRule| rule.resources.iter().flatten().any(|r| r == "jobs/finalizers");
    without.rules.iter_mut().for_each(|rules| rules.retain(|rule| !is_finalizers(rule)));
    roles.replace(NAME, &PostParams::default(), &without).await?;
    // The API server takes a moment to notice.
    let mut made = 0;
    let refused = deed("", "pods", "create");
    let start = Instant::now();
    loop {
        made += 1;
        world.create_job(&format!("late-{made}"), json!({})).await?;
        let deeds = world
            .audit
            .until(|deeds| deeds.iter().filter(|(d, _)| *d == refused).count() > 20 + made)
            .await?;
        if deeds.iter().any(|(deed, code)| *deed == refused && *code == 403) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "no pod was refused: {deeds:#?}");
    }
    cancel.cancel();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_variant_of_the_chart_is_accepted_and_its_pods_keep_to_the_restricted_profile() -> Result<()> {
    let world = World::installed().await?;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), NAMESPACE);
    let template = deployments.get(NAME).await?.spec.template;
    let mut pod: Pod = serde_json::from_value(serde_json::to_value(template)?)?;
    pod.metadata.name = Some("one".to_owned());
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    // The namespace enforces the profile: a pod that does not keep to it is refused.
    pods.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await?;

    let sets =
        "namespace=default,networkPolicy.enabled=true,manage=all,featureGates=JobPodFailurePolicy=true";
    let variant = render(&["--set", sets, "--set-json", r#"extraArgs=["--backoff-base=5s"]"#])?;
    assert!(variant.contains("kind: NetworkPolicy") && !variant.contains("kind: ClusterRole"), "{variant}");
    let file = world.cluster.directory().join("variant.yaml");
    std::fs::write(&file, variant)?;
    let mut kubectl = Command::new(assets::find("kubectl")?);
    kubectl.arg("--kubeconfig").arg(world.cluster.kubeconfig()?);
    output(kubectl.args(["apply", "--dry-run=server", "-f"]).arg(&file))?;
    Ok(())
}
