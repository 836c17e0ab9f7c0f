//! Tables, metadata alone, and forms that can't be had.

use http::Method;
use serde_json::json;
use windlass_conformance::session::{MERGE, Session};

use crate::objects::{config_map, job, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// As kubectl asks.
pub async fn tables(s: &mut Session) {
    let (pods, jobs, maps) = (s.core("pods"), s.jobs(), s.core("configmaps"));
    for (path, body) in [(&pods, pod("p")), (&jobs, job("j")), (&maps, config_map("m"))] {
        s.prepare(Method::POST, path, body).await.expect("prepared");
    }
    s.get_as("pods", &pods, TABLE).await;
    s.get_as("one pod", &format!("{pods}/p"), TABLE).await;
    s.get_as("jobs", &jobs, TABLE).await;
    s.get_as("config maps", &maps, TABLE).await;
    s.get_as("config maps with their objects", &format!("{maps}?includeObject=Object"), TABLE).await;
    s.get_as("config maps alone", &format!("{maps}?includeObject=None"), TABLE).await;
    s.get_as("config maps with something else", &format!("{maps}?includeObject=Some"), TABLE).await;
    s.get_as("an empty collection", &s.core("secrets"), TABLE).await;
    s.get_as("service accounts", &s.core("serviceaccounts"), TABLE).await;
    s.get_as("cron jobs", &s.group("batch/v1", "cronjobs"), TABLE).await;
    s.get_as("budgets", &s.group("policy/v1", "poddisruptionbudgets"), TABLE).await;
    s.get_as("leases", &s.group("coordination.k8s.io/v1", "leases"), TABLE).await;
    s.get_as("events", &s.core("events"), TABLE).await;
    s.get_as("roles", &s.group("rbac.authorization.k8s.io/v1", "roles"), TABLE).await;
    s.get_as("role bindings", &s.group("rbac.authorization.k8s.io/v1", "rolebindings"), TABLE).await;
    s.get_as("nodes", "/api/v1/nodes?labelSelector=none%3Dsuch", TABLE).await;
    s.get_as("namespaces", &format!("/api/v1/namespaces/{}", s.namespace), TABLE).await;
    s.get_as(
        "priority classes",
        "/apis/scheduling.k8s.io/v1/priorityclasses?labelSelector=none%3Dsuch",
        TABLE,
    )
    .await;
    s.get_as("missing", &format!("{pods}/none"), TABLE).await;
    s.send(
        "a patch as a table",
        Method::PATCH,
        &format!("{pods}/p"),
        &[("content-type", MERGE), ("accept", TABLE)],
        json!({"metadata": {"labels": {"x": "y"}}}).to_string(),
    )
    .await;
}

/// Metadata informers.
pub async fn partial_metadata(s: &mut Session) {
    let maps = s.core("configmaps");
    s.prepare(Method::POST, &maps, config_map("m")).await.expect("prepared");
    s.get_as("one", &format!("{maps}/m"), METADATA).await;
    s.get_as("list", &maps, METADATA_LIST).await;
    s.get_as("list as one", &maps, METADATA).await;
    s.get_as("one as list", &format!("{maps}/m"), METADATA_LIST).await;
    s.send(
        "a patch",
        Method::PATCH,
        &format!("{maps}/m"),
        &[("content-type", MERGE), ("accept", METADATA)],
        json!({"metadata": {"labels": {"x": "y"}}}).to_string(),
    )
    .await;
}

/// What can't be had.
pub async fn refused(s: &mut Session) {
    let maps = s.core("configmaps");
    s.get_as("xml", &maps, "application/xml").await;
    s.get_as("anything", &maps, "*/*").await;
    s.get_as("any application", &maps, "application/*").await;
    s.get_as("json of some version", &maps, "application/json;as=Table;v=v9;g=meta.k8s.io").await;
    s.get_as("something else as well", &maps, "application/xml,application/json").await;
    s.get_as("html first", &maps, "text/html,application/json;q=0.9").await;
}
