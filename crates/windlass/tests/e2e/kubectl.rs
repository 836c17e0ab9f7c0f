//! `windlass server` and the real kubectl, which sends typed objects as protobuf and takes no other form when refused.

use std::path::Path;
use std::process::{Command, Stdio};

use windlass_conformance::assets;

use crate::server::Served;

/// What a command prints, both ways, and whether it says that it succeeded.
pub fn kubectl(directory: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new(assets::find("kubectl").expect("kubectl of Kubernetes 1.36"))
        .args(args)
        .env("KUBECONFIG", directory.join("kubeconfig"))
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .expect("kubectl runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn typed_objects_of_kubectl_are_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let cases: [(&[&str], bool, &str); 15] = [
        (&["create", "job", "a", "--image=host", "--", "true"], true, "job.batch/a created\n"),
        (
            &["create", "cronjob", "x", "--image=host", "--schedule=0 3 * * *", "--", "true"],
            true,
            "cronjob.batch/x created\n",
        ),
        (&["create", "job", "b", "--from=cronjob/x"], true, "job.batch/b created\n"),
        (
            &[
                "get",
                "job",
                "b",
                "-o",
                "jsonpath={.metadata.ownerReferences[0].name} {.metadata.annotations}",
            ],
            true,
            "x {\"cronjob.kubernetes.io/instantiate\":\"manual\"}",
        ),
        (&["create", "configmap", "c", "--from-literal=k=v"], true, "configmap/c created\n"),
        (
            &["create", "configmap", "c", "--from-literal=k=v"],
            false,
            "error: failed to create configmap: configmaps \"c\" already exists\n",
        ),
        (&["create", "secret", "generic", "s", "--from-literal=k=v"], true, "secret/s created\n"),
        (&["get", "secret", "s", "-o", "jsonpath={.type} {.data}"], true, "Opaque {\"k\":\"dg==\"}"),
        (&["create", "namespace", "n"], true, "namespace/n created\n"),
        (
            &["create", "pdb", "d", "--selector=a=b", "--min-available=50%"],
            true,
            "poddisruptionbudget.policy/d created\n",
        ),
        (&["get", "pdb", "d", "-o", "jsonpath={.spec.minAvailable}"], true, "50%"),
        (
            &["run", "p", "--image=host", "--restart=Never", "--command", "--", "true"],
            true,
            "pod/p created\n",
        ),
        (&["auth", "can-i", "create", "jobs"], true, "yes\n"),
        (&["delete", "pod", "p"], true, "pod \"p\" deleted from default namespace\n"),
        (&["delete", "job", "a"], true, "job.batch \"a\" deleted from default namespace\n"),
    ];
    for (args, is_success, text) in cases {
        assert_eq!(
            kubectl(directory.path(), args),
            (is_success, text.to_owned()),
            "kubectl {}",
            args.join(" ")
        );
    }
    assert_eq!(served.stop(), Some(0));
}
