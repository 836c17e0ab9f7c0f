//! Protobuf bodies, as Go clients send them, against the whole server: every verb that has one.

mod common;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{Answer, CONFIGMAPS, Cluster, JOBS, PODS, cluster, failure};
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::auth::certificate::Certified;
use windlass_apiserver::auth::tokens::Tokens;
use windlass_apiserver::auth::{Guard, Identity, Limits, Peer};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body of this kind and name that conformance/protobuf made, and its JSON.
fn sent(kind: &str, name: &str) -> (Vec<u8>, Value) {
    let prefix = format!("{kind} {name} ");
    let line = include_str!("../src/protobuf/golden.txt").lines().find_map(|line| line.strip_prefix(&prefix));
    let (body, json) = line.and_then(|line| line.split_once(' ')).expect("a line of golden.txt");
    (STANDARD.decode(body).expect("base64"), serde_json::from_str(json).expect("JSON"))
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", PROTOBUF);
    request
        .header("accept", format!("{PROTOBUF},application/json"))
        .body(Body::from(body))
        .expect("a request")
}

async fn read(response: http::Response<Body>) -> Answer {
    assert_eq!(response.headers()["content-type"], "application/json");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { code, body: serde_json::from_slice(&bytes).expect("JSON"), warnings: Vec::new() }
}

async fn send(cluster: &Cluster, method: Method, path: &str, body: Vec<u8>) -> Answer {
    let router = cluster.server.router();
    read(router.oneshot(request(method, path, body)).await.expect("infallible")).await
}

#[tokio::test]
async fn an_object_made_from_protobuf_is_the_one_made_from_its_json() {
    let cases = [
        ("Job", JOBS),
        ("CronJob", "/apis/batch/v1/namespaces/default/cronjobs"),
        ("Pod", PODS),
        ("ConfigMap", CONFIGMAPS),
        ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ];
    for (kind, path) in cases {
        let (body, json) = sent(kind, "sent");
        let strict = format!("{path}?fieldValidation=Strict");
        let from_protobuf = send(&cluster(), Method::POST, &strict, body).await;
        assert_eq!(from_protobuf.code, 201, "{kind} {from_protobuf:?}");
        assert_eq!(from_protobuf, cluster().post(&strict, json).await, "{kind}");
    }
}

#[tokio::test]
async fn a_put_of_protobuf_replaces_the_object() {
    let cluster = cluster();
    let (body, json) = sent("ConfigMap", "sent");
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "cm"}, "data": {"old": "1"}})).await;
    let put = send(&cluster, Method::PUT, &format!("{CONFIGMAPS}/cm"), body).await;
    assert_eq!(
        (put.code, &put.body["data"], &put.body["binaryData"]),
        (200, &json["data"], &json["binaryData"])
    );
}

#[tokio::test]
async fn delete_options_in_protobuf_count() {
    let cluster = cluster();
    let (body, _) = sent("Job", "sent");
    let uid = send(&cluster, Method::POST, JOBS, body).await.body["metadata"]["uid"].clone();
    let path = format!("{JOBS}/pi");
    let (other, _) = sent("DeleteOptions", "on-another-uid");
    let refused = send(&cluster, Method::DELETE, &path, other).await;
    assert_eq!((refused.code, &refused.body["reason"]), (409, &json!("Conflict")));
    let (background, _) = sent("DeleteOptions", "in-the-background");
    let deleted = send(&cluster, Method::DELETE, &path, background).await;
    assert_eq!((deleted.code, &deleted.body["details"]["uid"]), (200, &uid));
    // No orphan finalizer holds it: the policy was read.
    assert_eq!(cluster.get(&path).await.code, 404);
}

#[tokio::test]
async fn a_delete_with_no_body_is_a_delete() {
    let cluster = cluster();
    cluster.pod("p").await;
    assert_eq!(send(&cluster, Method::DELETE, &format!("{PODS}/p"), Vec::new()).await.code, 200);
}

#[tokio::test]
async fn a_pod_is_bound_and_evicted_with_protobuf() {
    let cluster = cluster();
    cluster.pod("p").await;
    let (binding, _) = sent("Binding", "sent");
    assert_eq!(send(&cluster, Method::POST, &format!("{PODS}/p/binding"), binding).await.code, 201);
    assert_eq!(cluster.get(&format!("{PODS}/p")).await.body["spec"]["nodeName"], "n1");
    let (eviction, _) = sent("Eviction", "sent");
    assert_eq!(send(&cluster, Method::POST, &format!("{PODS}/p/eviction"), eviction).await.code, 201);
    // A grace period of zero is a period, not the absence of one.
    assert_eq!(cluster.get(&format!("{PODS}/p")).await.code, 404);
}

