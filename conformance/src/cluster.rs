//! A real kube-apiserver on a real etcd, on loopback, for as long as the value lives.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::assets;
use crate::kubeconfig;
use crate::pki;
use crate::port::Port;
use crate::process::Process;

/// How long a program may take until it is ready, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The administrator's token. The cluster is reachable from this machine only and lives for a test.
const ADMIN_TOKEN: &str = "reference-admin";

/// How the API server differs from its defaults.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `name=true,other=false`.
    pub feature_gates: String,
    /// More flags for kube-apiserver; a flag given here wins.
    pub apiserver: Vec<String>,
}

/// A running kube-apiserver and its etcd.
#[derive(Debug)]
pub struct Cluster {
    authority: String,
    apiserver: Process,
    etcd: Process,
    /// That of kube-apiserver, and those of etcd for clients and peers.
    ports: [Port; 3],
    directory: TempDir,
}

impl Cluster {
    /// Starts one with the defaults of the release.
    pub async fn start() -> Result<Self> {
        Self::start_with(&Options::default()).await
    }

    /// Starts one and waits until it is ready.
    pub async fn start_with(options: &Options) -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("windlass-reference-").tempdir().context("make a directory")?;
        let root = directory.path();
        let authority = pki::write(root)?;
        fs::write(root.join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"))
            .context("write the tokens")?;
        let ports = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let [port, client, peer] = ports.each_ref().map(Port::number);
        let etcd = Process::start("etcd", &assets::find("etcd")?, &etcd_flags(root, client, peer), root)?;
        let flags = apiserver_flags(root, port, client, options);
        let apiserver = Process::start("kube-apiserver", &assets::find("kube-apiserver")?, &flags, root)?;
        let mut cluster = Self { authority, apiserver, etcd, ports, directory };
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// Its address: `https://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[0].number())
    }

    /// The certificate of its authority, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The administrator's bearer token.
    pub fn token(&self) -> &'static str {
        ADMIN_TOKEN
    }

    /// The directory of its files; the logs of its programs are there.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Process ids of kube-apiserver and etcd, for measurements.
    pub fn ids(&self) -> [u32; 2] {
        [self.apiserver.id(), self.etcd.id()]
    }

    /// Writes a kubeconfig with a bearer token and gives its path.
    pub fn kubeconfig_for(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("{name}.kubeconfig"));
        let authority = self.directory.path().join("ca.pem");
        kubeconfig::write(&path, &self.url(), &authority, name, token)?;
        Ok(path)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig_for("admin", ADMIN_TOKEN)
    }

    /// A configuration for kube, as the administrator.
    pub async fn config(&self) -> Result<kube::Config> {
        let file = Kubeconfig::read_from(self.kubeconfig()?).context("read our kubeconfig")?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // A repeated POST could make a second object: those who want to repeat do it themselves.
        config.default_retry = false;
        Ok(config)
    }

    /// A client of it, as the administrator.
    pub async fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.config().await?)?)
    }

    /// Starts kube-controller-manager with the named controllers, its limits on requests off.
    pub fn controller_manager(&self, controllers: &[&str], feature_gates: &str) -> Result<ControllerManager> {
        let gates = (!feature_gates.is_empty()).then(|| format!("--feature-gates={feature_gates}"));
        self.controller_manager_with(controllers, gates)
    }

    /// Starts kube-controller-manager with more flags.
    pub fn controller_manager_with(
        &self,
        controllers: &[&str],
        more: impl IntoIterator<Item = String>,
    ) -> Result<ControllerManager> {
        let held = Port::reserve()?;
        let port = held.number();
        let mut flags = vec![
            format!("--kubeconfig={}", self.kubeconfig()?.display()),
            format!("--controllers={}", controllers.join(",")),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.directory.path().join(format!("manager-{port}")).display()),
            format!(
                "--service-account-private-key-file={}",
                self.directory.path().join("accounts.key").display()
            ),
            format!("--root-ca-file={}", self.directory.path().join("ca.pem").display()),
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics".to_owned(),
            "--kube-api-qps=100000".to_owned(),
            "--kube-api-burst=100000".to_owned(),
        ];
        flags.extend(more);
        let program = assets::find("kube-controller-manager")?;
        let process = Process::start("kube-controller-manager", &program, &flags, self.directory.path())?;
        Ok(ControllerManager { process, port: held })
    }

    /// Starts kube-scheduler, its limits on requests off.
    pub fn scheduler(&self) -> Result<Scheduler> {
        let held = Port::reserve()?;
        let port = held.number();
        let kubeconfig = self.kubeconfig()?;
        let flags = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.directory.path().join(format!("scheduler-{port}")).display()),
            "--kube-api-qps=100000".to_owned(),
            "--kube-api-burst=100000".to_owned(),
        ];
        let program = assets::find("kube-scheduler")?;
        let process = Process::start("kube-scheduler", &program, &flags, self.directory.path())?;
        Ok(Scheduler { _process: process, _port: held })
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let until = Instant::now() + READY_WITHIN;
        loop {
            let asked = http::Request::get("/readyz").body(Vec::new()).context("ask for readiness")?;
            if client.request_text(asked).await.is_ok_and(|text| text == "ok") {
                return Ok(());
            }
            for process in [&mut self.etcd, &mut self.apiserver] {
                if let Some(status) = process.ended()? {
                    bail!("{status}: {}", process.last_words());
                }
            }
            if Instant::now() > until {
                bail!("not ready in {READY_WITHIN:?}: {}", self.apiserver.last_words());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A running kube-controller-manager.
#[derive(Debug)]
pub struct ControllerManager {
    process: Process,
    port: Port,
}

impl ControllerManager {
    /// Its process id, for measurements.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The port of its metrics and health.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

/// A running kube-scheduler, ended when dropped.
#[derive(Debug)]
pub struct Scheduler {
    _process: Process,
    _port: Port,
}

fn etcd_flags(root: &Path, port: u16, peer: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", root.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
    ]
}

fn apiserver_flags(root: &Path, port: u16, etcd_port: u16, options: &Options) -> Vec<String> {
    let file = |name: &str| root.join(name).display().to_string();
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("server.pem")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.pem")),
        format!("--cert-dir={}", file("apiserver")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--allow-privileged=true".to_owned(),
    ];
    if !options.feature_gates.is_empty() {
        flags.push(format!("--feature-gates={}", options.feature_gates));
    }
    flags.extend(options.apiserver.iter().cloned());
    flags
}
