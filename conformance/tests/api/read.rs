//! GET of objects and collections: selectors, pages, versions.

use http::Method;
use serde_json::{Value, json};
use windlass_conformance::session::Session;

use crate::objects::{config_map, pod, with};

async fn fill(s: &Session, names: &[(&str, Value)]) {
    for (name, labels) in names {
        let map = with(config_map(name), "/metadata/labels", labels.clone());
        s.prepare(Method::POST, &s.core("configmaps"), map).await.expect("prepared");
    }
}

/// Label and field selectors, good and bad.
pub async fn selectors(s: &mut Session) {
    let (maps, pods, jobs) = (s.core("configmaps"), s.core("pods"), s.jobs());
    let labels = [
        ("a", json!({"app": "x", "n": "1"})),
        ("b", json!({"app": "y", "n": "2"})),
        ("c", json!({"app": "z"})),
        ("d", json!({})),
    ];
    fill(s, &labels).await;
    let labels = [
        "app=x",
        "app==x",
        "app!=x",
        "app in (x,y)",
        "app notin (x,y)",
        "app",
        "!app",
        "n>1",
        "n<2",
        "n>0,n<2",
        "app=x,n=1",
        "app=x,app=y",
        "app in ()",
        "app=",
        "app in (x",
        "app=x y",
        "=x",
        "a b=c",
        "app>x",
        "-bad=x",
        "app=x,",
        "n>1,!zzz",
    ];
    for selector in labels {
        let query: String = selector.bytes().map(|byte| format!("%{byte:02x}")).collect();
        s.get(&format!("labels {selector}"), &format!("{maps}?labelSelector={query}")).await;
    }
    for selector in [
        "metadata.name=a",
        "metadata.name!=a",
        "metadata.name==a,metadata.namespace=default",
        "data.a=1",
        "metadata.name",
        "metadata.name>a",
        "metadata.labels=x",
    ] {
        let query = selector.replace('=', "%3D").replace('>', "%3E");
        s.get(&format!("fields {selector}"), &format!("{maps}?fieldSelector={query}")).await;
    }
    s.prepare(Method::POST, &pods, pod("p")).await.expect("prepared");
    for selector in [
        "status.phase=Pending",
        "spec.nodeName=",
        "spec.nodeName!=",
        "spec.restartPolicy=Never",
        "status.phase!=Pending",
        "spec.schedulerName=default-scheduler",
        "spec.hostNetwork=false",
        "status.podIPs=",
        "spec.serviceAccountName=default",
        "status.nominatedNodeName=",
        "spec.containers=c",
        "spec.host=",
    ] {
        let query = selector.replace('=', "%3D");
        s.get(&format!("pods by {selector}"), &format!("{pods}?fieldSelector={query}")).await;
    }
    for selector in ["status.successful=0", "status.successful!=0", "spec.parallelism=1"] {
        s.get(
            &format!("jobs by {selector}"),
            &format!("{jobs}?fieldSelector={}", selector.replace('=', "%3D")),
        )
        .await;
    }
}

/// limit and continue.
pub async fn pages(s: &mut Session) {
    let maps = s.core("configmaps");
    let none = json!({"a": "b"});
    fill(s, &["a", "b", "c", "d", "e"].map(|name| (name, none.clone()))).await;
    let first = s.get("first", &format!("{maps}?limit=2")).await;
    let token = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let second = s.get("second", &format!("{maps}?limit=2&continue={token}")).await;
    let token = second["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    s.get("last", &format!("{maps}?limit=2&continue={token}")).await;
    s.get("last without a limit", &format!("{maps}?continue={token}")).await;
    s.get("with a selector", &format!("{maps}?limit=2&labelSelector=a%3Db")).await;
    s.get("as many as there are", &format!("{maps}?limit=5")).await;
    s.get("a token that is none", &format!("{maps}?limit=2&continue=%21%21%21")).await;
    s.get("a token with a version", &format!("{maps}?limit=2&continue={token}&resourceVersion=5")).await;
    s.get("a token with a match", &format!("{maps}?limit=2&continue={token}&resourceVersionMatch=Exact"))
        .await;
    s.get("a limit that is none", &format!("{maps}?limit=many")).await;
    s.get("a negative limit", &format!("{maps}?limit=-1")).await;
}

/// resourceVersion and resourceVersionMatch.
pub async fn versions(s: &mut Session) {
    let maps = s.core("configmaps");
    fill(s, &[("a", json!({}))]).await;
    let list = s.get("most recent", &maps).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    fill(s, &[("b", json!({}))]).await;
    let list = s.get("one more", &maps).await;
    let latest = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    s.get(
        "not older than the latest",
        &format!("{maps}?resourceVersion={latest}&resourceVersionMatch=NotOlderThan"),
    )
    .await;
    s.get("the latest without a match", &format!("{maps}?resourceVersion={latest}")).await;
    s.get("any", &format!("{maps}?resourceVersion=0")).await;
    s.get("any, said so", &format!("{maps}?resourceVersion=0&resourceVersionMatch=NotOlderThan")).await;
    s.get("exactly the earlier", &format!("{maps}?resourceVersion={version}&resourceVersionMatch=Exact"))
        .await;
    s.get("the earlier with a limit", &format!("{maps}?resourceVersion={version}&limit=5")).await;
    s.get(
        "not older than the earlier, with a limit",
        &format!("{maps}?resourceVersion={version}&limit=5&resourceVersionMatch=NotOlderThan"),
    )
    .await;
    s.get("exactly any", &format!("{maps}?resourceVersion=0&resourceVersionMatch=Exact")).await;
    s.get("a match alone", &format!("{maps}?resourceVersionMatch=Exact")).await;
    s.get("a match that is none", &format!("{maps}?resourceVersion=1&resourceVersionMatch=About")).await;
    s.get("no number", &format!("{maps}?resourceVersion=x")).await;
    s.get("initial events of a list", &format!("{maps}?sendInitialEvents=true")).await;
    s.get("one object, any", &format!("{maps}/a?resourceVersion=0")).await;
    s.get("one object, not older", &format!("{maps}/a?resourceVersion={latest}")).await;
    s.get("one object, no number", &format!("{maps}/a?resourceVersion=x")).await;
}

/// What is not there.
pub async fn missing(s: &mut Session) {
    let (maps, pods) = (s.core("configmaps"), s.core("pods"));
    s.get("an object", &format!("{maps}/none")).await;
    s.get("a Job", &format!("{}/none", s.jobs())).await;
    s.get("a resource", &s.core("gadgets")).await;
    s.get("a group", "/apis/example.com/v1/gadgets").await;
    s.get("a version", "/api/v9/pods").await;
    s.get("a subresource", &format!("{maps}/none/status")).await;
    s.get("a subresource of a pod", &format!("{pods}/none/gadget")).await;
    s.get("the status of a pod", &format!("{pods}/none/status")).await;
    s.get("an empty collection", &s.core("secrets")).await;
    s.get("in a namespace that is not there", "/api/v1/namespaces/nowhere/pods").await;
    s.get("a namespaced object without its namespace", "/api/v1/pods/none").await;
    s.get("a bad name", &format!("{maps}/Bad_Name")).await;
    s.get("eviction can't be read", &format!("{pods}/none/eviction")).await;
    s.send("a verb that is none", Method::OPTIONS, &maps, &[], String::new()).await;
    s.send(
        "post to an object's status",
        Method::POST,
        &format!("{pods}/none/status"),
        &[("content-type", "application/json")],
        "{}".to_owned(),
    )
    .await;
}
