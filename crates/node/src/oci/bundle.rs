//! What a run of a container has: its own layer on the disk, and its configuration and what the runtime needs, which may be in
//! memory.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::HostAlias;
use rustix::fs::{FileType, Mode};
use serde_json::Value;

/// Its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The bundle of the runtime. Nothing in it is written by the container.
    pub bundle: PathBuf,
    /// What the container can write to.
    pub disk: PathBuf,
    /// What the runtime calls the container.
    pub id: String,
    /// Where the files of the container appear.
    pub rootfs: PathBuf,
    /// What it writes.
    pub upper: PathBuf,
    /// Of overlayfs.
    pub work: PathBuf,
    /// Where parts of volumes are mounted from.
    pub mounts: PathBuf,
    /// The files that say who and where it is: [`ETC_FILES`].
    pub etc: PathBuf,
    /// A pipe that says that the container runs.
    pub started: PathBuf,
    /// What the runtime has to say.
    pub errors: PathBuf,
    /// Of the runtime.
    pub state: PathBuf,
}

impl Paths {
    /// Of a run of a container, in the directories of its pod: on the disk, and for what is needed only while it runs. One
    /// with a copy of its image has that on the disk.
    pub fn new(
        pod_directory: &Path,
        run_directory: &Path,
        container: &str,
        run: i32,
        has_copy: bool,
    ) -> Self {
        let id = id(container, run);
        let (bundle, disk) = (run_directory.join(&id), on_disk(pod_directory, container, run));
        let at = |name: &str| bundle.join(name);
        Self {
            rootfs: if has_copy { disk.join("rootfs") } else { at("rootfs") },
            upper: disk.join("upper"),
            work: disk.join("work"),
            mounts: at("mounts"),
            etc: at("etc"),
            started: at("started"),
            errors: at("errors"),
            state: at("state"),
            id,
            bundle,
            disk,
        }
    }

    /// Makes them. What a try before this one left is removed. `etc`: what the files of that say, in their order.
    pub fn make(&self, config: &Value, etc: &[String; 3]) -> io::Result<()> {
        remove(&self.bundle)?;
        remove(&self.disk)?;
        let private = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        for directory in [&self.bundle, &self.mounts, &self.etc, &self.state, &self.disk, &self.work] {
            private(directory)?;
        }
        // The root of the container: others than root have to get through it.
        for directory in [&self.rootfs, &self.upper] {
            fs::DirBuilder::new().mode(0o755).create(directory)?;
        }
        for (name, text) in ETC_FILES.iter().zip(etc) {
            fs::write(self.etc.join(name), text)?;
        }
        let fifo = (FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, &self.started, fifo.0, fifo.1, 0)?;
        fs::write(self.bundle.join("config.json"), serde_json::to_vec(config)?)
    }
}

/// The mount points that every container has, as a layer below those of its image: made once, not by the runtime in what each
/// container writes, and not removed with that.
pub fn mount_points(data_dir: &Path) -> io::Result<PathBuf> {
    let root = data_dir.join("mount-points");
    // Made last.
    if root.join("sys").is_dir() {
        return Ok(root);
    }
    for directory in ["etc", "dev", "proc"] {
        fs::create_dir_all(root.join(directory))?;
    }
    ETC_FILES.iter().try_for_each(|name| fs::File::create(root.join("etc").join(name)).map(drop))?;
    fs::create_dir_all(root.join("sys"))?;
    Ok(root)
}

/// The files below `/etc` that every container has of its own.
pub const ETC_FILES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];

fn id(container: &str, run: i32) -> String {
    format!("{container}.{run}")
}

/// Where the containers of a pod write.
pub fn directory(pod_directory: &Path) -> PathBuf {
    pod_directory.join("oci")
}

/// Where a run of a container does.
pub fn on_disk(pod_directory: &Path, container: &str, run: i32) -> PathBuf {
    directory(pod_directory).join(id(container, run))
}

/// What the runs of a container have written, of which there is at most one as a rule: the others are removed.
pub fn written(directory: &Path, container: &str) -> Vec<PathBuf> {
    of_container(directory, container).into_iter().map(|bundle| bundle.join("upper")).collect()
}

/// What a directory has of the runs of a container: entries with its name and their numbers.
pub fn of_container(directory: &Path, container: &str) -> Vec<PathBuf> {
    let is_of = |name: &str| name.strip_prefix(container).is_some_and(|rest| rest.starts_with('.'));
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    all.filter(|entry| entry.file_name().to_str().is_some_and(is_of)).map(|entry| entry.path()).collect()
}

/// Removes a bundle, or what a container has written. It must have ended.
pub fn remove(root: &Path) -> io::Result<()> {
    match crate::images::store::remove_tree(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// `/etc/hosts` of a container: the machine's, for it has the machine's network, its own name, what its pod adds, and the
/// names of each Service, for there is no DNS that knows them.
pub fn hosts(machine: &str, hostname: &str, aliases: &[HostAlias], services: &[Vec<String>]) -> String {
    let mut text = format!("# Kubernetes-managed hosts file (host network).\n{}", machine.trim_end());
    let is_known = machine
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .any(|line| line.split_ascii_whitespace().skip(1).any(|name| name == hostname));
    if !is_known {
        text.push_str(&format!("\n127.0.0.1\t{hostname}"));
    }
    if !aliases.is_empty() {
        text.push_str("\n\n# Entries added by HostAliases.");
    }
    for alias in aliases {
        let names = alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join("\t");
        text.push_str(&format!("\n{}\t{names}", alias.ip));
    }
    if !services.is_empty() {
        text.push_str("\n\n# Services.");
    }
    for names in services {
        text.push_str(&format!("\n127.0.0.1\t{}", names.join("\t")));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_has_written_is_found_by_its_name() {
        let pod = tempfile::tempdir().expect("a directory");
        for (name, run) in [("a", 0), ("ab", 0), ("a", 3)] {
            Paths::new(pod.path(), &pod.path().join("run"), name, run, false)
                .make(&Value::Null, &Default::default())
                .expect("made");
        }
        let mut found = written(&directory(pod.path()), "a");
        found.sort();
        assert_eq!(found, ["oci/a.0/upper", "oci/a.3/upper"].map(|path| pod.path().join(path)));
    }

    #[test]
    fn a_container_knows_its_own_name_the_aliases_of_its_pod_and_services() {
        let alias = HostAlias { ip: "10.0.0.1".into(), hostnames: Some(vec!["a".into(), "b".into()]) };
        let header = "# Kubernetes-managed hosts file (host network).\n";
        for (machine, aliases, want) in [
            ("127.0.0.1 localhost\n", vec![], "127.0.0.1 localhost\n127.0.0.1\tpod\n"),
            ("::1 localhost pod", vec![], "::1 localhost pod\n"),
            ("#x pod", vec![], "#x pod\n127.0.0.1\tpod\n"),
            ("::1 pod", vec![alias], "::1 pod\n\n# Entries added by HostAliases.\n10.0.0.1\ta\tb\n"),
        ] {
            assert_eq!(hosts(machine, "pod", &aliases, &[]), format!("{header}{want}"));
        }
        let services = [vec!["a".to_owned(), "a.b".to_owned()], vec!["c.d".to_owned()]];
        let want = "::1 pod\n\n# Services.\n127.0.0.1\ta\ta.b\n127.0.0.1\tc.d\n";
        assert_eq!(hosts("::1 pod", "pod", &[], &services), format!("{header}{want}"));
    }
}
