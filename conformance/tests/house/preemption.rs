//! Who has to go for a more important pod.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::text;

use crate::place::{BUDGETS, PODS, Place, and, condition, needs};
use crate::scheduling::room;

fn of(class: &str, cpu: &str) -> Value {
    and(needs(json!({"cpu": cpu})), json!({"spec": {"priorityClassName": class}}))
}

fn app(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}})
}

/// The more important pod comes and is nominated.
async fn comes(p: &mut Place, more: Value) -> Result<()> {
    p.pod("boss", more).await?;
    let boss = p
        .until(PODS, "boss", "to be nominated", |pod| {
            !text(pod, "/status/nominatedNodeName").is_empty() && condition(pod, "PodScheduled").is_some()
        })
        .await?;
    p.write_down("nominated", boss);
    Ok(())
}

/// The victim is marked and deleted, ends, and the more important pod takes its place.
async fn takes_the_place_of(p: &mut Place, victim: &str) -> Result<()> {
    let pod = p.until_disrupted(victim).await?;
    p.write_down("victim", pod);
    p.ends(victim, 137).await?;
    p.note("victim has ended", PODS, victim).await?;
    p.ends_and_goes(victim, 137).await?;
    let boss = p.until_placed("boss").await?;
    p.write_down("placed", boss);
    Ok(())
}

/// The plain case, with everything that is told.
pub async fn of_a_lesser_pod(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 7}});
    p.running("victim", "a", and(of("low", "3"), grace)).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await?;
    p.events(&["Pod victim Preempted", "Pod boss FailedScheduling", "Pod boss Scheduled"]).await
}

async fn refused(p: &mut Place, more: Value) -> Result<()> {
    p.pod("boss", more).await?;
    let boss = p.until_refused("boss").await?;
    p.write_down("refused", boss);
    p.events(&["Pod boss FailedScheduling"]).await
}

/// A polite pod waits.
pub async fn never(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("old", "a", of("low", "3")).await?;
    refused(p, of("polite", "2")).await
}

/// Equals do not push each other out.
pub async fn of_an_equal_pod(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("old", "a", of("high", "3")).await?;
    refused(p, of("high", "2")).await
}

/// Nobody goes if that makes no room.
pub async fn that_would_not_help(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("old", "a", of("low", "3")).await?;
    refused(p, and(of("high", "2"), json!({"spec": {"nodeSelector": {"tier": "fast"}}}))).await
}

/// Two nodes, two reasons.
pub async fn some_help_some_do_not(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.node("c", room(json!({"cpu": "1", "memory": "1Gi", "pods": "10"}))).await?;
    p.running("equal", "a", of("high", "3")).await?;
    p.running("less", "b", of("low", "3")).await?;
    let there = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [p.on("b")]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}});
    refused(p, and(of("high", "2"), json!({"spec": {"affinity": {"nodeAffinity": required}}}))).await
}

/// A budget that allows no disruption.
async fn budget(p: &Place) -> Result<()> {
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}});
    p.make(BUDGETS, json!({"metadata": {"name": "keep"}, "spec": spec})).await?;
    let status = json!({"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        "disruptionsAllowed": 0});
    p.patch_status(BUDGETS, "keep", status).await?;
    // The scheduler knows it, if it goes by it.
    p.until(BUDGETS, "keep", "to be looked at", |one| one["status"]["observedGeneration"] == 1)
        .await
        .map(drop)
}

/// Of two nodes the one is taken whose pods may be disrupted.
pub async fn respects_a_budget(p: &mut Place) -> Result<()> {
    budget(p).await?;
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("kept", "a", and(of("low", "3"), app("kept"))).await?;
    p.running("victim", "b", of("middle", "3")).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await?;
    p.note("kept", PODS, "kept").await
}

/// There is no other way.
pub async fn breaks_a_budget_if_it_must(p: &mut Place) -> Result<()> {
    budget(p).await?;
    p.node("a", json!({})).await?;
    p.running("victim", "a", and(of("low", "3"), app("kept"))).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await
}

/// The node whose pods matter least.
pub async fn of_the_least_important(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("middle", "a", of("middle", "3")).await?;
    p.running("victim", "b", of("low", "3")).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await
}

/// The node that loses fewer.
pub async fn of_the_fewest(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("one", "a", of("low", "2")).await?;
    p.running("two", "a", of("low", "2")).await?;
    p.running("victim", "b", of("low", "4")).await?;
    comes(p, of("high", "4")).await?;
    takes_the_place_of(p, "victim").await
}

/// The node whose pods have done the least yet.
pub async fn of_the_youngest(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("old", "a", of("low", "3")).await?;
    p.status("old", json!({"startTime": crate::place::ago(3600)})).await?;
    p.running("victim", "b", of("low", "3")).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await
}

/// Whoever can stay stays: the more important, and those that have done more.
pub async fn of_no_more_than_needed(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("middle", "a", of("middle", "1")).await?;
    p.running("old", "a", of("low", "1")).await?;
    p.status("old", json!({"startTime": crate::place::ago(3600)})).await?;
    p.running("victim", "a", of("low", "2")).await?;
    comes(p, of("high", "2")).await?;
    takes_the_place_of(p, "victim").await?;
    p.note("old", PODS, "old").await?;
    p.note("middle", PODS, "middle").await
}

/// While a victim ends nobody else has to go.
pub async fn only_once(p: &mut Place) -> Result<()> {
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    p.node("a", json!({})).await?;
    p.node("b", json!({"spec": {"taints": taint("k")}})).await?;
    p.running("victim", "a", of("low", "3")).await?;
    p.running("other", "b", of("low", "3")).await?;
    let tolerates = json!({"spec": {"tolerations": [{"key": "tolerated", "operator": "Exists"}]}});
    comes(p, and(of("high", "2"), tolerates)).await?;
    p.until_disrupted("victim").await?;
    p.taint("b", taint("tolerated")).await?;
    let boss = p.until_told("boss", "terminating pod").await?;
    p.write_down("waits", boss);
    p.note("other", PODS, "other").await
}

/// A pod without grace is gone at once.
pub async fn without_grace(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 0}});
    p.running("victim", "a", and(of("low", "3"), grace)).await?;
    p.pod("boss", of("high", "2")).await?;
    let boss = p.until_placed("boss").await?;
    p.write_down("placed", boss);
    p.until_gone(PODS, "victim").await?;
    p.events(&["Pod victim Preempted", "Pod boss FailedScheduling", "Pod boss Scheduled"]).await
}
