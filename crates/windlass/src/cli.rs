//! The command line: what can be asked for, and how it is explained.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

mod look;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use windlass_api::Gates;
use windlass_api::quantity::Quantity;
use windlass_apiserver::auth::identity::{NODE_PREFIX, NODES};
use windlass_node::isolation::Wanted;
use windlass_node::pressure::Policy;
use windlass_node::runtimes::LogLimits;

use crate::{controller, durations, evictions, explain, images, lint, node, run, server, shutdown, why};
use look::{CompletionsArgs, ExplainArgs, LintArgs, ManArgs, WhyArgs};

const EXAMPLES: &str = "\
Examples:
  # Run a Job; exits 0 when it completes, 1 when it fails
  windlass run job.yaml

  # Retry soon, and see how the policy of the Job meets two evictions
  windlass run --backoff-base 100ms --disrupt 2 examples/retry-and-ignore.yaml

  # A manifest that was written for a cluster, without its images
  windlass run --runtime host job.yaml

  # Which indexes have failed?
  windlass run -o json job.yaml | jq -r .status.failedIndexes

  # Show what failed pods printed; keep the output of all pods
  windlass run --logs failed --keep out job.yaml

  # Only check it
  windlass run --dry-run job.yaml

Exit codes:
  0    all Jobs are Complete
  1    a Job has Failed
  2    the command line or the manifest is wrong; nothing was run
  3    timed out; pods were ended gracefully
  130  interrupted; pods were ended gracefully";

const ALL_EXAMPLES: &str = "\
Examples:
  # Run a Job on this machine, and see why it ends as it does
  windlass run job.yaml

  # What does its failure policy do, and is it what was meant?
  windlass explain job.yaml
  windlass lint job.yaml

  # A server for kubectl; and why a Job there ended as it did
  windlass server
  windlass why my-job

Every command has examples of its own: windlass run --help";

const SERVER_EXAMPLES: &str = "\
Examples:
  # Start a server, and use it from another terminal
  windlass server --kubeconfig ~/windlass.yaml
  KUBECONFIG=~/windlass.yaml kubectl create -f job.yaml

  # A server for a test: its own directory, any free port
  windlass server --data-dir /tmp/w --listen 127.0.0.1:0

Exit codes:
  0    stopped by SIGINT or SIGTERM; pods were ended gracefully
  1    the server could not start
  2    the command line is wrong; nothing was started";

const TOKEN_EXAMPLES: &str = "\
Examples:
  # Somebody who may look at everything
  windlass token --user ci
  kubectl create clusterrolebinding ci --clusterrole view --user ci

  # A node, which may change nothing but what is its own
  windlass token --node two";

const CONTROLLER_EXAMPLES: &str = "\
Examples:
  # In a cluster, beside the built-in controller: Jobs with managedBy: windlass.dev/job-controller
  windlass controller

  # From outside, in place of the built-in controller, in one namespace
  windlass controller --kubeconfig ~/.kube/config --manage all --namespace batch

Exit codes:
  0    stopped by SIGINT or SIGTERM; what was under way has ended
  1    the controller could not start
  2    the command line is wrong; nothing was started";

const NODE_EXAMPLES: &str = "\
Examples:
  # A second node for a server on this machine, with a token of its own
  windlass token --node two > two.token
  windlass node --name two --server https://127.0.0.1:6443 --token-file two.token \\
      --certificate-authority ~/.local/share/windlass/pki/ca.crt --data-dir /var/lib/windlass-two

  # The same with the administrator's kubeconfig
  windlass node --name two --kubeconfig ~/.local/share/windlass/kubeconfig --data-dir /tmp/two

Exit codes:
  0    stopped by SIGINT or SIGTERM; pods were ended gracefully
  1    the node could not start
  2    the command line is wrong; nothing was started";

const SHUTDOWN_EXAMPLES: &str = "\
Examples:
  # End all pods of a node, and let it take no others until it is started again
  windlass shutdown node-1

  # It is not to be switched off after all
  windlass shutdown --cancel node-1

