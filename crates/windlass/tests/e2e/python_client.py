"""What a user of the Python client does, against a server whose kubeconfig is given."""

import base64
import http.client
import ssl
import sys
import threading
import time

import kubernetes
import yaml
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.stream import stream

kubeconfig = sys.argv[1]
print(f"Python {sys.version.split()[0]}, client {kubernetes.__version__}, {ssl.OPENSSL_VERSION}", flush=True)
config.load_kube_config(kubeconfig)
core, batch = client.CoreV1Api(), client.BatchV1Api()
NAMESPACE = "default"


def ok(what):
    print(f"ok: {what}", flush=True)


def equal(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def until(what, look, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = look()
        if seen:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"gave up waiting for {what}")


def strict_tls():
    """Python 3.13 and newer verify like this by default; here every version does."""
    with open(kubeconfig) as file:
        cluster = yaml.safe_load(file)["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    host, port = cluster["server"].removeprefix("https://").split(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context)
    connection.request("GET", "/livez")
    equal(connection.getresponse().read(), b"ok")
    ok("strict TLS")


def version():
    equal(client.VersionApi().get_code().minor, "36")
    ok("version")


def job(name, script):
    container = client.V1Container(name="main", image="host", command=["sh", "-c", script])
    template = client.V1PodTemplateSpec(
        spec=client.V1PodSpec(restart_policy="Never", containers=[container])
    )
    return client.V1Job(
        metadata=client.V1ObjectMeta(name=name, labels={"app": "python"}),
        spec=client.V1JobSpec(template=template, backoff_limit=2),
    )


def typed_job():
    made = batch.create_namespaced_job(NAMESPACE, job("typed", "echo from python; echo to stderr >&2"))
    equal((made.spec.completions, made.spec.parallelism, made.spec.backoff_limit), (1, 1, 2))
    events = []
    for event in watch.Watch().stream(
        batch.list_namespaced_job, NAMESPACE, label_selector="app=python", timeout_seconds=60
    ):
        events.append(event["type"])
        conditions = event["object"].status.conditions or []
        if any(condition.type == "Complete" and condition.status == "True" for condition in conditions):
            break
    equal(events[0], "ADDED")
    equal(set(events[1:]), {"MODIFIED"})
    done = batch.read_namespaced_job_status("typed", NAMESPACE)
    equal((done.status.succeeded, done.status.failed, done.status.active), (1, None, None))
    assert done.status.completion_time >= done.status.start_time
    names = [item.metadata.name for item in batch.list_job_for_all_namespaces().items]
    equal(names, ["typed"])
    ok("typed Job")


def logs():
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="job-name=typed").items
    equal([pod.status.phase for pod in pods], ["Succeeded"])
    name = pods[0].metadata.name
    equal(core.read_namespaced_pod_log(name, NAMESPACE), "from python\nto stderr\n")
    equal(core.read_namespaced_pod_log(name, NAMESPACE, tail_lines=1), "to stderr\n")
    lines = watch.Watch().stream(core.read_namespaced_pod_log, name=name, namespace=NAMESPACE)
    equal(list(lines), ["from python", "to stderr"])
    ok("logs")


def patch():
    merged = batch.patch_namespaced_job("typed", NAMESPACE, {"metadata": {"labels": {"tier": "one"}}})
    equal(merged.metadata.labels["tier"], "one")
    operations = [{"op": "replace", "path": "/metadata/labels/tier", "value": "two"}]
    patched = batch.patch_namespaced_job("typed", NAMESPACE, operations)
    equal(patched.metadata.labels["tier"], "two")
    ok("patch")


def replace():
    found = batch.read_namespaced_job("typed", NAMESPACE)
    found.metadata.annotations = {"by": "python"}
    found.spec.ttl_seconds_after_finished = 3600
    replaced = batch.replace_namespaced_job("typed", NAMESPACE, found)
    equal((replaced.metadata.annotations["by"], replaced.spec.ttl_seconds_after_finished), ("python", 3600))
    try:
        batch.replace_namespaced_job("typed", NAMESPACE, found)
        raise AssertionError("an old version was taken")
    except ApiException as error:
        equal((error.status, error.reason), (409, "Conflict"))
    ok("replace")


def delete():
    batch.delete_namespaced_job("typed", NAMESPACE, propagation_policy="Background")
    until("the end of the Job", lambda: not batch.list_namespaced_job(NAMESPACE).items)
    until("the end of its pods", lambda: not core.list_namespaced_pod(NAMESPACE).items)
    ok("delete")


def typed_pod():
    container = client.V1Container(name="main", image="host", command=["sleep", "1000"])
    spec = client.V1PodSpec(
        restart_policy="Never", containers=[container], termination_grace_period_seconds=1
    )
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="typed"), spec=spec)
    version = core.list_namespaced_pod(NAMESPACE).metadata.resource_version
    seen = []

    def look():
        for event in watch.Watch().stream(
            core.list_namespaced_pod, NAMESPACE, resource_version=version, timeout_seconds=60
        ):
            seen.append((event["type"], event["object"].status.phase))
            if event["type"] == "DELETED":
                return

    looking = threading.Thread(target=look)
    looking.start()
    core.create_namespaced_pod(NAMESPACE, pod)
    until("the pod", lambda: core.read_namespaced_pod_status("typed", NAMESPACE).status.phase == "Running")

    run = dict(stdin=False, stdout=True, stderr=True, tty=False)
    command = ["sh", "-c", "echo out; echo err >&2"]
    both = stream(core.connect_get_namespaced_pod_exec, "typed", NAMESPACE, command=command, **run)
    equal(sorted(both.split()), ["err", "out"])
    command = ["sh", "-c", "read line; echo got $line; exit 5"]
    session = stream(
        core.connect_get_namespaced_pod_exec, "typed", NAMESPACE, command=command,
        _preload_content=False, **{**run, "stdin": True},
    )
    session.write_stdin("a line\n")
    session.run_forever(timeout=60)
    equal((session.read_stdout(), session.returncode), ("got a line\n", 5))
    session.close()

    core.delete_namespaced_pod("typed", NAMESPACE)
    looking.join(60)
    assert not looking.is_alive(), seen
    equal((seen[0], seen[-1][0]), (("ADDED", "Pending"), "DELETED"))
    assert ("MODIFIED", "Running") in seen, seen
    ok("typed Pod, watch, exec")


