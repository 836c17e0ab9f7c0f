//! What clients read to learn what is served.

mod common;

use axum::body::Body;
use common::{CONFIGMAPS, cluster, failure};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

#[tokio::test]
async fn the_groups_are_listed_in_the_order_in_which_they_are_preferred() {
    let cluster = cluster();
    let want = json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "localhost"}],
    });
    assert_eq!(cluster.get("/api").await.body, want);
    let groups = [
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "batch",
        "policy",
        "rbac.authorization.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
    ];
    let want = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.map(group)});
    assert_eq!(cluster.get("/apis?timeout=32s").await.body, want);
    let mut want = group("batch");
    want["kind"] = json!("APIGroup");
    want["apiVersion"] = json!("v1");
    assert_eq!(cluster.get("/apis/batch").await.body, want);
    let text = "the server does not allow this method on the requested resource";
    let refused = cluster.post("/apis", json!({})).await;
    assert_eq!(refused.body, failure(405, "MethodNotAllowed", text, json!({})));
}

#[tokio::test]
async fn the_resources_of_a_group_are_listed_with_their_verbs_and_subresources() {
    let cluster = cluster();
    let status = |name: &str, kind: &str| {
        json!({
            "name": format!("{name}/status"), "singularName": "", "namespaced": true, "kind": kind,
            "verbs": ["get", "patch", "update"],
        })
    };
    let want = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "batch/v1",
        "resources": [
            {
                "name": "cronjobs", "singularName": "cronjob", "namespaced": true, "kind": "CronJob",
                "verbs": ALL, "shortNames": ["cj"], "categories": ["all"],
            },
            status("cronjobs", "CronJob"),
            {
                "name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job",
                "verbs": ALL, "categories": ["all"],
            },
            status("jobs", "Job"),
        ],
    });
    assert_eq!(cluster.get("/apis/batch/v1").await.body, want);

    let core = cluster.get("/api/v1").await.body;
    assert_eq!(core["apiVersion"], Value::Null, "upstream: the core list does not name its own version");
    let resources = core["resources"].as_array().expect("a list");
    let find = |name: &str| resources.iter().find(|r| r["name"] == name).cloned().expect("in the list");
    let eviction = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction",
        "group": "policy", "version": "v1", "verbs": ["create"],
    });
    assert_eq!(find("pods/eviction"), eviction);
    let namespaces = json!({
        "name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace",
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": ["ns"],
    });
    assert_eq!(find("namespaces"), namespaces);
    let names: Vec<&str> = resources.iter().filter_map(|r| r["name"].as_str()).collect();
    let want = [
        "bindings",
        "configmaps",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/finalize",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/attach",
        "pods/binding",
        "pods/eviction",
        "pods/exec",
        "pods/log",
        "pods/status",
        "podtemplates",
        "replicationcontrollers",
        "resourcequotas",
        "resourcequotas/status",
        "secrets",
        "serviceaccounts",
        "serviceaccounts/token",
        "services",
        "services/status",
    ];
    assert_eq!(names, want);
}

