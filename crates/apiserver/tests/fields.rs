//! Field validation, and the rules of ConfigMaps and Secrets.

mod common;

use common::{CONFIGMAPS, JOBS, cluster, configmap, failure, job};
use http::Method;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn with_typos(name: &str) -> Value {
    let mut body = job(name);
    body["spec"]["completionz"] = json!(3);
    body["spec"]["template"]["spec"]["containers"][0]["comand"] = json!({"x": 1});
    body
}

fn warning(text: &str) -> String {
    format!("299 - \"{}\"", text.replace('"', "\\\""))
}

const TYPOS: [&str; 2] =
    ["unknown field \"spec.completionz\"", "unknown field \"spec.template.spec.containers[0].comand\""];

#[tokio::test]
async fn unknown_fields_are_refused_warned_about_or_ignored_as_asked() {
    let cluster = cluster();
    let refused = cluster.post(&format!("{JOBS}?fieldValidation=Strict"), with_typos("a")).await;
    let text = format!(
        "Job in version \"v1\" cannot be handled as a Job: strict decoding error: {}",
        TYPOS.join(", ")
    );
    assert_eq!(refused.body, failure(400, "BadRequest", &text, Value::Null));
    for (query, name, want) in [
        ("", "b", TYPOS.map(warning).to_vec()),
        ("?fieldValidation=Warn", "c", TYPOS.map(warning).to_vec()),
        ("?fieldValidation=Ignore", "d", vec![]),
    ] {
        let made = cluster.post(&format!("{JOBS}{query}"), with_typos(name)).await;
        assert_eq!((made.code, made.warnings), (201, want), "{query}");
    }
    let refused = cluster.post(&format!("{JOBS}?fieldValidation=Loud"), job("e")).await;
    let message = "Unsupported value: \"Loud\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    let details = json!({
        "group": "meta.k8s.io", "kind": "CreateOptions",
        "causes": [{"reason": "FieldValueNotSupported", "message": message, "field": "fieldValidation"}],
    });
    let text = format!("CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: {message}");
    assert_eq!(refused.body, failure(422, "Invalid", &text, details));
}

#[tokio::test]
async fn fields_that_are_given_twice_are_told_in_the_order_of_the_document() {
    let cluster = cluster();
    let body = r#"{"metadata": {"name": "c", "labels": {"l": "1", "l": "2"}}, "datum": 1, "data": {"a": "1"}, "data": {"a": "2"}}"#;
    let texts =
        ["duplicate field \"metadata.labels.l\"", "unknown field \"datum\"", "duplicate field \"data\""];
    let path = format!("{CONFIGMAPS}?fieldValidation=Strict");
    let refused = cluster.send(Method::POST, &path, "application/json", body.to_owned()).await;
    let text = format!(
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {}",
        texts.join(", ")
    );
    assert_eq!(refused.body, failure(400, "BadRequest", &text, Value::Null));
    let made = cluster.send(Method::POST, CONFIGMAPS, "application/json", body.to_owned()).await;
    assert_eq!((made.code, made.warnings), (201, texts.map(warning).to_vec()));
    assert_eq!(made.body["data"], json!({"a": "2"}), "the last one counts");
    let put =
        cluster.send(Method::PUT, &format!("{CONFIGMAPS}/c"), "application/json", body.to_owned()).await;
    assert_eq!((put.code, put.warnings), (200, texts.map(warning).to_vec()));
}

