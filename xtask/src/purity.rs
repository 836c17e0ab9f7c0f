//! The pure crates depend on nothing that touches the world, and never ask a clock.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The crates whose decisions are functions of their arguments.
const PURE: [&str; 2] = ["api", "job"];

/// What they may depend on directly: types, serialisation, times as values, error derives.
const ALLOWED: [&str; 6] = ["jiff", "k8s-openapi", "serde", "serde_json", "thiserror", "windlass-api"];

/// What must not stand in their sources: clocks, I/O, threads, randomness, and hash maps, whose order differs from run
/// to run.
const BANNED: [&str; 17] = [
    "std::fs",
    "std::net",
    "std::io",
    "std::thread",
    "std::process",
    "std::env",
    "SystemTime",
    "Instant",
    "Timestamp::now",
    "Zoned::now",
    "HashMap",
    "HashSet",
    "println!",
    "print!",
    "rand::",
    "tokio",
    "static mut",
];

/// The one place that may use a word, and why it may.
const EXEMPT: [(&str, &str); 1] =
    // Looked up by key and never walked, so its order can't be seen.
    [("crates/job/src/slots.rs", "HashMap")];

/// Fails when a pure crate gained a dependency, a clock or I/O.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for name in PURE {
        faults.extend(dependencies(name)?.into_iter().map(|dep| format!("crates/{name} depends on {dep}")));
        for file in sources(&root().join("crates").join(name).join("src"))? {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let is_exempt =
                |word: &str| EXEMPT.iter().any(|(place, what)| file.ends_with(place) && *what == word);
            let uses = banned(&text).into_iter().filter(|(_, word)| !is_exempt(word));
            faults.extend(uses.map(|(line, word)| format!("{}:{line} uses {word}", file.display())));
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("the core is not pure:\n  {}", faults.join("\n  ")) }
}

/// Direct dependencies that are not on the allow-list. Tests may use more.
fn dependencies(name: &str) -> Result<Vec<String>> {
    let args = ["metadata", "--no-deps", "--format-version", "1"];
    let out = Command::new("cargo").args(args).current_dir(root()).output().context("run cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).context("parse cargo metadata")?;
    let wanted = format!("windlass-{name}");
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|p| p["name"] == wanted.as_str());
    let package = package.with_context(|| format!("there is no package {wanted}"))?;
    let allowed = BTreeSet::from(ALLOWED);
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Ok(dependencies
        .filter(|dep| dep["kind"] != "dev")
        .filter_map(|dep| dep["name"].as_str())
        .filter(|dep| !allowed.contains(dep))
        .map(str::to_owned)
        .collect())
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("list {}", root.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Banned words in the code, comments aside, with their lines.
fn banned(text: &str) -> Vec<(usize, &'static str)> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.enumerate()
        .flat_map(|(at, line)| {
            BANNED.into_iter().filter(move |word| line.contains(word)).map(move |word| (at + 1, word))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_io_or_a_hash_map_is_found_and_a_comment_is_not() {
        assert_eq!(banned("fn f() {\n    let t = Timestamp::now();\n}"), [(2, "Timestamp::now")]);
        assert_eq!(banned("use std::collections::HashMap;"), [(1, "HashMap")]);
        assert_eq!(banned("use std::fs;"), [(1, "std::fs")]);
        assert!(banned("// Timestamp::now would be a clock").is_empty());
        assert!(banned("let t = Timestamp::UNIX_EPOCH;").is_empty());
    }

    #[test]
    fn a_crate_with_more_dependencies_is_found() {
        assert!(dependencies("node").expect("cargo metadata works").contains(&"tokio".to_owned()));
    }

    #[test]
    fn the_core_is_pure() {
        check().expect("the core is pure");
    }
}