Exit codes:
  0    no pod runs there any more; with --cancel: it takes pods again
  1    the server could not be asked, has no such node, or it was not done in time
  2    the command line is wrong";

/// Kubernetes Jobs, complete and exact, on this machine.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100, after_help = ALL_EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the Jobs of a manifest on this machine, show what happens, and exit when all have finished
    #[command(after_help = EXAMPLES)]
    Run(RunArgs),
    /// Check manifests: mistakes, surprises of the failure policy, what a stock cluster would ignore
    #[command(after_help = look::LINT_EXAMPLES)]
    Lint(LintArgs),
    /// Show what the failure policy of a Job does: for every failure, for one, or for a sequence of them
    #[command(after_help = look::EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Show why a Job on a server or in a cluster is where it is: every attempt and every verdict
    #[command(after_help = look::WHY_EXAMPLES)]
    Why(WhyArgs),
    /// Serve the Kubernetes API for batch work on this machine, and run its Jobs, until stopped
    #[command(after_help = SERVER_EXAMPLES)]
    Server(ServerArgs),
    /// Control the Jobs of a Kubernetes cluster until stopped
    #[command(after_help = CONTROLLER_EXAMPLES)]
    Controller(ControllerArgs),
    /// Run pods of a server on this machine, as one more node, until stopped
    #[command(after_help = NODE_EXAMPLES)]
    Node(NodeArgs),
    /// Have a node of a server end its pods, the least important first, as before its machine is switched off
    #[command(after_help = SHUTDOWN_EXAMPLES)]
    Shutdown(ShutdownArgs),
    /// Make a bearer token for a user of a server on this machine, and print it
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(TokenArgs),
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = look::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command
    #[command(after_help = look::MAN_EXAMPLES)]
    Man(ManArgs),
}

// No comment for rustdoc here: clap would take it for the description of the command that has these flags.
#[derive(Debug, Args)]
struct BackoffArgs {
    /// Delay before a failed pod is replaced; doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    backoff_base: Duration,

    /// The longest such delay
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = durations::parse)]
    backoff_max: Duration,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The manifest: YAML or JSON with one or more Jobs, and the ConfigMaps, Secrets and PriorityClasses they need; - is
    /// standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the final Job on standard output (a List when there are several)
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,

    #[command(flatten)]
    backoff: BackoffArgs,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    /// Evict this many random running pods, one at a time, to see how the Jobs take it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    disrupt: u32,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    images: ImageArgs,

    /// Keep the output of the pods below this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Show the output of pods when they end, with their names in front
    #[arg(long, value_name = "WHICH", default_value = "none")]
    logs: Logs,

    /// How many pods of each Job may run at a time, whatever its manifest says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    parallelism: Option<u32>,

    /// End all pods and give up after this time
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    timeout: Option<Duration>,

    /// How many nodes run the pods; all are this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    nodes: u32,

    /// Check everything that can be checked, and run nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Where to keep objects, certificates, tokens and logs [default: ~/.local/share/windlass]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Where to listen; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    /// Listen also on an address that other machines can reach
    #[arg(long)]
    allow_remote: bool,

    /// Where to write how to reach the server, for its administrator alone [default: kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Where to write a line for each write [default: audit.log in the data directory]
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// Size in MiB at which the audit file is put aside
    #[arg(long, value_name = "MIB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    audit_log_maxsize: u64,

    /// How many audit files are kept aside
    #[arg(long, value_name = "N", default_value_t = 10)]
    audit_log_maxbackup: usize,

    /// How many nodes run pods on this machine; 0 when something else plays the kubelets
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,

    /// Serve the API and nothing else: no controllers, no scheduler, no nodes. For the tests of somebody's own
    /// controller
    #[arg(long, conflicts_with = "nodes")]
    api_only: bool,

    #[command(flatten)]
    backoff: BackoffArgs,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    evictions: EvictionArgs,

    #[command(flatten)]
    logs: LogArgs,

    #[command(flatten)]
    images: ImageArgs,
}

#[derive(Debug, Args)]
struct ControllerArgs {
    /// How to reach the cluster [default: the service account of the pod that this runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Which Jobs are ours: those that ask for it, or all that ask for no other controller
    #[arg(long, value_name = "WHICH", default_value = "opted-in")]
    manage: Manage,