#[tokio::test]
async fn a_patch_is_checked_in_what_it_changes() {
    let cluster = cluster();
    let mut body = configmap("c");
    body["old"] = json!(1);
    let made = cluster.post(&format!("{CONFIGMAPS}?fieldValidation=Ignore"), body).await;
    assert_eq!((made.code, made.warnings), (201, vec![]));
    let path = format!("{CONFIGMAPS}/c");
    let quiet = cluster.merge(&path, json!({"data": {"b": "1"}})).await;
    assert_eq!((quiet.code, quiet.warnings), (200, vec![]), "what was there already is not told again");
    let told = cluster.merge(&path, json!({"datum": 1})).await;
    assert_eq!((told.code, told.warnings), (200, vec![warning("unknown field \"datum\"")]));

    let strict = format!("{path}?fieldValidation=Strict");
    let refused = cluster.strategic(&strict, json!({"other": {"b": [1, "x"], "a": true}})).await;
    let message =
        "Invalid value: \"map[other:map[a:true b:[1 x]]]\": strict decoding error: unknown field \"other\"";
    let details = json!({"causes": [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]});
    let text = format!(" \"\" is invalid: patch: {message}");
    assert_eq!(refused.body, failure(422, "Invalid", &text, details));

    let merge = "application/merge-patch+json";
    let twice = r#"{"data": {"z": "1", "z": "2"}}"#.to_owned();
    let told = cluster.send(Method::PATCH, &path, merge, twice.clone()).await;
    assert_eq!((told.code, told.warnings), (200, vec![warning("duplicate field \"data.z\"")]));
    let refused = cluster.send(Method::PATCH, &strict, merge, twice).await;
    let message = refused.body["message"].as_str().expect("a message");
    assert!(message.ends_with(": strict decoding error: duplicate field \"data.z\""), "{message}");
    let operations = r#"[{"op": "add", "op": "add", "path": "/data/y", "value": "1"}]"#.to_owned();
    let told = cluster.send(Method::PATCH, &path, "application/json-patch+json", operations).await;
    assert_eq!((told.code, told.warnings), (200, vec![warning("json patch duplicate field \"[0].op\"")]));
}

#[tokio::test]
async fn an_object_of_the_wrong_shape_is_refused_also_where_no_rule_looks_at_it() {
    let cluster = cluster();
    let made = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"a": 1}})).await;
    assert_eq!(made.code, 400);
    let message = made.body["message"].as_str().expect("a message");
    assert!(
        message.starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: "),
        "{message}"
    );
    cluster.post(CONFIGMAPS, configmap("c")).await;
    let patched = cluster.merge(&format!("{CONFIGMAPS}/c?fieldValidation=Ignore"), json!({"data": 1})).await;
    assert_eq!((patched.code, &patched.body["details"]["causes"][0]["field"]), (422, &json!("patch")));
}

#[tokio::test]
async fn the_text_of_a_secret_becomes_its_data() {
    let cluster = cluster();
    let body = json!({
        "metadata": {"name": "s"}, "data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new", "c": "ü"},
    });
    let made = cluster.post(SECRETS, body).await;
    let mut want = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": "s", "namespace": "default", "resourceVersion": "6",
            "uid": "00000000-0000-4000-8000-000000000004", "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{
                "manager": "unknown", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}, "f:type": {}},
            }],
        },
        "data": {"a": "bmV3", "b": "Yg==", "c": "w7w="},
    });
    assert_eq!((made.code, made.body), (201, want.clone()));
    let patched = cluster.merge(&format!("{SECRETS}/s"), json!({"stringData": {"b": "x"}})).await;
    want["data"]["b"] = json!("eA==");
    want["metadata"]["resourceVersion"] = json!("7");
    assert_eq!((patched.code, patched.body), (200, want.clone()));
    want["type"] = json!("example.com/other");
    let refused = cluster.put(&format!("{SECRETS}/s"), want).await;
    let message = "Invalid value: \"example.com/other\": field is immutable";
    let details = json!({
        "name": "s", "kind": "Secret",
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": "type"}],
    });
    let text = format!("Secret \"s\" is invalid: type: {message}");
    assert_eq!(refused.body, failure(422, "Invalid", &text, details));
}

#[tokio::test]
async fn what_is_immutable_stays_as_it_is() {
    let cluster = cluster();
    let mut body = configmap("c");
    body["immutable"] = json!(true);
    assert_eq!(cluster.post(CONFIGMAPS, body).await.code, 201);
    let path = format!("{CONFIGMAPS}/c");
    assert_eq!(cluster.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code, 200);
    let message = "Forbidden: field is immutable when `immutable` is set";
    let cause = |field: &str| json!({"reason": "FieldValueForbidden", "message": message, "field": field});
    let refused = cluster.merge(&path, json!({"immutable": false, "data": {"a": "2"}})).await;
    let details = json!({"name": "c", "kind": "ConfigMap", "causes": [cause("immutable"), cause("data")]});
    let text = format!("ConfigMap \"c\" is invalid: [immutable: {message}, data: {message}]");
    assert_eq!(refused.body, failure(422, "Invalid", &text, details));
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": "Yg=="}, "immutable": true});
    assert_eq!(cluster.post(SECRETS, secret).await.code, 201);
    let refused = cluster.merge(&format!("{SECRETS}/s"), json!({"stringData": {"a": "2"}})).await;
    assert_eq!((refused.code, &refused.body["details"]["causes"]), (422, &json!([cause("data")])));
}
