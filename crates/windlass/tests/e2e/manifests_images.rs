//! Images by the names that the documentation of Kubernetes uses: busybox, and programs of this machine with all that
//! they load.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use tar::EntryType;
use windlass_node::images::manifest::Packing;

use crate::upstream::images::{Archive, Registry, TestImage, busybox};

/// What a pod of the work queue does: it moves an item to a list of its own, works, and takes it off, until there is none.
/// The queue is known by the name of its Service; the variables about it are said for the log.
const WORKER: &str = r#"
echo "queue at $REDIS_SERVICE_HOST:$REDIS_SERVICE_PORT"
while item=$(redis-cli -h redis --raw LMOVE job2 job2:processing LEFT RIGHT) && [ -n "$item" ]; do
    echo "Working on $item"
    sleep 0.2
    redis-cli -h redis LREM job2:processing 1 "$item" > /dev/null || exit 1
done
echo "Queue empty, exiting"
"#;

/// Pushes all of them.
pub async fn push(registry: &Registry) {
    let push = async |name: &str, tag: &str, layers: Vec<Vec<u8>>, run: Value| {
        let image = TestImage { layers, run, packing: Packing::Gzip };
        registry.push(name, tag, &image, None).await;
    };
    let base = busybox(json!({})).layers;
    let with = |layer: Vec<u8>| base.iter().cloned().chain([layer]).collect::<Vec<_>>();

    let rev = with(Archive::new().add(EntryType::Symlink, "bin/rev", "busybox", 0o777, b"").finish());
    for tag in ["latest", "1.28"] {
        push("library/busybox", tag, rev.clone(), json!({"Cmd": ["sh"]})).await;
    }
    let bash = with(layer(&[("/bin/bash", "bash")], &[]));
    for tag in ["latest", "5"] {
        push("library/bash", tag, bash.clone(), json!({"Cmd": ["bash"]})).await;
    }
    let (python, modules) = python();
    let python = with(layer(&[(&python, "python3")], &modules));
    push("library/python", "latest", python, json!({"Cmd": ["python3"]})).await;
    push("library/perl", "5.34.0", with(layer(&[("/usr/bin/perl", "perl")], &perl_modules())), json!({}))
        .await;
    // Debian has the server in its tools, as what checks files of it: the name makes the difference.
    let redis =
        layer(&[("/usr/bin/redis-check-rdb", "redis-server"), ("/usr/bin/redis-cli", "redis-cli")], &[]);
    let redis = with(redis);
    push("library/redis", "latest", redis.clone(), json!({"Cmd": ["redis-server"]})).await;
    push("myproject/job-wq-2", "latest", redis, json!({"Cmd": ["sh", "-c", WORKER]})).await;
}

/// Programs in `/usr/local/bin`, other files at their own places (a directory ends with `/`), and the libraries of all.
fn layer(programs: &[(&str, &str)], files: &[String]) -> Vec<u8> {
    let is_loaded = |file: &&String| file.ends_with(".so");
    let loaders = programs.iter().map(|(from, _)| *from);
    let loaders = loaders.chain(files.iter().filter(is_loaded).map(String::as_str));
    let libraries: BTreeSet<String> = loaders.flat_map(libraries).collect();
    let mut archive = Archive::new().file("etc/nsswitch.conf", "hosts: files dns\n");
    for (from, name) in programs {
        archive = archive.add(EntryType::Regular, &format!("usr/local/bin/{name}"), "", 0o755, &read(from));
    }
    for file in libraries.iter().chain(files) {
        let path = file.trim_start_matches('/');
        archive = match file.ends_with('/') {
            true => archive.add(EntryType::Directory, path, "", 0o755, b""),
            false => archive.add(EntryType::Regular, path, "", 0o755, &read(file)),
        };
    }
    archive.finish()
}

fn read(file: &str) -> Vec<u8> {
    std::fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The shared libraries that a file of this machine needs, and what loads them.
fn libraries(file: &str) -> Vec<String> {
    let is_path = |word: &&str| word.starts_with('/');
    said("ldd", &[file])
        .lines()
        .filter_map(|line| line.split_whitespace().find(is_path).map(str::to_owned))
        .collect()
}

fn perl_modules() -> Vec<String> {
    let script = r#"bpi(10); print "$_\n" for values %INC, @DynaLoader::dl_shared_objects"#;
    said("perl", &["-Mbignum=bpi", "-e", script]).lines().map(str::to_owned).collect()
}

/// The interpreter, and the modules that it always loads.
fn python() -> (String, Vec<String>) {
    let script = "import os, site, sys\n\
                  print(os.path.realpath(sys.executable))\n\
                  files = {getattr(module, '__file__', None) for module in list(sys.modules.values())}\n\
                  places = {place + '/' for place in sys.path if place.endswith('lib-dynload')}\n\
                  print(*sorted((files - {None}) | places), sep='\\n')";
    let text = said("python3", &["-I", "-S", "-c", script]);
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().expect("the interpreter"), lines.collect())
}

fn said(program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}