    /// Only Jobs of this namespace [default: all namespaces]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    backoff: BackoffArgs,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    /// Writes to the API server that may be under way at the same time; fewer while it answers 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = writes)]
    concurrent_writes: usize,

    /// Where to answer /livez, /readyz and /metrics; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen_health: SocketAddr,

    /// Of several replicas only one works: the one that holds a Lease
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: bool,

    /// How long replicas wait for a leader that is silent
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = durations::parse)]
    leader_elect_lease_duration: Duration,

    /// How long a leader tries to renew its lease before it stops writing
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    leader_elect_renew_deadline: Duration,

    /// How long to wait between tries
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = durations::parse)]
    leader_elect_retry_period: Duration,

    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "windlass-job-controller")]
    leader_elect_resource_name: String,

    /// The namespace of the Lease [default: that of the pod, or of the kubeconfig's context]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
}

#[derive(Debug, Args)]
struct NodeArgs {
    /// How to reach the server
    #[arg(long, value_name = "FILE", conflicts_with = "server", required_unless_present = "server")]
    kubeconfig: Option<PathBuf>,

    /// The address of the server, such as https://127.0.0.1:6443
    #[arg(long, value_name = "URL", requires = "certificate_authority")]
    server: Option<String>,

    /// A token for the server
    #[arg(long, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true, requires = "server")]
    #[arg(allow_hyphen_values = true)]
    token: Option<String>,

    /// A file with the token
    #[arg(long, value_name = "FILE", requires = "server", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// The certificate that the server's is signed by
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    /// The name of the node [default: that of this machine]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Where to keep logs and volumes
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// How long pods may take to end when the node stops
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    shutdown_grace_period: Duration,

    /// The last part of it, for critical pods
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    shutdown_grace_period_critical_pods: Duration,

    #[command(flatten)]
    evictions: EvictionArgs,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    /// How many processes and threads a container may have [default: as many as the machine allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pod_pids_limit: Option<i64>,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    logs: LogArgs,

    #[command(flatten)]
    images: ImageArgs,
}

#[derive(Debug, Args)]
struct ShutdownArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,

    /// Let it take pods again
    #[arg(long)]
    cancel: bool,

    /// How long to wait until it is done
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = durations::parse)]
    timeout: Duration,

    /// How to reach the server [default: as kubectl does, then the server on this machine]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl From<ShutdownArgs> for shutdown::Options {
    fn from(args: ShutdownArgs) -> Self {
        let ShutdownArgs { node, cancel: is_cancelled, timeout, kubeconfig } = args;
        Self { node, is_cancelled, timeout, kubeconfig }
    }
}

/// Where images come from.
#[derive(Debug, Args)]
struct ImageArgs {
    /// Ask this address before a registry: REGISTRY=URL, such as docker.io=https://mirror.example; * is every registry.
    /// Plain HTTP on this machine only. May be given more than once
    #[arg(long, value_name = "MIRROR")]
    image_mirror: Vec<String>,

    /// Take images from the OCI layouts and `docker save` archives in this directory, before any registry is asked. May be
    /// given more than once
    #[arg(long, value_name = "DIR")]
    image_dir: Vec<PathBuf>,
}

// No comment for rustdoc here, as above.
#[derive(Debug, Args)]
struct HostArgs {
    /// Run the command of any image on this machine, without the image
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// Keep containers of the host runtime apart from this machine: `pid` (they see no other processes), `files` (what they
    /// write outside volumes goes with them), both, `auto` (as much as the kernel allows) or `none`. The default of `run` is
    /// `none`, for its results have to stay; that of `server` and `node` is `auto`
    #[arg(long, value_name = "KINDS")]
    isolation: Option<Wanted>,
}

// No comment for rustdoc here, as above.
#[derive(Debug, Args)]
struct LogArgs {
    /// Put the log of a container aside when it has this size
    #[arg(long, value_name = "SIZE", default_value = "10Mi", value_parser = log_size)]
    container_log_max_size: u64,

