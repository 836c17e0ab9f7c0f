//! The command line: what can be asked for, and how it is explained.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_api::Gates;

use crate::{durations, run, server};

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

  # Keep the output of all pods
  windlass run --keep out job.yaml

Exit codes:
  0    all Jobs are Complete
  1    a Job has Failed
  2    the command line or the manifest is wrong; nothing was run
  130  interrupted; pods were ended gracefully";

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
  kubectl create clusterrolebinding ci --clusterrole view --user ci";

/// Kubernetes Jobs, complete and exact, on this machine.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the Jobs of a manifest on this machine, show what happens, and exit when all have finished
    #[command(after_help = EXAMPLES)]
    Run(RunArgs),
    /// Serve the Kubernetes API for batch work on this machine, and run its Jobs, until stopped
    #[command(after_help = SERVER_EXAMPLES)]
    Server(ServerArgs),
    /// Make a bearer token for a user of a server on this machine, and print it
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(TokenArgs),
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

    /// Delay before a failed pod is replaced; doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    backoff_base: Duration,

    /// The longest such delay
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = durations::parse)]
    backoff_max: Duration,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    /// Evict this many random running pods, one at a time, to see how the Jobs take it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    disrupt: u32,

    /// Run the command of any image on this machine, without the image
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// Keep the output of the pods below this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
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

    /// How many nodes run pods on this machine; 0 when something else plays the kubelets
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,

    /// Delay before a failed pod is replaced; doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    backoff_base: Duration,

    /// The longest such delay
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = durations::parse)]
    backoff_max: Duration,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,

    /// Run the command of any image on this machine, without the image
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// The data directory of the server [default: ~/.local/share/windlass]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// For whom
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    user: String,

    /// A group they are in; can be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    groups: Vec<String>,
}

/// How to print the final Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Json,
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
        Command::Server(args) => server::main(args.into()),
        Command::Token(TokenArgs { data_dir, user, groups }) => {
            server::token(&server::TokenOptions { data_dir, user, groups })
        }
    }
}

impl From<RunArgs> for run::Options {
    fn from(args: RunArgs) -> Self {
        Self {
            file: args.file,
            prints_json: matches!(args.output, Some(Output::Json)),
            backoff_base: args.backoff_base,
            backoff_max: args.backoff_max,
            gates: args.feature_gates,
            disrupt: args.disrupt,
            runs_any_image_on_host: matches!(args.runtime, Some(Runtime::Host)),
            keep: args.keep,
        }
    }
}

impl From<ServerArgs> for server::Options {
    fn from(args: ServerArgs) -> Self {
        Self {
            data_dir: args.data_dir,
            listen: args.listen,
            allows_remote: args.allow_remote,
            kubeconfig: args.kubeconfig,
            nodes: args.nodes,
            gates: args.feature_gates,
            backoff_base: args.backoff_base,
            backoff_max: args.backoff_max,
            runs_any_image_on_host: matches!(args.runtime, Some(Runtime::Host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_reach_the_options() {
        let line = "windlass run -o json --backoff-base 100ms --backoff-max 1m30s --disrupt 2 --runtime host --keep d \
                    --feature-gates JobPodFailurePolicy=false f.yaml";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Run(args) = command else { panic!("{command:?}") };
        let expected = run::Options {
            file: "f.yaml".into(),
            prints_json: true,
            backoff_base: Duration::from_millis(100),
            backoff_max: Duration::from_secs(90),
            gates: Gates { job_pod_failure_policy: false, ..Gates::default() },
            disrupt: 2,
            runs_any_image_on_host: true,
            keep: Some("d".into()),
        };
        assert_eq!(run::Options::from(args), expected);
    }

    #[test]
    fn flags_of_a_server_reach_its_options() {
        let line = "windlass server --data-dir d --listen [::1]:1 --allow-remote --kubeconfig k --nodes 0 \
                    --backoff-base 1s --backoff-max 2s --feature-gates JobPodFailurePolicy=false --runtime host";
        let command = Cli::try_parse_from(line.split_whitespace()).expect("parses").command;
        let Command::Server(args) = command else { panic!("{command:?}") };
        let expected = server::Options {
            data_dir: Some("d".into()),
            listen: "[::1]:1".parse().expect("an address"),
            allows_remote: true,
            kubeconfig: Some("k".into()),
            nodes: 0,
            gates: Gates { job_pod_failure_policy: false, ..Gates::default() },
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(2),
            runs_any_image_on_host: true,
        };
        assert_eq!(server::Options::from(args), expected);
    }
}