#[tokio::test]
async fn those_who_ask_get_all_groups_in_one_document() {
    let cluster = cluster();
    let request = Request::builder().uri("/api").header("accept", AGGREGATED).body(Body::empty());
    let response = cluster.server.router().oneshot(request.expect("a request")).await.expect("infallible");
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(response.headers()["content-type"], media);
    let groups = cluster.get_as("/apis", AGGREGATED).await.body;
    assert_eq!(
        (&groups["kind"], &groups["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let kind = |kind: &str| json!({"group": "batch", "version": "v1", "kind": kind});
    let status = |of: &str| json!([{"subresource": "status", "responseKind": kind(of), "verbs": ["get", "patch", "update"]}]);
    let want = json!({
        "metadata": {"name": "batch"},
        "versions": [{
            "version": "v1", "freshness": "Current",
            "resources": [
                {
                    "resource": "cronjobs", "responseKind": kind("CronJob"), "scope": "Namespaced",
                    "singularResource": "cronjob", "verbs": ALL, "shortNames": ["cj"], "categories": ["all"],
                    "subresources": status("CronJob"),
                },
                {
                    "resource": "jobs", "responseKind": kind("Job"), "scope": "Namespaced",
                    "singularResource": "job", "verbs": ALL, "categories": ["all"],
                    "subresources": status("Job"),
                },
            ],
        }],
    });
    let items = groups["items"].as_array().expect("items");
    assert_eq!(items.iter().find(|group| group["metadata"]["name"] == "batch"), Some(&want));
    let core = cluster.get_as("/api", AGGREGATED).await.body;
    assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(core["items"][0]["metadata"], json!({"name": ""}));
    let beta = cluster.get_as("/api", &AGGREGATED[AGGREGATED.find(',').expect("two") + 1..]).await.body;
    assert_eq!(beta["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    // kubectl's first wish is one that we do not know
    let peer = format!("{},{AGGREGATED}", AGGREGATED.split(',').next().expect("one").replace("v=v2", "v=v3"));
    assert_eq!(cluster.get_as("/api", &peer).await.body, core);
}

async fn text(response: Response<Body>) -> (u16, String, String) {
    let code = response.status().as_u16();
    let media = response.headers()["content-type"].to_str().expect("text").to_owned();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, media, String::from_utf8(bytes.to_vec()).expect("text"))
}

#[tokio::test]
async fn health_is_told_in_a_word_or_check_by_check() {
    let cluster = cluster();
    for (path, want) in [
        ("/healthz", "ok"),
        ("/livez", "ok"),
        ("/readyz", "ok"),
        ("/readyz/ping", "ok"),
        ("/livez?verbose", "[+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n"),
        ("/livez/etcd", "ok"),
        (
            "/readyz?verbose=true&exclude=ping",
            "[+]ping excluded: ok\n[+]log ok\n[+]etcd ok\n[+]shutdown ok\nreadyz check passed\n",
        ),
    ] {
        let answer = text(cluster.raw(Method::GET, path, "", String::new()).await).await;
        assert_eq!(answer, (200, "text/plain; charset=utf-8".to_owned(), want.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn the_version_has_all_its_fields() {
    let version = cluster().get("/version").await.body;
    let fields: Vec<&String> = version.as_object().expect("a map").keys().collect();
    let want = [
        "buildDate",
        "compiler",
        "gitCommit",
        "gitTreeState",
        "gitVersion",
        "goVersion",
        "major",
        "minor",
        "platform",
    ];
    assert_eq!(fields, want);
    assert!(version.as_object().expect("a map").values().all(Value::is_string), "{version}");
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
}

#[tokio::test]
async fn every_stored_kind_has_a_schema_and_a_patch_that_validates_fields() {
    let cluster = cluster();
    let index = cluster.get("/openapi/v3").await.body;
    let groups = cluster.get_as("/apis", AGGREGATED).await.body["items"].clone();
    let mut kinds = 0;
    for group in groups.as_array().expect("items") {
        let path = format!("apis/{}/v1", group["metadata"]["name"].as_str().expect("a name"));
        let url = index["paths"][&path]["serverRelativeURL"].as_str().expect("in the index");
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = cluster.get(url).await.body;
        for resource in group["versions"][0]["resources"].as_array().expect("a list") {
            if resource["verbs"] == json!(["create"]) {
                continue;
            }
            kinds += 1;
            let kind = &resource["responseKind"];
            let paths = document["paths"].as_object().expect("paths");
            let patch = paths.values().map(|path| &path["patch"]);
            let patch =
                patch.filter(|patch| patch["x-kubernetes-group-version-kind"] == *kind).collect::<Vec<_>>();
            assert!(!patch.is_empty(), "{kind}");
            let names: Vec<&Value> =
                patch[0]["parameters"].as_array().expect("a list").iter().map(|p| &p["name"]).collect();
            assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation"]);
            let schemas = document["components"]["schemas"].as_object().expect("schemas");
            let own =
                schemas.values().filter(|s| s["x-kubernetes-group-version-kind"] == json!([kind])).count();
            assert_eq!(own, 1, "{kind}");
        }
    }
    assert_eq!(kinds, 14, "of the groups with a name");
    let job = cluster.get("/openapi/v3/apis/batch/v1").await.body["components"]["schemas"]["io.k8s.api.batch.v1.Job"]
        .clone();
    assert_eq!(
        job["properties"]["spec"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.batch.v1.JobSpec"}])
    );
    assert_eq!(job["required"], json!([]));
}

#[tokio::test]
async fn the_older_openapi_is_there_and_empty() {
    let cluster = cluster();
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = Request::builder().uri("/openapi/v2").header("accept", accept).body(Body::empty());
    let response = cluster.server.router().oneshot(request.expect("a request")).await.expect("infallible");
    let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf".to_owned();
    assert_eq!(text(response).await, (200, media, String::new()));
    assert_eq!(cluster.get("/openapi/v2").await.body["paths"], json!({}));
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let cluster = cluster();
    let big = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(200_000)}});
    assert_eq!(cluster.post(CONFIGMAPS, big).await.code, 201);
    let encoding = async |path: &str, accept: &str| {
        let request = Request::builder().uri(path).header("accept-encoding", accept).body(Body::empty());
        let response =
            cluster.server.router().oneshot(request.expect("a request")).await.expect("infallible");
        let encoding =
            response.headers().get("content-encoding").map(|v| v.to_str().expect("text").to_owned());
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (encoding, bytes)
    };
    let (plain_encoding, plain) = encoding(CONFIGMAPS, "identity").await;
    assert_eq!(plain_encoding, None);
    let (zipped_encoding, zipped) = encoding(CONFIGMAPS, "gzip").await;
    assert_eq!(zipped_encoding.as_deref(), Some("gzip"));
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&zipped[..]), &mut out).expect("gzip");
    assert_eq!(out, plain);
    let (small_encoding, _) = encoding("/api/v1/namespaces", "gzip").await;
    assert_eq!(small_encoding, None, "small answers are sent as they are");
}
