//! Features switched off and on again, as the integration tests of the documents do it.
//!
//! | feature | in v1.36 | here |
//! |---|---|---|
//! | `JobPodReplacementPolicy` | locked; can be switched where 1.33 is emulated | ours and the built-in controller |
//! | `JobManagedBy` | locked; can be switched where 1.33 is emulated | the built-in controller; ours always has it |
//! | `JobBackoffLimitPerIndex` | locked in every version that can be emulated | ours, against the upstream test's numbers |
//! | `JobSuccessPolicy` | locked in every version that can be emulated | ours always has it |
//! | `JobPodFailurePolicy`, `PodDisruptionConditions` | gone | the first on ours; the second is not the controller's |

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use windlass_job::observation::Manages;

use super::body::{Body, Crew, EARLIER};
use super::catalogue::{on_exit, policy};
use super::compare::{cluster, on_cluster, on_go};
use super::play::World;
use super::{Deed, Scenario, Step, Who, index, indexed, nth, runs, scenario};
use crate::assets;

/// Scenarios that switch a feature, and whose controllers can.
fn scenarios() -> Vec<(Scenario, &'static [Body])> {
    let replacement = scenario(
        "gate-replacement",
        "TestJobPodReplacementPolicyFeatureToggling",
        runs(2, 2, json!({"podReplacementPolicy": "Failed"})),
    )
    .run(2)
    .pod(Who::Active, Deed::Delete)
    .expect("terminating=2")
    .step(Step::Stop)
    .step(Step::StartWith("JobPodReplacementPolicy=false"))
    .expect("active=2 failed=2")
    .end_terminating()
    .expect("active=2 failed=2")
    .restart()
    .pods([(nth(2), Deed::Run), (nth(3), Deed::Run)])
    .expect("active=2 ready=2 failed=2")
    .pod(Who::Active, Deed::Delete)
    .expect("failed=2 terminating=2")
    .end_terminating()
    .expect("active=2 failed=4")
    .succeed()
    .ends("Complete(CompletionsReached) succeeded=2 failed=4");

    let managed_by =
        scenario("gate-managed-by", "TestManagedBy_Reenabling", json!({"managedBy": "example.com/other"}))
            .step(Step::Pass)
            .expect("unstarted")
            .step(Step::Stop)
            .step(Step::StartWith("JobManagedBy=false"))
            .step(Step::Shows("active=1"))
            .step(Step::Stop)
            .succeed()
            .step(Step::Start)
            .step(Step::Pass)
            .ends("active=1");

    let per_index = scenario(
        "gate-per-index",
        "TestBackoffLimitPerIndex_Reenabling",
        indexed(3, 3, json!({"backoffLimitPerIndex": 0})),
    )
    .pod(index(0), Deed::Exit(1))
    .expect("active=2 failed=1 failedIndexes=0")
    .step(Step::Stop)
    .pod(index(1), Deed::Exit(1))
    .step(Step::StartWith("JobBackoffLimitPerIndex=false"))
    .expect("active=3 failed=2")
    .step(Step::Stop)
    .pod(index(2), Deed::Exit(1))
    .step(Step::Start)
    .expect("active=2 failed=3 failedIndexes=2")
    .succeed()
    .ends("Failed(FailedIndexes) succeeded=2 failed=3 completedIndexes=0,1 failedIndexes=2");

    let failure_policy =
        scenario("gate-failure-policy", "JobPodFailurePolicy", policy([on_exit("FailJob", "In", &[5])]))
            .step(Step::Stop)
            .pod(nth(0), Deed::Exit(5))
            .step(Step::StartWith("JobPodFailurePolicy=false"))
            .expect("active=1 failed=1")
            .restart()
            .pod(nth(1), Deed::Exit(5))
            .ends("Failed(PodFailurePolicy) failed=2");

    vec![
        (replacement, &[Body::All, Body::Go]),
        (managed_by, &[Body::Go]),
        (per_index, &[Body::All]),
        (failure_policy, &[Body::All]),
    ]
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    scenarios().into_iter().map(|(scenario, _)| scenario).collect()
}

/// Switches every feature that can be switched, and compares where both can.
pub async fn run() -> Result<()> {
    let cluster = cluster().await?;
    let world = Arc::new(World::new(cluster.client().await?));
    let mut wrong = Vec::new();
    for (scenario, bodies) in scenarios() {
        let one = std::slice::from_ref(&scenario);
        let mut records = Vec::new();
        for body in bodies {
            let endings = if *body == Body::Go {
                let manager = cluster.controller_manager(&["job-controller"], "")?;
                on_go(&world, one, Some(Crew::new(Arc::clone(&cluster), manager))).await
            } else {
                on_cluster(&world, one, *body, Manages::Unclaimed).await
            };
            for ((name, body), ending) in endings {
                match ending {
                    Ok(record) => records.push(record),
                    Err(error) => wrong.push(format!("{name} on {body}: {error:#}")),
                }
            }
        }
        if let [ours, go] = &records[..] {
            wrong.extend(ours.differences(go, true));
        }
        println!("{:<22} {bodies:?} {}", scenario.name, scenario.covers);
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// What the built-in controller says when a feature is switched off, also where it behaves as an earlier version.
pub fn refusal(feature: &str) -> Result<String> {
    let output = Command::new(assets::find("kube-controller-manager")?)
        .args([format!("--emulated-version={EARLIER}"), format!("--feature-gates={feature}=false")])
        .arg("--kubeconfig=/dev/null")
        .output()
        .context("start kube-controller-manager")?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
