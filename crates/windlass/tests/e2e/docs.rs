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

/// Where the files of the checkout are for somebody who reads the book: only its pages are in it.
const REPOSITORY: &str = "https://github.com/windlass-dev/windlass/";

/// The file of the checkout that a link means; `None` for one that leads elsewhere.
fn linked(page: &Path, link: &str) -> Option<PathBuf> {
    let link = link.split('#').next().unwrap_or_default();
    if let Some(rest) = link.strip_prefix(REPOSITORY) {
        let path = rest.strip_prefix("blob/main/").or_else(|| rest.strip_prefix("tree/main/"));
        return path.map(|path| root().join(path));
    }
    let is_elsewhere = link.starts_with("https://") || link.is_empty();
    (!is_elsewhere).then(|| page.parent().expect("a directory").join(link))
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    for (path, page) in all_pages() {
        let is_in_book = path.starts_with(root().join("docs"));
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(!(is_in_book && link.starts_with("..")), "{}: {link} is not in the book", path.display());
            let file = linked(&path, link);
            assert!(file.is_none_or(|file| file.exists()), "{}: {link}", path.display());
        }
    }
}

/// The name that a heading has in links.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_to_headings_name_headings_that_are_there() {
    let mut found = 0;
    for (path, page) in all_pages() {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((_, name)) = link.split_once('#').filter(|_| !link.starts_with("https://")) else {
                continue;
            };
            let file = linked(&path, link).unwrap_or_else(|| path.clone());
            let text = std::fs::read_to_string(&file).expect("a page");
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            let is_there = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == name);
            assert!(is_there, "{}: {link}", path.display());
            found += 1;
        }
    }
    assert!(found >= 3, "{found}");
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
    let shape_of = |word: &str| {
        let bare = word.trim_end_matches([',', ':']);
        let is_time = bare.ends_with('s') && bare.starts_with(|c: char| c.is_ascii_digit());
        if is_pod(bare) {
            "POD".to_owned()
        } else if is_time {
            "TIME".to_owned()
        } else if bare.len() == 2 && bare.ends_with(')') {
            "N)".to_owned()
        } else {
            word.to_owned()
        }
    };
    line.split_whitespace().map(shape_of).collect::<Vec<_>>().join(" ")
}

/// The name of a pod of an index: `tests-0-bcdfg`.
fn is_pod(word: &str) -> bool {
    let mut parts = word.rsplit('-');
    let (end, index) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    end.len() == 5 && end.chars().all(char::is_alphanumeric) && index.parse::<u32>().is_ok()
}

/// How far a Job is at a moment is a matter of chance.
fn is_progress(line: &str) -> bool {
    line == "…" || line.contains(" succeeded, ") && line.contains(" active, ")
}

/// Runs a command as it stands in a page. Every line that the page shows has to be told, and the last one last.
fn assert_happens(page: &Path, command: &str, shown: &str) {
    let args = ["windlass ", "cargo run -- "].iter().find_map(|start| command.strip_prefix(start));
    let args: Vec<&str> = args.expect("a command of ours").split_whitespace().collect();
    let ran = Running::spawn(windlass(&args).current_dir(root())).finish();
    let happened: Vec<String> = ran.stderr.lines().map(shape).collect();
    let shown: Vec<String> = shown.lines().filter(|line| !is_progress(line)).map(shape).collect();
    for line in &shown {
        assert!(happened.contains(line), "{}: {command}: {line} is not in {happened:#?}", page.display());
    }
    assert!(shown.is_empty() || shown.last() == happened.last(), "{}: {command}", page.display());
    assert!(matches!(ran.code, Some(0 | 1)), "{}: {command}: {}", page.display(), ran.stderr);
}

#[test]
fn what_the_pages_show_of_runs_is_what_happens() {
    let mut lines = 0;
    for (path, page) in all_pages() {
        for block in blocks(&page, "console") {
            for step in format!("\n{block}").split("\n$ ").skip(1) {
                let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
                let is_run = command.starts_with("windlass run ") || command.starts_with("cargo run -- run ");
                if is_run && command.contains("examples/") {
                    assert_happens(&path, command, shown);
                    lines += shown.lines().count();
                }
            }
        }
    }
    assert!(lines > 35, "{lines} lines are shown");
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
    let told = |lines: Vec<String>| -> Vec<String> {
        lines.iter().filter(|line| !is_progress(line)).map(|line| shape(line)).collect()
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
        let file = linked(&path, link.trim_end_matches(')')).expect("a file");
        let source =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(source.contains(&format!("fn {name}(")), "{}: no test is called {name}", file.display());
    }
}
