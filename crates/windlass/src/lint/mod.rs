//! `windlass lint`: everything that can be said about manifests without running them.
//!
//! ```text
//!   text ─► manifest ─► validation of the API server ─┐
//!                └────► windlass_job::analysis ───────┼─► diagnostics ─► text, JSON or SARIF
//!                └────► what a stock cluster ignores ─┘        └───────► fix: edits of the text
//! ```

mod check;
mod edit;
mod fix;
mod machine;
mod show;
mod stock;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use windlass_api::Gates;
use windlass_job::analysis::findings::{Change, Severity};

use crate::manifest::Position;
use crate::{EXIT_BAD_INPUT, EXIT_FAILED, with_threads};

const HINT_FILE: &str = "name manifests, or - to read one from standard input";
const HINT_FIX: &str = "--fix changes files in place; name one instead of -";

/// How to print what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// A list of objects.
    Json,
    /// SARIF 2.1.0, which code hosts show beside the lines.
    Sarif,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manifests; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// How to print.
    pub format: Format,
    /// Warnings fail, too.
    pub is_strict: bool,
    /// Change the files.
    pub fixes: bool,
    /// Which features are on.
    pub gates: Gates,
}

/// One thing to say about a manifest.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The file, as it was named.
    pub file: String,
    /// Where it stands.
    pub position: Option<Position>,
    /// How bad it is.
    pub severity: Severity,
    /// What kind of thing it is.
    pub id: &'static str,
    /// In which object, as `job/x`.
    pub object: Option<String>,
    /// In which document, from 1.
    pub document: Option<usize>,
    /// The field.
    pub path: String,
    /// What there is to say.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The same, for a program.
    pub fix: Option<Fix>,
}

/// What `--fix` can do about a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// A change of the policy.
    Change(Change),
    /// Say a draft policy as a `podFailurePolicy`.
    Translate,
}

/// A manifest and what there is to say about it.
pub struct Report {
    /// As it was named.
    pub file: String,
    /// What it says.
    pub text: String,
    /// In the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// How many Jobs were looked at.
    pub jobs: usize,
    /// What `--fix` did.
    pub fixed: Vec<String>,
}

/// Looks at manifests.
pub fn main(options: &Options) -> ExitCode {
    with_threads(lint(options))
}

async fn lint(options: &Options) -> ExitCode {
    let mut reports = Vec::new();
    for path in &options.files {
        match report(path, options).await {
            Ok(report) => reports.push(report),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(EXIT_BAD_INPUT);
            }
        }
    }
    let shown = match options.format {
        Format::Text => show::text(&reports),
        Format::Json => machine::json(&reports),
        Format::Sarif => machine::sarif(&reports),
    };
    // A closed pipe is the reader's decision.
    let _ = std::io::stdout().lock().write_all(shown.as_bytes());
    eprintln!("{}", show::summary(&reports));
    let fails = |diagnostic: &Diagnostic| match diagnostic.severity {
        Severity::Error => true,
        Severity::Warning => options.is_strict,
        Severity::Note => false,
    };
    let has_failed = reports.iter().flat_map(|report| &report.diagnostics).any(fails);
    if has_failed { ExitCode::from(EXIT_FAILED) } else { ExitCode::SUCCESS }
}

async fn report(path: &Path, options: &Options) -> Result<Report, String> {
    let (file, mut text) = read(path)?;
    let mut fixed = Vec::new();
    if options.fixes {
        if path == Path::new("-") {
            return Err(format!("error: <stdin>: there is no file to change\nhint: {HINT_FIX}"));
        }
        let before = text.clone();
        (text, fixed) = fix::fix_all(&file, text, options.gates).await;
        if text != before {
            std::fs::write(path, &text)
                .map_err(|error| format!("error: {file}: write: {error}\nhint: make the file writable"))?;
        }
    }
    let (diagnostics, jobs) = check::check(&file, &text, options.gates).await;
    Ok(Report { file, text, diagnostics, jobs, fixed })
}

/// The name to put in messages, and the text of a manifest.
pub fn read(path: &Path) -> Result<(String, String), String> {
    let mut text = String::new();
    let (name, result) = if path == Path::new("-") {
        ("<stdin>".to_owned(), std::io::stdin().lock().read_to_string(&mut text).map(|_| text))
    } else {
        (path.display().to_string(), std::fs::read_to_string(path))
    };
    match result {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(format!("error: {name}: read: {error}\nhint: {HINT_FILE}")),
    }
}