def errors():
    try:
        core.read_namespaced_pod("none", NAMESPACE)
        raise AssertionError("found what is not there")
    except ApiException as error:
        equal((error.status, error.reason), (404, "Not Found"))
        assert 'pods \\"none\\" not found' in error.body, error.body
    bad = job("bad", "true")
    bad.spec.template.spec.restart_policy = "Always"
    try:
        batch.create_namespaced_job(NAMESPACE, bad)
        raise AssertionError("a bad Job was taken")
    except ApiException as error:
        equal(error.status, 422)
        assert "spec.template.spec.restartPolicy" in error.body, error.body
    ok("errors")


def dynamic():
    dynamic = DynamicClient(client.ApiClient())
    jobs = dynamic.resources.get(api_version="batch/v1", kind="Job")
    container = {"name": "main", "image": "host", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "dynamic"}, "spec": {"template": template}}
    made = jobs.create(body=body, namespace=NAMESPACE)
    equal(made.spec.completionMode, "NonIndexed")
    for event in jobs.watch(namespace=NAMESPACE, timeout=60):
        if event["object"].status.succeeded == 1:
            break
    patched = jobs.patch(
        body={"metadata": {"labels": {"a": "b"}}}, name="dynamic", namespace=NAMESPACE,
        content_type="application/merge-patch+json",
    )
    equal(patched.metadata.labels.a, "b")
    jobs.delete(name="dynamic", namespace=NAMESPACE, body={"propagationPolicy": "Background"})
    until("the end of the Job", lambda: not jobs.get(namespace=NAMESPACE).items)
    ok("dynamic client")


def server_side_apply():
    dynamic = DynamicClient(client.ApiClient())
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1", "b": "2"}}
    maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="python")
    del body["data"]["b"]
    applied = maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="python")
    equal(applied.data.to_dict(), {"a": "1"})
    equal([entry.manager for entry in applied.metadata.managedFields], ["python"])
    body["data"]["a"] = "9"
    try:
        maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="rival")
        raise AssertionError("a field of another manager was taken")
    except kubernetes.dynamic.exceptions.ConflictError as error:
        equal(error.status, 409)
    forced = maps.server_side_apply(
        body=body, namespace=NAMESPACE, field_manager="rival", force_conflicts=True
    )
    equal(forced.data.a, "9")
    ok("server-side apply")


for part in (
    strict_tls, version, typed_job, logs, patch, replace, delete, typed_pod, errors, dynamic, server_side_apply,
):
    part()
