//! The commands that look at Jobs and run none: their flags and examples.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use windlass_api::Gates;
use windlass_job::backoff::Backoff;

use super::gates_help;
use crate::{EXIT_FAILED, durations, explain, lint, why};

pub const LINT_EXAMPLES: &str = "\
Examples:
  # What is wrong with these?
  windlass lint jobs/*.yaml

  # Change what can be changed, and keep the comments
  windlass lint --fix job.yaml

  # For a code host, or a program
  windlass lint -o sarif jobs/*.yaml > windlass.sarif
  windlass lint -o json job.yaml | jq -r '.[].message'

Exit codes:
  0  there are no errors (with --strict: and no warnings)
  1  there are
  2  the command line is wrong, or a file can't be read";

pub const EXPLAIN_EXAMPLES: &str = "\
Examples:
  # What becomes of a failed pod, whatever it failed of?
  windlass explain job.yaml

  # What if the container main exits with 42? What if a node is drained meanwhile?
  windlass explain --exit-code 42 --container main job.yaml
  windlass explain --exit-code 143 --condition DisruptionTarget job.yaml

  # Three failures, an eviction, then success: when do pods start, and how does it end?
  windlass explain --timeline '1*3,DisruptionTarget,0' job.yaml

Exit codes:
  0  explained
  2  the command line or the manifest is wrong";

pub const WHY_EXAMPLES: &str = "\
Examples:
  # Why did it fail?
  windlass why my-job

  # Elsewhere
  windlass why --kubeconfig ~/.kube/config -n batch my-job

Exit codes:
  0  explained
  1  the server could not be asked, or has no such Job
  2  the command line is wrong";

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions zsh > ~/.zfunc/_windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish";

pub const MAN_EXAMPLES: &str = "\
Examples:
  windlass man ~/.local/share/man/man1
  man windlass-run";

#[derive(Debug, Args)]
pub struct LintArgs {
    /// The manifests; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// How to print what was found
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Change the files: errors and warnings that have one right answer, and draft policies
    #[arg(long)]
    fix: bool,

    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// A list of objects.
    Json,
    /// SARIF 2.1.0.
    Sarif,
}

impl From<LintArgs> for lint::Options {
    fn from(args: LintArgs) -> Self {
        Self {
            files: args.files,
            format: match args.output {
                Format::Text => lint::Format::Text,
                Format::Json => lint::Format::Json,
                Format::Sarif => lint::Format::Sarif,
            },
            is_strict: args.strict,
            fixes: args.fix,
            gates: args.feature_gates,
        }
    }
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The manifest; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only this Job of the manifest
    #[arg(long, value_name = "NAME")]
    job: Option<String>,

    /// Ask about a pod that exits with this code
    #[arg(long, value_name = "CODE")]
    exit_code: Option<i32>,

    /// Whose exit code it is [default: the first container]
    #[arg(long, value_name = "NAME")]
    container: Option<String>,

    /// Ask about a pod with this condition; can be given several times
    #[arg(long = "condition", value_name = "TYPE[=STATUS]")]
    conditions: Vec<String>,

    /// Ask about a pod with this status.reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// How pods end, one after the other; the last goes for all that follow: 1*3,main:42,DisruptionTarget,0
    #[arg(long, value_name = "OUTCOMES", conflicts_with_all = ["exit_code", "container", "conditions", "reason"])]
    timeline: Option<String>,

    /// How long each pod of the timeline runs
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = durations::parse)]
    pod_takes: Duration,

    /// Delay before a failed pod is replaced; doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    backoff_base: Duration,

    /// The longest such delay
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = durations::parse)]
    backoff_max: Duration,

    /// Switch features on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, long_help = gates_help())]
    feature_gates: Gates,
}

impl TryFrom<ExplainArgs> for explain::Options {
    type Error = String;

    fn try_from(args: ExplainArgs) -> Result<Self, String> {
        let (base, max) = (args.backoff_base, args.backoff_max);
        if max < base {
            return Err(format!(
                "error: --backoff-max {max:?} is shorter than --backoff-base {base:?}\nhint: give a longer --backoff-max"
            ));
        }
        Ok(Self {
            file: args.file,
            job: args.job,
            question: explain::Question {
                exit_code: args.exit_code,
                container: args.container,
                conditions: args.conditions,
                reason: args.reason,
            },
            timeline: args.timeline,
            pod_takes: args.pod_takes,
            backoff: Backoff { base: durations::signed(base), max: durations::signed(max) },
            gates: args.feature_gates,
        })
    }
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The Job
    #[arg(value_name = "JOB")]
    job: String,

    /// Its namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// How to reach the server [default: as kubectl does, then the server on this machine]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl From<WhyArgs> for why::Options {
    fn from(args: WhyArgs) -> Self {
        Self { job: args.job, namespace: args.namespace, kubeconfig: args.kubeconfig }
    }
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsArgs {
    pub fn print(&self, command: &mut clap::Command) -> ExitCode {
        clap_complete::generate(self.shell, command, "windlass", &mut std::io::stdout());
        ExitCode::SUCCESS
    }
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write them; it is made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl ManArgs {
    pub fn write(&self, command: &clap::Command) -> ExitCode {
        let written = std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(command.clone(), &self.directory));
        match written {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let directory = self.directory.display();
                eprintln!(
                    "error: write manual pages to {directory}: {error}\nhint: give a directory that can be written to"
                );
                ExitCode::from(EXIT_FAILED)
            }
        }
    }
}