    /// How many files to keep of the log of a container, at least 2
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=100))]
    container_log_max_files: u64,
}

impl From<LogArgs> for LogLimits {
    fn from(args: LogArgs) -> Self {
        Self { bytes_max: args.container_log_max_size, files_max: args.container_log_max_files }
    }
}

// No comment for rustdoc here, as above.
#[derive(Debug, Args)]
struct EvictionArgs {
    /// Evict pods when less than 100 MiB of memory, 10 % of the disk, 15 % of that of images or 5 % of the inodes of either
    /// are left
    #[arg(long)]
    evict: bool,

    /// Evict pods when less than this is left, instead: memory.available<100Mi,nodefs.available<10%. There are
    /// memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available
    #[arg(long, value_name = "THRESHOLDS")]
    eviction_hard: Option<String>,

    /// The same, when it was so for some time
    #[arg(long, value_name = "THRESHOLDS", requires = "eviction_soft_grace_period")]
    eviction_soft: Option<String>,

    /// That time: memory.available=1m30s
    #[arg(long, value_name = "DURATIONS", requires = "eviction_soft")]
    eviction_soft_grace_period: Option<String>,

    /// How long pods may take to end that soft thresholds evict
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = durations::parse)]
    eviction_max_pod_grace_period: Duration,

    /// Once evicting, go on until this much more than the threshold is left: nodefs.available=500Mi
    #[arg(long, value_name = "AMOUNTS")]
    eviction_minimum_reclaim: Option<String>,

    /// How long the node shows that it is short of something after the last time that it was
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = durations::parse)]
    eviction_pressure_transition_period: Duration,
}

impl EvictionArgs {
    fn policy(self) -> Result<Option<Policy>, String> {
        let flags = evictions::Flags {
            is_wanted: self.evict,
            hard: self.eviction_hard,
            soft: self.eviction_soft,
            soft_grace: self.eviction_soft_grace_period,
            reclaim: self.eviction_minimum_reclaim,
            soft_grace_max: self.eviction_max_pod_grace_period,
            transition: self.eviction_pressure_transition_period,
        };
        flags.policy()
    }
}

fn log_size(text: &str) -> Result<u64, String> {
    let size = text.parse::<Quantity>().map_err(|_| "not a size such as 10Mi".to_owned())?;
    u64::try_from(size.value()).ok().filter(|size| *size > 0).ok_or_else(|| "not larger than 0".to_owned())
}

impl From<ImageArgs> for images::Options {
    fn from(args: ImageArgs) -> Self {
        Self { mirrors: args.image_mirror, directories: args.image_dir }
    }
}

/// Which Jobs a controller manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Manage {
    /// Jobs with `managedBy: windlass.dev/job-controller`.
    OptedIn,
    /// These, and all that the built-in controller would manage: it must be off.
    All,
}

/// HTTP/2 allows 100 requests at a time on a connection.
fn writes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(writes @ 1..=100) => Ok(writes),
        Ok(_) | Err(_) => Err("not a number from 1 to 100".to_owned()),
    }
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// The data directory of the server [default: ~/.local/share/windlass]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// For whom
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "node",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    user: Option<String>,

    /// For the node of this name: its user is system:node:NAME, its group system:nodes
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["user", "groups"],
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    node: Option<String>,

    /// A group they are in; can be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    groups: Vec<String>,
}

impl From<TokenArgs> for server::TokenOptions {
    fn from(TokenArgs { data_dir, user, node, groups }: TokenArgs) -> Self {
        match node {
            Some(node) => {
                Self { data_dir, user: format!("{NODE_PREFIX}{node}"), groups: vec![NODES.to_owned()] }
            }
            None => Self { data_dir, user: user.unwrap_or_default(), groups },
        }
    }
}

/// How to print the final Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Json,
    Yaml,
}

/// Whose output to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Logs {
    /// Nobody's.
    None,
    /// That of pods that have failed.
    Failed,
    /// That of all pods.
    All,
}

/// How to run containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    Host,
}

fn gates_help() -> String {
    let defaults = Gates::default().to_string().replace(',', "\n  ");
    format!("Switch features on or off: Name=true,Name=false. The gates and their defaults:\n  {defaults}")
}