#[tokio::test]
async fn reviews_and_roles_in_protobuf_pass_the_guard() {
    let cluster = cluster();
    let guard = Guard::new(&cluster.server, Tokens::none(), Limits::default()).expect("a guard");
    let identity = Identity::new("root", vec!["system:masters".to_owned()]);
    let root = Peer {
        certified: Some(Certified { identity, not_after: i64::MAX }),
        has_certificate: true,
        address: None,
    };
    let (review, _) = sent("SelfSubjectAccessReview", "sent");
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = read(guard.answer(&root, request(Method::POST, path, review)).await).await;
    assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(true)));
    // A role is looked at before it is stored: nobody may give what they do not have.
    let (role, _) = sent("ClusterRole", "sent");
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let answer = read(guard.answer(&root, request(Method::POST, path, role)).await).await;
    assert_eq!((answer.code, &answer.body["metadata"]["name"]), (201, &json!("reader")));
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused_with_the_texts_of_upstream() {
    let cluster = cluster();
    let (job, _) = sent("Job", "sent");
    let (configmap, _) = sent("ConfigMap", "sent");
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    let mut wrong = job[..4 + 17].to_vec();
    wrong.extend(b"\x12\x02\x08\x01");
    let cases = [
        (Method::POST, JOBS, Vec::new(), "the object provided is unrecognized (must be of type Job): empty data (<empty>)".to_owned()),
        (Method::POST, JOBS, b"{}".to_vec(), format!("the object provided is unrecognized (must be of type Job): {prefix} ({{}})")),
        (
            Method::POST,
            JOBS,
            job[..40].to_vec(),
            "the object provided is unrecognized (must be of type Job): unexpected EOF \
             (6b3873000a0f0a0862617463682f763112034a6f621285010a190a027069 ...)"
                .to_owned(),
        ),
        (Method::POST, JOBS, wrong, "Job in version \"v1\" cannot be handled as a Job: proto: wrong wireType = 0 for field metadata".to_owned()),
        (
            Method::POST,
            JOBS,
            b"k8s\0\x0a\x12\x0a\x08batch/v1\x12\x06Widget".to_vec(),
            "Widget in version \"v1\" cannot be handled as a Job: no kind \"Widget\" is registered for version \"batch/v1\"".to_owned(),
        ),
        (Method::DELETE, "/apis/batch/v1/namespaces/default/jobs/pi", b"{}".to_vec(), prefix.to_owned()),
        (Method::POST, JOBS, configmap, "ConfigMap in version \"v1\" cannot be handled as a Job: converting (v1.ConfigMap) to (batch.Job): unknown conversion".to_owned()),
    ];
    for (method, path, body, message) in cases {
        let answer = send(&cluster, method.clone(), path, body).await;
        let expected = failure(400, "BadRequest", &message, Value::Null);
        assert_eq!((answer.code, answer.body), (400, expected), "{method} {path}");
    }
}

#[tokio::test]
async fn an_object_that_would_become_too_long_is_refused() {
    // A Pod with 200,000 containers that say nothing: two bytes each, and 26 in JSON.
    let containers = [0x12, 0x00].repeat(200_000);
    let mut pod = b"\x12".to_vec();
    varint(&mut pod, containers.len());
    pod.extend(containers);
    let mut body = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12".to_vec();
    varint(&mut body, pod.len());
    body.extend(pod);
    let answer = send(&cluster(), Method::POST, PODS, body).await;
    let message = "Request entity too large: limit is 3145728";
    assert_eq!(
        (answer.code, answer.body),
        (413, failure(413, "RequestEntityTooLarge", message, Value::Null))
    );
}

fn varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[tokio::test]
async fn other_media_types_and_protobuf_patches_are_refused() {
    let cluster = cluster();
    let answer = cluster.send(Method::POST, JOBS, "application/cbor", String::new()).await;
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!((answer.code, answer.body), (415, failure(415, "UnsupportedMediaType", message, Value::Null)));
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "cm"}})).await;
    let patch = send(&cluster, Method::PATCH, &format!("{CONFIGMAPS}/cm"), sent("ConfigMap", "sent").0).await;
    assert_eq!(patch.code, 415);
}
