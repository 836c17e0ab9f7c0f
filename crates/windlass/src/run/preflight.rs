//! What can be known to end badly before anything runs: Jobs that somebody else manages, and containers that this machine
//! can't run.

use serde_json::Value;
use windlass_job::observation::Manages;

use crate::manifest::{Kind, Object, Problem, Rejected};

const HINT_MANAGED: &str = "remove spec.managedBy, or set it to windlass.dev/job-controller";
const HINT_SUSPENDED: &str = "set spec.suspend to false: nobody could resume the Job here";
const HINT_PARALLELISM: &str = "set spec.parallelism to how many pods may run at a time";
const HINT_IMAGE: &str = "install crun, runc or youki (and run as root where users may not make user namespaces), set image: host to run \
     the command on this machine, or use --runtime host for every image";
const HINT_COMMAND: &str =
    "this machine has no entrypoint to fall back on: set command, for example [sh, -c, ...]";

const HINT_VOLUME: &str = "use emptyDir, hostPath, configMap, secret, downwardAPI or projected";
/// The kinds of volumes that this machine has.
const VOLUMES: [&str; 6] = ["emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected"];

/// What is done with images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// Their command is run on this machine.
    OnHost,
    /// They are pulled and run.
    Pulled,
    /// Nothing.
    None,
}

/// Whether a Job has a container that is not one of this machine.
pub fn has_images(objects: &[Object]) -> bool {
    let jobs = objects.iter().filter(|object| object.kind == Kind::Job);
    let lists = jobs.flat_map(|job| {
        let spec = &job.json["spec"]["template"]["spec"];
        ["initContainers", "containers"].into_iter().filter_map(|list| spec[list].as_array())
    });
    lists.flatten().any(|container| container["image"] != "host")
}

/// Finds everything in the Jobs that can't be run here.
pub fn check(file: &str, objects: &[Object], images: Images) -> Result<(), Rejected> {
    let jobs = objects.iter().filter(|object| object.kind == Kind::Job);
    let found: Vec<(Problem, &str)> = jobs.flat_map(|job| of_job(job, images)).collect();
    match found.first() {
        None => Ok(()),
        Some((_, hint)) => {
            let hint = (*hint).to_owned();
            let problems = found.into_iter().map(|(problem, _)| problem).collect();
            Err(Rejected { file: file.to_owned(), problems, hint })
        }
    }
}

fn of_job(job: &Object, images: Images) -> Vec<(Problem, &'static str)> {
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
            found.extend(of_container(job, container, &path, images));
        }
    }
    found
}

fn of_container(job: &Object, container: &Value, path: &str, images: Images) -> Vec<(Problem, &'static str)> {
    let mut found = Vec::new();
    let mut report = |field: &str, text: String, hint| {
        let path = format!("{path}.{field}");
        found.push((job.problem(&path, format!("{path}: {text}")), hint));
    };
    // A container without an image is the API server's to refuse.
    let image = container["image"].as_str().unwrap_or_default();
    let is_host = matches!(image, "" | "host");
    if images == Images::None && !is_host {
        report("image", format!("{image:?} can't be run: this machine has no OCI runtime"), HINT_IMAGE);
    }
    // An image has an entrypoint of its own.
    if (images != Images::Pulled || is_host) && container["command"].as_array().is_none_or(Vec::is_empty) {
        report("command", "is not set".to_owned(), HINT_COMMAND);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    const HEAD: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n";

    fn told(spec: &str, images: Images) -> String {
        let objects = manifest::read("f", &format!("{HEAD}{spec}")).expect("reads");
        check("f", &objects, images).map_or_else(|rejected| rejected.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn a_job_that_can_be_run_passes() {
        let container = "  managedBy: windlass.dev/job-controller\n  template:\n    spec:\n      containers:\n      \
                         - {name: a, image: IMAGE, command: [x]}\n";
        assert_eq!(told(&container.replace("IMAGE", "host"), Images::None), "fine");
        assert_eq!(told(&container.replace("IMAGE", "busybox"), Images::OnHost), "fine");
        let bare = container.replace(", command: [x]", "");
        assert_eq!(told(&bare.replace("IMAGE", "busybox"), Images::Pulled), "fine");
        assert_ne!(told(&bare.replace("IMAGE", "host"), Images::Pulled), "fine");
    }

    #[test]
    fn a_job_that_would_wait_for_ever_is_told_so() {
        assert_eq!(
            told("  suspend: true\n  parallelism: 0\n", Images::None),
            "error: f:5:3: document 1: job/x: spec.suspend: the Job would wait for ever\n\
             error: f:6:3: document 1: job/x: spec.parallelism: 0 starts no pods, and the Job would wait for ever\n\
             hint: set spec.suspend to false: nobody could resume the Job here"
        );
        assert_eq!(told("  suspend: true\n  parallelism: 0\n  completions: 0\n", Images::None), "fine");
    }

    #[test]
    fn everything_that_can_not_be_run_is_told_with_its_place() {
        let spec = "  managedBy: example.com/other\n  template:\n    spec:\n      initContainers:\n      \
                    - {name: i, image: busybox, command: [x]}\n      containers:\n      - name: a\n        image: host\n        \
                    volumeMounts:\n        - name: v\n          mountPath: /data\n      volumes:\n      - name: v\n        \
                    emptyDir: {}\n      - name: w\n        nfs: {server: s, path: /}\n";
        assert_eq!(
            told(spec, Images::None),
            "error: f:5:3: document 1: job/x: spec.managedBy: \"example.com/other\" does not run here\n\
             error: f:20:9: document 1: job/x: spec.template.spec.volumes[1].nfs: this machine has no such volumes\n\
             error: f:9:19: document 1: job/x: spec.template.spec.initContainers[0].image: \"busybox\" can't be run: \
             this machine has no OCI runtime\n\
             error: f:11:9: document 1: job/x: spec.template.spec.containers[0].command: is not set\n\
             hint: remove spec.managedBy, or set it to windlass.dev/job-controller"
        );
    }
}
