//! Diagnostics as people read them: one line that says it all, the offending text, and what to do.

use std::fmt::Write;
use std::io::IsTerminal;

use windlass_job::analysis::findings::Severity;

use super::{Diagnostic, Report};

/// What is shown of a line; longer ones are cut.
const LINE_CHARS_MAX: usize = 160;

/// All diagnostics of all reports.
pub fn text(reports: &[Report]) -> String {
    let stdout = std::io::stdout();
    let has_colour =
        stdout.is_terminal() && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
    let mut shown = String::new();
    for report in reports {
        for fixed in &report.fixed {
            let _ = writeln!(shown, "{}: fixed: {fixed}", report.file);
        }
        for diagnostic in &report.diagnostics {
            one(&mut shown, diagnostic, &report.text, has_colour);
        }
    }
    shown
}

fn one(shown: &mut String, diagnostic: &Diagnostic, text: &str, has_colour: bool) {
    let Diagnostic { file, position, severity, id, object, .. } = diagnostic;
    let place = position.map_or(file.clone(), |position| format!("{file}:{position}"));
    let paint = |text: String| match (has_colour, severity) {
        (false, _) => text,
        (true, Severity::Error) => format!("\x1b[1;31m{text}\x1b[0m"),
        (true, Severity::Warning) => format!("\x1b[1;33m{text}\x1b[0m"),
        (true, Severity::Note) => format!("\x1b[1;36m{text}\x1b[0m"),
    };
    let object = object.as_ref().map_or(String::new(), |object| format!("{object}: "));
    let _ = writeln!(shown, "{place}: {} {object}{}", paint(format!("{severity}[{id}]:")), diagnostic.text);
    if let Some((number, line, column)) =
        position.and_then(|position| excerpt(text, position.line, position.column))
    {
        let margin = " ".repeat(number.to_string().len());
        let marked = line.chars().skip(column).collect::<String>();
        let width = marked.split(" #").next().unwrap_or_default().trim_end().chars().count().max(1);
        let carets = paint(format!("{}{}", " ".repeat(column), "^".repeat(width)).trim_end().to_owned());
        let _ = writeln!(shown, " {margin} |\n {number} | {line}\n {margin} | {carets}");
    }
    if let Some(help) = &diagnostic.help {
        let _ = writeln!(shown, "   help: {help}");
    }
}

/// The line, its number and the column from 0.
fn excerpt(text: &str, line: u64, column: u64) -> Option<(u64, String, usize)> {
    let at = usize::try_from(line.checked_sub(1)?).ok()?;
    let content: String = text.lines().nth(at)?.chars().take(LINE_CHARS_MAX).collect();
    let column = usize::try_from(column.checked_sub(1)?).ok()?;
    let content = content.replace('\t', " ");
    (column < content.chars().count()).then_some((line, content, column))
}

/// How much was found, in one line.
pub fn summary(reports: &[Report]) -> String {
    let count = |severity: Severity| {
        reports.iter().flat_map(|report| &report.diagnostics).filter(|it| it.severity == severity).count()
    };
    let of = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let jobs: usize = reports.iter().map(|report| report.jobs).sum();
    let mut parts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .map(|severity| (count(severity), severity.to_string()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| of(count, &noun))
        .collect();
    if parts.is_empty() {
        parts.push("nothing to say".to_owned());
    }
    let fixed: usize = reports.iter().map(|report| report.fixed.len()).sum();
    if fixed > 0 {
        parts.push(format!("{fixed} fixed"));
    }
    format!("{} in {} of {}", parts.join(", "), of(jobs, "Job"), of(reports.len(), "file"))
}
