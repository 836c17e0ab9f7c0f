//! What the chart makes on demand, and what the image is made of.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{deploy, render};

/// The only object of that kind in what was rendered, if there is one.
fn of_kind(rendered: &str, kind: &str) -> Result<Option<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(rendered)?;
    let mut found: Vec<Value> = objects.into_iter().filter(|object| object["kind"] == kind).collect();
    assert!(found.len() <= 1, "{found:#?}");
    Ok(found.pop())
}

#[test]
fn a_service_monitor_is_made_on_demand_and_finds_the_service() -> Result<()> {
    assert_eq!(
        of_kind(&render(&[])?, "ServiceMonitor")?,
        None,
        "clusters without the operator can't take one"
    );
    let sets = "serviceMonitor.enabled=true,serviceMonitor.interval=5s,serviceMonitor.labels.release=prom";
    let rendered = render(&["--set", sets])?;
    let service = of_kind(&rendered, "Service")?.context("a Service")?;
    let monitor = of_kind(&rendered, "ServiceMonitor")?.context("a ServiceMonitor")?;
    assert_eq!(monitor["apiVersion"], "monitoring.coreos.com/v1");
    assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"]);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prom");
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().context("labels to look for")?;
    assert!(!selected.is_empty());
    for (label, value) in selected {
        assert_eq!(service["metadata"]["labels"][label], *value, "{label}");
    }
    let port = &service["spec"]["ports"][0]["name"];
    let endpoints = json!([{"port": port, "path": "/metrics", "interval": "5s"}]);
    assert_eq!(monitor["spec"]["endpoints"], endpoints);
    let deployment = of_kind(&rendered, "Deployment")?.context("a Deployment")?;
    let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(ports[0]["name"], service["spec"]["ports"][0]["targetPort"]);
    Ok(())
}

/// The arguments of the Dockerfile's lines with this instruction, in order.
fn instructions<'a>(dockerfile: &'a str, name: &str) -> Vec<&'a str> {
    dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

#[test]
fn the_image_is_built_from_what_is_there_and_run_as_the_manifests_say() -> Result<()> {
    let root = deploy().join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let (dockerfile, workspace) = (read("deploy/Dockerfile")?, read("Cargo.toml")?);
    let package = read("crates/windlass/Cargo.toml")?;
    assert!(package.contains("name = \"windlass\"\n"), "{package}");
    assert!(workspace.contains("[profile.dist]\n"), "{workspace}");
    let rust =
        workspace.lines().find_map(|line| line.strip_prefix("rust-version = ")).context("a version")?;
    let stages = instructions(&dockerfile, "FROM");
    assert_eq!(stages[0], format!("rust:{}-bookworm AS build", rust.trim_matches('"')));
    // The same Debian: the program is linked to its C library.
    assert!(stages[1].contains("/cc-debian12:"), "{stages:?}");
    let build = instructions(&dockerfile, "RUN").pop().context("a build")?;
    let built = "cargo build --locked --profile dist --package windlass && cp target/dist/windlass /windlass";
    assert_eq!(build, built);
    let copied = instructions(&dockerfile, "COPY");
    assert_eq!(copied, [". .", "--from=build /windlass /usr/local/bin/windlass"]);
    for needed in ["Cargo.lock", "crates/windlass/src/main.rs"] {
        assert!(root.join(needed).is_file(), "{needed}");
    }
    // What is left out is nothing that the build needs.
    assert_eq!(read(".dockerignore")?, "target\nfuzz/target\n.git\n");
    assert_eq!(instructions(&dockerfile, "ENTRYPOINT"), ["[\"/usr/local/bin/windlass\"]"]);
    let deployment = of_kind(&render(&[])?, "Deployment")?.context("a Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    let user = format!("{0}:{0}", pod["securityContext"]["runAsUser"]);
    assert_eq!(instructions(&dockerfile, "USER"), [user.as_str()]);
    assert_eq!(pod["containers"][0]["args"][0], "controller");
    Ok(())
}
