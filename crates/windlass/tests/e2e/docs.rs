//! What the documentation shows can be run, and is what the examples say.

use std::path::{Path, PathBuf};

use crate::support::{Running, examples, run_manifest, windlass};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

/// Every page of the book, and the README.
fn all_pages() -> Vec<(PathBuf, String)> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs");
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.push(root().join("README.md"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a page"))).collect()
}

/// Pages with a manifest that runs here.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = root().join("docs");
    let names = [
        "getting-started.md",
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
    // Those of `lint` and `explain` are run, below.
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    for (path, page) in all_pages() {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let link = link.split('#').next().unwrap_or_default();
            if link.starts_with("https://") || link.is_empty() {
                continue;
            }
            assert!(path.parent().expect("a directory").join(link).exists(), "{}: {link}", path.display());
        }
    }
}

#[test]
fn the_book_has_every_page() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("a summary");
    for (path, _) in all_pages() {
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        if !["SUMMARY.md", "README.md"].contains(&name) {
            assert!(summary.contains(&format!("]({name})")), "{name} is not in the book");
        }
    }
}

#[test]
fn questions_in_the_docs_have_the_answers_that_are_shown() {
    let mut found = 0;
    for (path, page) in all_pages() {
        let lines = blocks(&page, "console").join("\n$ \n");
        for step in lines.split("\n$ ").map(|step| step.trim_start_matches("$ ")) {
            let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
            let Some(args) = command.strip_prefix("windlass ") else { continue };
            if !["lint ", "explain "].iter().any(|name| args.starts_with(name)) {
                continue;
            }
            let args: Vec<&str> = args.split_whitespace().collect();
            let ran = Running::spawn(windlass(&args).current_dir(root())).finish();
            assert_eq!(ran.code, Some(0), "{}: {command}: {}", path.display(), ran.stderr);
            assert_eq!(ran.stdout.trim_end(), shown.trim_end(), "{}: {command}", path.display());
            found += 1;
        }
    }
    assert!(found >= 6, "{found}");
}

/// A line without what differs from run to run: which pods are evicted, their names, and how long it took.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        let is_pod = word.starts_with("tests-") && word.len() == "tests-0-abcde".len();
        let word = if is_pod { "POD" } else { word };
        let word = if word.ends_with(')') && word.len() == 2 { "N)" } else { word };
        let is_time = word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
        shape.push_str(if is_time { "TIME" } else { word });
        shape.push(' ');
    }
    shape
}

#[test]
fn the_first_transcript_of_the_readme_is_what_happens() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("a page");
    let mut lines = blocks(&readme, "console")[0].lines();
    let command = lines.next().and_then(|line| line.strip_prefix("$ cargo run -- ")).expect("a command");
    let args: Vec<&str> = command.split_whitespace().collect();
    let ran = Running::spawn(windlass(&args).current_dir(root())).finish();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    let happened: Vec<String> = ran.stderr.lines().map(shape).collect();
    // How far it is at a moment is a matter of chance.
    let shown: Vec<String> =
        lines.filter(|line| *line != "…" && !line.contains(" of 6 succeeded")).map(shape).collect();
    assert!(shown.len() >= 7, "{shown:?}");
    for line in &shown {
        assert!(happened.contains(line), "{line} is not in {happened:#?}");
    }
    assert_eq!(happened.last(), shown.last());
}

/// The lines that `windlass run` shows on its page for a manifest of this name.
fn shown_by_run(name: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/run.md")).expect("a page");
    let command = format!("$ windlass run {name}\n");
    let block = blocks(&page, "console").into_iter().find_map(|block| block.strip_prefix(&command));
    block.expect("a block").lines().map(str::to_owned).collect()
}

fn run_in_directory(name: &str, manifest: &str) -> (Option<i32>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join(name), manifest).expect("written");
    let ran = Running::spawn(windlass(&["run", name]).current_dir(directory.path())).finish();
    assert_eq!(ran.stdout, "");
    (ran.code, ran.stderr.lines().map(str::to_owned).collect())
}

#[test]
fn the_page_of_run_shows_what_happens() {
    let page = std::fs::read_to_string(root().join("docs/run.md")).expect("a page");
    let (code, happened) = run_in_directory("hello.yaml", blocks(&page, "yaml")[0]);
    // How far it is at a moment is a matter of chance.
    let told = |lines: Vec<String>| -> Vec<String> {
        lines.iter().filter(|line| !line.contains(" of 3 succeeded")).map(|line| shape(line)).collect()
    };
    assert_eq!((code, told(happened)), (Some(0), told(shown_by_run("hello.yaml"))));
    let bad = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\nspec:\n  parallelism: -1\n  backoffLimitPerIndex: 1\n  \
               template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: main\n        image: host\n        \
               command: [\"true\"]\n";
    assert_eq!(run_in_directory("bad.yaml", bad), (Some(2), shown_by_run("bad.yaml")));
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard = std::fs::read_to_string(root().join("docs/dashboard.json")).expect("a dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).expect("a page");
    let panels = dashboard["panels"].as_array().expect("panels");
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut found = 0;
    for expression in expressions.map(|target| target["expr"].as_str().expect("an expression")) {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("job_controller_") || word.starts_with("windlass_"))
        {
            assert!(page.contains(name.trim_end_matches("_bucket")), "{name} is not in docs/metrics.md");
            found += 1;
        }
    }
    assert_eq!(found, 10, "{dashboard}");
}

#[test]
fn every_end_of_a_pod_in_the_docs_names_a_test_that_is_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/disruptions.md");
    let page = std::fs::read_to_string(&path).expect("a page");
    let table = page.split("\n\n").find(|part| part.starts_with("| what happened")).expect("a table");
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next().expect("a cell").trim();
        let (name, link) = cell.split_once("](").expect("a link");
        let name = name.trim_matches(['[', '`']);
        let file = path.parent().expect("docs").join(link.trim_end_matches(')'));
        let source =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(source.contains(&format!("fn {name}(")), "{}: no test is called {name}", file.display());
    }
}
