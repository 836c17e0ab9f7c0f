//! What docs/kubernetes.md tells an operator to type, typed on the real API server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use windlass_conformance::{Cluster, assets};

use super::{NAME, NAMESPACE, deploy, output};

/// The commands of a page's console blocks, each with its further lines.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_console = false;
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            commands.push(command.to_owned());
        } else if let Some(command) = commands.last_mut().filter(|_| is_console) {
            command.push('\n');
            command.push_str(line);
        }
    }
    commands
}

/// The first block of YAML of a page.
fn example(page: &str) -> Option<&str> {
    Some(page.split_once("```yaml\n")?.1.split_once("```")?.0)
}

/// Needs an engine for images, or a node that runs pods.
fn can_not_be_tried(command: &str) -> bool {
    ["docker ", "curl "].iter().any(|start| command.starts_with(start)) || command.contains("port-forward")
}

/// A shell as an operator has it: kubectl and helm on the path, in a checkout.
struct Shell {
    checkout: tempfile::TempDir,
    path: OsString,
    kubeconfig: String,
}

impl Shell {
    fn new(cluster: &Cluster) -> Result<Self> {
        let checkout = tempfile::tempdir()?;
        output(Command::new("cp").arg("-r").arg(deploy()).arg(checkout.path().join("deploy")))?;
        let directory = |tool: &Path| tool.parent().map(Path::to_owned).context("a directory");
        let tools = [directory(&assets::find("kubectl")?)?, directory(&assets::helm()?)?];
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(tools.into_iter().chain(std::env::split_paths(&usual)))?;
        Ok(Self { checkout, path, kubeconfig: cluster.kubeconfig()?.display().to_string() })
    }

    fn run(&self, command: &str) -> Result<String> {
        let mut shell = Command::new("sh");
        shell.args(["-euc", command]).current_dir(self.checkout.path());
        // Whoever runs the tests may have a helm of their own.
        let homes = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        homes.iter().for_each(|home| _ = shell.env(home, self.checkout.path().join("helm")));
        output(shell.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig))
    }
}

/// The image and the arguments of the controller that is installed.
async fn installed(deployments: &Api<Deployment>) -> Result<Option<(String, Vec<String>)>> {
    let found = deployments.get_opt(NAME).await?;
    let container = found.and_then(|found| found.spec.template.spec?.containers.into_iter().next());
    Ok(container.map(|main| (main.image.unwrap_or_default(), main.args.unwrap_or_default())))
}

async fn has_argument(deployments: &Api<Deployment>, argument: &str) -> Result<bool> {
    let (image, arguments) = installed(deployments).await?.context("nothing is installed")?;
    assert_eq!(image, "registry.example.com/windlass:0.1.0");
    Ok(arguments.iter().any(|one| one == argument))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_for_operators_says_can_be_typed() -> Result<()> {
    let page = std::fs::read_to_string(deploy().join("../docs/kubernetes.md"))?;
    let cluster = Cluster::start().await?;
    // Who removes what is left in a namespace that is deleted.
    let _manager = cluster.controller_manager(&["namespace-controller"], "")?;
    let client = cluster.client().await?;
    let shell = Shell::new(&cluster)?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let commands = commands(&page).into_iter().filter(|command| !can_not_be_tried(command));
    let (plain, helm): (Vec<_>, Vec<_>) = commands.partition(|command| command.contains("deploy/manifests"));

    let mut done = Vec::new();
    for command in &helm {
        let said = shell.run(command)?;
        if command.starts_with("helm install") {
            assert!(has_argument(&deployments, "--manage=opted-in").await?);
            // What the controller would do, and the user.
            let lease = serde_json::from_value(json!({
                "metadata": {"name": NAME}, "spec": {"holderIdentity": "first"},
            }))?;
            Api::<Lease>::namespaced(client.clone(), NAMESPACE)
                .create(&PostParams::default(), &lease)
                .await?;
            std::fs::write(shell.checkout.path().join("job.yaml"), example(&page).context("a Job")?)?;
            shell.run("kubectl apply -f job.yaml")?;
            done.push("install");
        } else if command.contains("get lease") {
            assert_eq!(said, "first");
            done.push("leader");
        } else if command.contains("manage=all") {
            assert!(has_argument(&deployments, "--manage=all").await?);
            done.push("replace");
        } else if command.contains("manage=opted-in") {
            assert!(has_argument(&deployments, "--manage=opted-in").await?);
            done.push("roll back");
        } else if command.contains("get jobs") {
            assert_eq!(said, "default/hello\n");
            done.push("who is left");
        } else if command.starts_with("helm uninstall") {
            assert_eq!(installed(&deployments).await?, None);
            done.push("uninstall");
        }
    }
    assert_eq!(done, ["install", "leader", "replace", "roll back", "who is left", "uninstall"], "{helm:#?}");

    assert_eq!(plain.len(), 3, "{plain:#?}");
    shell.run(&plain[0])?;
    shell.run(&plain[1])?;
    assert!(has_argument(&deployments, "--manage=opted-in").await?);
    shell.run(&plain[2])?;
    assert_eq!(installed(&deployments).await?, None);
    Ok(())
}
