//! What can be known to end badly before anything runs: Jobs that somebody else manages, and containers that this machine
//! can't run.

use serde_json::Value;
use windlass_job::observation::Manages;

use crate::manifest::{Kind, Object, Problem, Rejected};

const HINT_MANAGED: &str = "remove spec.managedBy, or set it to windlass.dev/job-controller";
const HINT_SUSPENDED: &str = "set spec.suspend to false: nobody could resume the Job here";
const HINT_PARALLELISM: &str = "set spec.parallelism to how many pods may run at a time";
const HINT_IMAGE: &str =
    "set image: host to run the command on this machine, or use --runtime host for every image";
const HINT_COMMAND: &str =
    "this machine has no entrypoint to fall back on: set command, for example [sh, -c, ...]";

const HINT_VOLUME: &str = "use emptyDir, hostPath, configMap, secret, downwardAPI or projected";
/// The kinds of volumes that this machine has.
const VOLUMES: [&str; 6] = ["emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected"];

/// Finds everything in the Jobs that can't be run here.
pub fn check(file: &str, objects: &[Object], is_any_image_host: bool) -> Result<(), Rejected> {
    let jobs = objects.iter().filter(|object| object.kind == Kind::Job);
    let found: Vec<(Problem, &str)> = jobs.flat_map(|job| of_job(job, is_any_image_host)).collect();
    match found.first() {
        None => Ok(()),
        Some((_, hint)) => {
            let hint = (*hint).to_owned();
            let problems = found.into_iter().map(|(problem, _)| problem).collect();
            Err(Rejected { file: file.to_owned(), problems, hint })
        }
    }
}

fn of_job(job: &Object, is_any_image_host: bool) -> Vec<(Problem, &'static str)> {
    let mut found = Vec::new();
    let spec = &job.json["spec"];
    if let Some(manager) = spec["managedBy"].as_str()
        && !Manages::Unclaimed.includes(Some(manager))
    {
        let text = format!("spec.managedBy: {manager:?} does not run here");
        found.push((job.problem("spec.managedBy", text), HINT_MANAGED));
    }
    // With nothing to complete, such a Job is complete at once.
    if spec["completions"] != 0 {
        if spec["suspend"] == true {
            found.push((
                job.problem("spec.suspend", "spec.suspend: the Job would wait for ever"),
                HINT_SUSPENDED,
            ));
        }
        if spec["parallelism"] == 0 {
            let text = "spec.parallelism: 0 starts no pods, and the Job would wait for ever";
            found.push((job.problem("spec.parallelism", text), HINT_PARALLELISM));
        }
    }
    let volumes = spec["template"]["spec"]["volumes"].as_array();
    for (at, volume) in volumes.into_iter().flatten().enumerate() {
        let kinds = volume.as_object().into_iter().flatten().map(|(kind, _)| kind.as_str());
        let foreign = kinds.filter(|kind| *kind != "name").find(|kind| !VOLUMES.contains(kind));
        if let Some(kind) = foreign {
            let path = format!("spec.template.spec.volumes[{at}].{kind}");
            found
                .push((job.problem(&path, format!("{path}: this machine has no such volumes")), HINT_VOLUME));
        }
    }
    for list in ["initContainers", "containers"] {
        let containers = spec["template"]["spec"][list].as_array();
        for (at, container) in containers.into_iter().flatten().enumerate() {
            let path = format!("spec.template.spec.{list}[{at}]");
            found.extend(of_container(job, container, &path, is_any_image_host));
        }
    }
    found
}

fn of_container(
    job: &Object,
    container: &Value,
    path: &str,
    is_any_image_host: bool,
) -> Vec<(Problem, &'static str)> {
    let mut found = Vec::new();
    let mut report = |field: &str, text: String, hint| {
        let path = format!("{path}.{field}");
        found.push((job.problem(&path, format!("{path}: {text}")), hint));
    };
    // A container without an image is the API server's to refuse.
    let image = container["image"].as_str().unwrap_or_default();
    if !is_any_image_host && !matches!(image, "" | "host") {
        report("image", format!("{image:?} can't be run: no images are pulled"), HINT_IMAGE);
    }
    if container["command"].as_array().is_none_or(Vec::is_empty) {
        report("command", "is not set".to_owned(), HINT_COMMAND);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    const HEAD: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n";

    fn told(spec: &str, is_any_image_host: bool) -> String {
        let objects = manifest::read("f", &format!("{HEAD}{spec}")).expect("reads");
        check("f", &objects, is_any_image_host)
            .map_or_else(|rejected| rejected.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn a_job_that_can_be_run_passes() {
        let container = "  managedBy: windlass.dev/job-controller\n  template:\n    spec:\n      containers:\n      \
                         - {name: a, image: IMAGE, command: [x]}\n";
        assert_eq!(told(&container.replace("IMAGE", "host"), false), "fine");
        assert_eq!(told(&container.replace("IMAGE", "busybox"), true), "fine");
    }

    #[test]
    fn a_job_that_would_wait_for_ever_is_told_so() {
        assert_eq!(
            told("  suspend: true\n  parallelism: 0\n", false),
            "error: f:5:3: document 1: job/x: spec.suspend: the Job would wait for ever\n\
             error: f:6:3: document 1: job/x: spec.parallelism: 0 starts no pods, and the Job would wait for ever\n\
             hint: set spec.suspend to false: nobody could resume the Job here"
        );
        assert_eq!(told("  suspend: true\n  parallelism: 0\n  completions: 0\n", false), "fine");
    }

    #[test]
    fn everything_that_can_not_be_run_is_told_with_its_place() {
        let spec = "  managedBy: example.com/other\n  template:\n    spec:\n      initContainers:\n      \
                    - {name: i, image: busybox, command: [x]}\n      containers:\n      - name: a\n        image: host\n        \
                    volumeMounts:\n        - name: v\n          mountPath: /data\n      volumes:\n      - name: v\n        \
                    emptyDir: {}\n      - name: w\n        nfs: {server: s, path: /}\n";
        assert_eq!(
            told(spec, false),
            "error: f:5:3: document 1: job/x: spec.managedBy: \"example.com/other\" does not run here\n\
             error: f:20:9: document 1: job/x: spec.template.spec.volumes[1].nfs: this machine has no such volumes\n\
             error: f:9:19: document 1: job/x: spec.template.spec.initContainers[0].image: \"busybox\" can't be run: \
             no images are pulled\n\
             error: f:11:9: document 1: job/x: spec.template.spec.containers[0].command: is not set\n\
             hint: remove spec.managedBy, or set it to windlass.dev/job-controller"
        );
    }
}