/// Reads the command line and does what it asks for. Usage errors exit with 2.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::main(args.into()),
        Command::Lint(args) => lint::main(&args.into()),
        Command::Explain(args) => match explain::Options::try_from(args) {
            Ok(options) => explain::main(&options),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(crate::EXIT_BAD_INPUT)
            }
        },
        Command::Why(args) => why::main(&args.into()),
        Command::Completions(args) => args.print(&mut Cli::command()),
        Command::Man(args) => args.write(&Cli::command()),
        Command::Server(args) => args.try_into().map_or_else(|error| refuse(&error), server::main),
        Command::Controller(args) => controller::main(args.into()),
        Command::Node(args) => {
            args.try_into().map_or_else(|error| refuse(&error), |options| node::main(&options))
        }
        Command::Shutdown(args) => shutdown::main(&args.into()),
        Command::Token(args) => server::token(&args.into()),
    }
}

fn refuse(error: &String) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(crate::EXIT_BAD_INPUT)
}

impl From<RunArgs> for run::Options {
    fn from(args: RunArgs) -> Self {
        Self {
            file: args.file,
            output: args.output.map(|output| match output {
                Output::Json => run::Output::Json,
                Output::Yaml => run::Output::Yaml,
            }),
            backoff_base: args.backoff.backoff_base,
            backoff_max: args.backoff.backoff_max,
            gates: args.feature_gates,
            disrupt: args.disrupt,
            runs_any_image_on_host: matches!(args.host.runtime, Some(Runtime::Host)),
            isolation: args.host.isolation.unwrap_or_default(),
            images: args.images.into(),
            keep: args.keep,
            logs: match args.logs {
                Logs::None => run::Logs::None,
                Logs::Failed => run::Logs::Failed,
                Logs::All => run::Logs::All,
            },
            parallelism: args.parallelism,
            timeout: args.timeout,
            nodes: args.nodes,
            is_dry: args.dry_run,
        }
    }
}

impl TryFrom<ServerArgs> for server::Options {
    type Error = String;

    fn try_from(args: ServerArgs) -> Result<Self, String> {
        Ok(Self {
            data_dir: args.data_dir,
            listen: args.listen,
            allows_remote: args.allow_remote,
            kubeconfig: args.kubeconfig,
            audit_path: args.audit_log_path,
            audit_bytes_max: args.audit_log_maxsize << 20,
            audit_backups: args.audit_log_maxbackup,
            nodes: if args.api_only { 0 } else { args.nodes },
            is_api_only: args.api_only,
            gates: args.feature_gates,
            backoff_base: args.backoff.backoff_base,
            backoff_max: args.backoff.backoff_max,
            runs_any_image_on_host: matches!(args.host.runtime, Some(Runtime::Host)),
            log_limits: args.logs.into(),
            isolation: args.host.isolation.unwrap_or(Wanted::Most),
            eviction: args.evictions.policy()?,
            images: args.images.into(),
        })
    }
}

impl TryFrom<NodeArgs> for node::Options {
    type Error = String;

    fn try_from(args: NodeArgs) -> Result<Self, String> {
        let token = match (args.token, args.token_file) {
            (Some(token), _) => token,
            (None, Some(file)) => std::fs::read_to_string(&file)
                .map(|text| text.trim().to_owned())
                .map_err(|error| format!("read token {}: {error}", file.display()))?,
            (None, None) => String::new(),
        };
        let access = match (args.kubeconfig, args.server, args.certificate_authority) {
            (Some(file), _, _) => node::Access::Kubeconfig(file),
            (None, Some(server), Some(ca)) => node::Access::Token { server, token, ca },
            (None, _, _) => {
                return Err("give --kubeconfig, or --server and --certificate-authority".to_owned());
            }
        };
        Ok(Self {
            access,
            name: args.name,
            data_dir: args.data_dir,
            shutdown_grace: args.shutdown_grace_period,
            shutdown_grace_critical: args.shutdown_grace_period_critical_pods,
            eviction: args.evictions.policy()?,
            gates: args.feature_gates,
            pids_max: args.pod_pids_limit,
            runs_any_image_on_host: matches!(args.host.runtime, Some(Runtime::Host)),
            log_limits: args.logs.into(),
            isolation: args.host.isolation.unwrap_or(Wanted::Most),
            images: args.images.into(),
        })
    }
}

