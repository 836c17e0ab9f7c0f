//! What the documentation shows can be run, and is what the examples say.

use std::path::{Path, PathBuf};

use crate::support::{examples, run_manifest};

fn pages() -> Vec<(PathBuf, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let names = [
        "run.md",
        "pod-failure-policy.md",
        "pod-replacement-policy.md",
        "backoff-limit-per-index.md",
        "draft-policy.md",
    ];
    let read = |name: &str| (docs.join(name), std::fs::read_to_string(docs.join(name)).expect("a page"));
    names.map(read).into()
}

/// The texts between ` ```language ` and ` ``` `.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn every_manifest_in_the_docs_runs() {
    for (path, page) in pages() {
        let manifests = blocks(&page, "yaml");
        assert_eq!(manifests.len(), 1, "{}", path.display());
        for manifest in manifests {
            let gates = "RetriableAndNonRetriableFailures=true";
            let ran = run_manifest(&["--backoff-base", "10ms", "--feature-gates", gates], manifest);
            assert!(matches!(ran.code, Some(0 | 1)), "{}: {}", path.display(), ran.stderr);
            assert!(!ran.stderr.contains("warning"), "{}: {}", path.display(), ran.stderr);
        }
    }
}

#[test]
fn every_command_in_the_docs_is_that_of_its_example() {
    let mut found = 0;
    for (path, page) in pages() {
        let lines = blocks(&page, "console").into_iter().flat_map(str::lines);
        for command in
            lines.filter_map(|line| line.strip_prefix("$ ")).filter(|line| line.contains("examples/"))
        {
            let name = command.split("examples/").nth(1).expect("an example");
            let example = std::fs::read_to_string(examples().join(name)).expect("an example");
            let header = example.lines().take_while(|line| line.starts_with('#'));
            let header = header
                .map(|line| line.trim_start_matches('#').trim_end_matches('\\').trim())
                .collect::<Vec<_>>()
                .join(" ");
            assert!(header.contains(command), "{}: {command}", path.display());
            found += 1;
        }
    }
    assert_eq!(found, 7, "commands in the docs");
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    for (path, page) in pages() {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = path.parent().expect("docs").join(link.split('#').next().unwrap_or_default());
            assert!(target.exists(), "{}: {link}", path.display());
        }
    }
}
