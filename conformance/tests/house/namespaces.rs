//! Namespaces that are deleted.

use anyhow::Result;
use serde_json::{Value, json};

use crate::budgets::foreign_job;
use crate::place::{JOBS, MAPS, NAMESPACES, PODS, Place, and, held, is, pod};

async fn doomed(p: &Place, more: Value) -> Result<String> {
    let name = p.on("doomed");
    p.namespace(&name).await?;
    p.make_in(&name, MAPS, and(json!({"metadata": {"name": "map"}}), more)).await?;
    Ok(name)
}

/// All that is in it goes with it.
pub async fn emptied(p: &mut Place) -> Result<()> {
    let name = doomed(p, json!({})).await?;
    p.make_in(&name, JOBS, foreign_job("job")).await?;
    p.make_in(&name, PODS, pod("one", json!({}))).await?;
    // What the answer shows, nobody has worked on yet.
    let doomed = p.delete(NAMESPACES, &name, json!({})).await?;
    p.write_down("on its way", doomed);
    p.until_gone(NAMESPACES, &name).await
}

/// Something in it does not go.
pub async fn held_up(p: &mut Place) -> Result<()> {
    let name = doomed(p, held()).await?;
    p.delete(NAMESPACES, &name, json!({})).await?;
    let waits = |one: &Value| is(one, "NamespaceFinalizersRemaining");
    let namespace = p.until(NAMESPACES, &name, "to wait", waits).await?;
    p.write_down("waits", namespace);
    let map = format!("{name}/{MAPS}/map");
    p.patch(NAMESPACES, &map, json!({"metadata": {"finalizers": null}})).await?;
    p.until_gone(NAMESPACES, &name).await
}

/// Nothing more can be made in it.
pub async fn closed(p: &mut Place) -> Result<()> {
    let name = doomed(p, held()).await?;
    p.delete(NAMESPACES, &name, json!({})).await?;
    let path = format!("/api/v1/namespaces/{name}/configmaps");
    p.post("refused", &path, json!({"metadata": {"name": "late"}})).await;
    let path = format!("/apis/batch/v1/namespaces/{name}/jobs");
    p.post("a job", &path, foreign_job("late")).await;
    let map = format!("{name}/{MAPS}/map");
    p.patch(NAMESPACES, &map, json!({"metadata": {"finalizers": null}})).await?;
    p.until_gone(NAMESPACES, &name).await
}
