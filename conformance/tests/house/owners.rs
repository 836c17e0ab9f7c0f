//! What becomes of objects whose owners are deleted.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::list;

use crate::budgets::foreign_job;
use crate::place::{JOBS, MAPS, PODS, Place, and, held, is_deleted, owned_by};

async fn map(p: &Place, name: &str, more: Value) -> Result<Value> {
    p.make(MAPS, and(json!({"metadata": {"name": name}}), more)).await
}

fn by(owner: &Value, blocks: bool) -> Value {
    owned_by(owner, "ConfigMap", blocks)
}

async fn delete(p: &Place, name: &str, policy: &str) -> Result<()> {
    p.delete(MAPS, name, json!({"propagationPolicy": policy})).await.map(drop)
}

/// They go after it.
pub async fn in_the_background(p: &mut Place) -> Result<()> {
    let owner = map(p, "owner", json!({})).await?;
    map(p, "one", by(&owner, true)).await?;
    map(p, "two", by(&owner, false)).await?;
    map(p, "other", json!({})).await?;
    delete(p, "owner", "Background").await?;
    p.until_gone(MAPS, "one").await?;
    p.until_gone(MAPS, "two").await?;
    p.note("other", MAPS, "other").await
}

/// They go before it.
pub async fn in_the_foreground(p: &mut Place) -> Result<()> {
    let owner = map(p, "owner", json!({})).await?;
    map(p, "one", and(by(&owner, true), held())).await?;
    map(p, "two", by(&owner, true)).await?;
    delete(p, "owner", "Foreground").await?;
    p.until_gone(MAPS, "two").await?;
    let one = p.until_deleted(MAPS, "one").await?;
    p.write_down("one", one);
    p.note("owner", MAPS, "owner").await?;
    p.release(MAPS, "one").await?;
    p.until_gone(MAPS, "owner").await
}

/// It does not wait for those that do not block it.
pub async fn in_the_foreground_without_blocking(p: &mut Place) -> Result<()> {
    let owner = map(p, "owner", json!({})).await?;
    map(p, "one", and(by(&owner, false), held())).await?;
    delete(p, "owner", "Foreground").await?;
    p.until_gone(MAPS, "owner").await?;
    let one = p.until_deleted(MAPS, "one").await?;
    p.write_down("one", one);
    p.release(MAPS, "one").await
}

/// They stay, without an owner.
pub async fn left_behind(p: &mut Place) -> Result<()> {
    let owner = map(p, "owner", json!({})).await?;
    map(p, "one", by(&owner, true)).await?;
    delete(p, "owner", "Orphan").await?;
    p.until_gone(MAPS, "owner").await?;
    let free = |one: &Value| list(one, "/metadata/ownerReferences").is_empty();
    let one = p.until(MAPS, "one", "to be free", free).await?;
    p.write_down("one", one);
    Ok(())
}

/// A Job leaves its pods behind, if nobody says otherwise.
pub async fn left_behind_by_default(p: &mut Place) -> Result<()> {
    let job = p.make(JOBS, foreign_job("job")).await?;
    p.pod("one", owned_by(&job, "Job", true)).await?;
    p.delete(JOBS, "job", Value::Null).await?;
    p.until_gone(JOBS, "job").await?;
    let free = |one: &Value| list(one, "/metadata/ownerReferences").is_empty();
    let one = p.until(PODS, "one", "to be free", free).await?;
    p.write_down("one", one);
    Ok(())
}

/// An owner that nobody knows is none.
pub async fn that_never_were(p: &mut Place) -> Result<()> {
    let nobody = json!({"metadata": {"name": "nobody", "uid": "00000000-0000-4000-8000-000000000000"}});
    map(p, "one", by(&nobody, true)).await?;
    p.until_gone(MAPS, "one").await
}

/// One owner is enough.
pub async fn two_of_them(p: &mut Place) -> Result<()> {
    let (first, second) = (map(p, "first", json!({})).await?, map(p, "second", json!({})).await?);
    let mut both = by(&first, false);
    let other = by(&second, false)["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"].as_array_mut().expect("a list").push(other);
    map(p, "one", both).await?;
    delete(p, "first", "Background").await?;
    let has_one = |one: &Value| list(one, "/metadata/ownerReferences").len() == 1;
    let one = p.until(MAPS, "one", "to have one owner", has_one).await?;
    p.write_down("one", one);
    delete(p, "second", "Background").await?;
    p.until_gone(MAPS, "one").await
}

/// An owner in another namespace is none, and that is told.
pub async fn elsewhere(p: &mut Place) -> Result<()> {
    let other = p.on("other");
    p.namespace(&other).await?;
    let owner = p.make_in(&other, MAPS, json!({"metadata": {"name": "owner"}})).await?;
    let one = map(p, "one", by(&owner, true)).await?;
    p.write_down("one", one);
    p.until_gone(MAPS, "one").await?;
    p.events(&["ConfigMap one OwnerRefInvalidNamespace"]).await
}

/// From the last to the first.
pub async fn of_owners(p: &mut Place) -> Result<()> {
    let first = map(p, "first", json!({})).await?;
    let second = map(p, "second", by(&first, true)).await?;
    map(p, "third", and(by(&second, true), held())).await?;
    delete(p, "first", "Foreground").await?;
    p.until_all(MAPS, "all to be deleted", |maps| {
        let ours = ["first", "second", "third"];
        maps.iter().filter(|map| ours.iter().any(|name| map["metadata"]["name"] == **name)).all(is_deleted)
    })
    .await?;
    for name in ["first", "second", "third"] {
        p.note(name, MAPS, name).await?;
    }
    p.release(MAPS, "third").await?;
    p.until_gone(MAPS, "first").await
}