impl From<ControllerArgs> for controller::Options {
    fn from(args: ControllerArgs) -> Self {
        Self {
            kubeconfig: args.kubeconfig,
            manages_all: args.manage == Manage::All,
            namespace: args.namespace,
            gates: args.feature_gates,
            backoff_base: args.backoff.backoff_base,
            backoff_max: args.backoff.backoff_max,
            concurrent_writes: args.concurrent_writes,
            listen_health: args.listen_health,
            leader_elect: args.leader_elect,
            lease: controller::LeaseOptions {
                namespace: args.leader_elect_resource_namespace,
                name: args.leader_elect_resource_name,
                lease_duration: args.leader_elect_lease_duration,
                renew_deadline: args.leader_elect_renew_deadline,
                retry_period: args.leader_elect_retry_period,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_node::pressure::{Level, Signal, Threshold};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_reach_the_options() {
        let line = "windlass run -o json --backoff-base 100ms --backoff-max 1m30s --disrupt 2 --runtime host --isolation auto --keep d \
                    --logs failed --parallelism 3 --timeout 1h --nodes 2 --dry-run --feature-gates JobPodFailurePolicy=false f.yaml";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Run(args) = command else { panic!("{command:?}") };
        let expected = run::Options {
            file: "f.yaml".into(),
            output: Some(run::Output::Json),
            backoff_base: Duration::from_millis(100),
            backoff_max: Duration::from_secs(90),
            gates: Gates { job_pod_failure_policy: false, ..Gates::default() },
            disrupt: 2,
            runs_any_image_on_host: true,
            isolation: Wanted::Most,
            images: images::Options::default(),
            keep: Some("d".into()),
            logs: run::Logs::Failed,
            parallelism: Some(3),
            timeout: Some(Duration::from_secs(3600)),
            nodes: 2,
            is_dry: true,
        };
        assert_eq!(run::Options::from(args), expected);
    }

    #[test]
    fn flags_of_a_server_reach_its_options() {
        let line = "windlass server --data-dir d --listen [::1]:1 --allow-remote --kubeconfig k --nodes 0 \
                    --audit-log-path a --audit-log-maxsize 3 --audit-log-maxbackup 4 \
                    --backoff-base 1s --backoff-max 2s --feature-gates JobPodFailurePolicy=false --runtime host --isolation pid --evict \
                    --eviction-pressure-transition-period 9s --container-log-max-size 1Ki --container-log-max-files 2 --image-mirror a=https://b --image-mirror c=https://d --image-dir e";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Server(args) = command else { panic!("{command:?}") };
        let expected = server::Options {
            data_dir: Some("d".into()),
            listen: "[::1]:1".parse().expect("an address"),
            allows_remote: true,
            kubeconfig: Some("k".into()),
            audit_path: Some("a".into()),
            audit_bytes_max: 3 << 20,
            audit_backups: 4,
            nodes: 0,
            is_api_only: false,
            gates: Gates { job_pod_failure_policy: false, ..Gates::default() },
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(2),
            runs_any_image_on_host: true,
            log_limits: LogLimits { bytes_max: 1024, files_max: 2 },
            isolation: "pid".parse().expect("a kind"),
            eviction: Some(Policy { transition: Duration::from_secs(9), ..Policy::default() }),
            images: images::Options {
                mirrors: vec!["a=https://b".into(), "c=https://d".into()],
                directories: vec!["e".into()],
            },
        };
        assert_eq!(server::Options::try_from(args), Ok(expected));
    }

    #[test]
    fn flags_of_a_node_reach_its_options() {
        let line = "windlass node --server https://s:1 --token -t --certificate-authority ca --name n --data-dir d \
                    --shutdown-grace-period 9s --shutdown-grace-period-critical-pods 2s --evict --pod-pids-limit 7 \
                    --feature-gates PodDisruptionConditions=false --runtime host --isolation pid";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Node(args) = command else { panic!("{command:?}") };
        let expected = node::Options {
            access: node::Access::Token { server: "https://s:1".into(), token: "-t".into(), ca: "ca".into() },
            name: Some("n".into()),
            data_dir: "d".into(),
            shutdown_grace: Duration::from_secs(9),
            shutdown_grace_critical: Duration::from_secs(2),
            eviction: Some(Policy::default()),
            gates: Gates { pod_disruption_conditions: false, ..Gates::default() },
            pids_max: Some(7),
            runs_any_image_on_host: true,
            log_limits: LogLimits::default(),
            isolation: "pid".parse().expect("a kind"),
            images: images::Options::default(),
        };
        assert_eq!(node::Options::try_from(args), Ok(expected));
        for bad in [
            "windlass node --data-dir d",
            "windlass node --data-dir d --server https://s:1 --token t",
            "windlass node --data-dir d --kubeconfig k --eviction-soft memory.available<1Gi",
        ] {
            assert!(Cli::try_parse_from(bad.split_whitespace()).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_of_evictions_reach_the_policy() {
        let line = "windlass node --kubeconfig k --data-dir d --eviction-hard pid.available<1 --eviction-soft pid.available<2 \
                    --eviction-soft-grace-period pid.available=3s --eviction-max-pod-grace-period 4s \
                    --eviction-minimum-reclaim pid.available=5 --eviction-pressure-transition-period 6s";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Node(args) = command else { panic!("{command:?}") };
        let (signal, seconds) = (Signal::Pids, Duration::from_secs);
        let expected = Policy {
            thresholds: vec![
                Threshold::hard(signal, Level::Value(1)),
                Threshold { signal, level: Level::Value(2), grace: Some(seconds(3)) },
            ],
            reclaim: vec![(signal, Level::Value(5))],
            soft_grace_max: seconds(4),
            transition: seconds(6),
        };
        assert_eq!(node::Options::try_from(args).expect("options").eviction, Some(expected));
    }

    #[test]
    fn what_a_server_runs_is_kept_apart_unless_somebody_says_otherwise_and_what_a_run_runs_is_not() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Run(args) = parse("windlass run f.yaml") else { panic!("a run") };
        assert_eq!(run::Options::from(args).isolation, Wanted::default());
        let Command::Server(args) = parse("windlass server") else { panic!("a server") };
        assert_eq!(server::Options::try_from(args).expect("options").isolation, Wanted::Most);
        let Command::Node(args) = parse("windlass node --kubeconfig k --data-dir d") else {
            panic!("a node")
        };
        assert_eq!(node::Options::try_from(args).expect("options").isolation, Wanted::Most);
    }

    #[test]
    fn flags_of_a_controller_reach_its_options() {
        let line = "windlass controller --kubeconfig k --manage all --namespace n --backoff-base 1s --backoff-max 2s \
                    --feature-gates JobPodFailurePolicy=false --concurrent-writes 7 --listen-health [::1]:1 \
                    --leader-elect=false --leader-elect-lease-duration 6s --leader-elect-renew-deadline 5s \
                    --leader-elect-retry-period 4s --leader-elect-resource-name l \
                    --leader-elect-resource-namespace m";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Controller(args) = command else { panic!("{command:?}") };
        let seconds = Duration::from_secs;
        let expected = controller::Options {
            kubeconfig: Some("k".into()),
            manages_all: true,
            namespace: Some("n".into()),
            gates: Gates { job_pod_failure_policy: false, ..Gates::default() },
            backoff_base: seconds(1),
            backoff_max: seconds(2),
            concurrent_writes: 7,
            listen_health: "[::1]:1".parse().expect("an address"),
            leader_elect: false,
            lease: controller::LeaseOptions {
                namespace: Some("m".into()),
                name: "l".into(),
                lease_duration: seconds(6),
                renew_deadline: seconds(5),
                retry_period: seconds(4),
            },
        };
        assert_eq!(controller::Options::from(args), expected);
    }
}
