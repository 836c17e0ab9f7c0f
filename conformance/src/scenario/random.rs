//! Random Jobs with random histories, from a seed: our controller against the built-in one.

use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use windlass_job::observation::Manages;

use super::body::Body;
use super::compare::{Endings, cluster, on_cluster, on_go};
use super::play::World;
use super::{Deed, Scenario, Step, Who, indexed, merge, runs, scenario};

/// Steps of one history.
const STEPS: u64 = 7;

/// No Job gets more pods at a time than this.
const SIZE_MAX: u64 = 4;

/// A small generator: the same numbers everywhere, for ever.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    /// Below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }
}

/// The scenario of a seed.
pub fn of_seed(seed: u64) -> Scenario {
    let mut dice = Dice(seed);
    let is_indexed = dice.chance(60);
    let parallelism = 1 + dice.roll(3) as u32;
    let completions = parallelism + dice.roll(3) as u32;
    let mut spec = if is_indexed {
        indexed(parallelism, completions, json!({}))
    } else if dice.chance(20) {
        json!({"parallelism": parallelism})
    } else {
        runs(parallelism, completions, json!({}))
    };
    merge(&mut spec, options(&mut dice, is_indexed, completions));
    let mut scenario = scenario(&format!("seed-{seed}"), "random", spec.clone());
    let size = match (is_indexed, parallelism == completions) {
        (false, _) => Size::Any,
        (true, true) => Size::Elastic,
        (true, false) => Size::NothingOrMore,
    };
    for _ in 0..STEPS {
        scenario = scenario.step(step(&mut dice, size));
    }
    // Whatever was done to it, it can end now.
    scenario.steps.push(Step::Edit(json!({"spec": {"suspend": false}})));
    scenario.steps.push(Step::Edit(json!({"spec": size.of(SIZE_MAX)})));
    scenario.step(Step::FinishOneByOne)
}

/// How the number of pods may change, so that it is clear which of them go. Of pods that are equal but for their index the
/// newest go first, which depends on whole seconds.
#[derive(Clone, Copy, Debug)]
enum Size {
    /// Pods are all alike.
    Any,
    /// Completions follow: the highest indexes go.
    Elastic,
    /// All go, or none.
    NothingOrMore,
}

impl Size {
    fn of(self, size: u64) -> Value {
        match self {
            Self::Any => json!({"parallelism": size}),
            Self::Elastic => json!({"parallelism": size.max(1), "completions": size.max(1)}),
            Self::NothingOrMore => json!({"parallelism": if size < 2 { 0 } else { SIZE_MAX }}),
        }
    }
}

fn options(dice: &mut Dice, is_indexed: bool, completions: u32) -> Value {
    let mut spec = json!({});
    if dice.chance(60) {
        spec["backoffLimit"] = json!(dice.roll(4));
    }
    if is_indexed && dice.chance(50) {
        spec["backoffLimitPerIndex"] = json!(dice.roll(3));
        if dice.chance(50) {
            spec["maxFailedIndexes"] = json!(dice.roll(u64::from(completions)));
        }
    }
    if dice.chance(50) {
        let per_index = spec.get("backoffLimitPerIndex").is_some();
        spec["podFailurePolicy"] = json!({"rules": rules(dice, per_index)});
    } else if dice.chance(40) {
        spec["podReplacementPolicy"] = json!("Failed");
    }
    if is_indexed && dice.chance(25) {
        let rule = if dice.chance(50) {
            json!({"succeededIndexes": format!("{}", dice.roll(u64::from(completions)))})
        } else {
            json!({"succeededCount": 1 + dice.roll(u64::from(completions))})
        };
        spec["successPolicy"] = json!({"rules": [rule]});
    }
    spec
}

fn rules(dice: &mut Dice, per_index: bool) -> Vec<Value> {
    let mut actions = vec!["Ignore", "Count", "FailJob"];
    if per_index {
        actions.push("FailIndex");
    }
    let mut rules = Vec::new();
    for _ in 0..=dice.roll(2) {
        let action = dice.pick(&actions);
        rules.push(if dice.chance(50) {
            let operator = dice.pick(&["In", "NotIn"]);
            json!({"action": action, "onExitCodes": {"operator": operator, "values": [3, 42]}})
        } else {
            json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]})
        });
    }
    rules
}

fn step(dice: &mut Dice, size: Size) -> Step {
    let who = Who::SomeActive(dice.roll(4) as usize);
    match dice.roll(100) {
        0..22 => Step::Pods(vec![(who, Deed::Run)]),
        22..38 => Step::Pods(vec![(who, Deed::Exit(0))]),
        38..58 => Step::Pods(vec![(who, Deed::Exit(dice.pick(&[1, 3, 42])))]),
        58..66 => Step::Pods(vec![(who, Deed::Disrupted("EvictionByEvictionAPI", dice.pick(&[0, 137, 42])))]),
        66..76 => Step::Pods(vec![(who, Deed::Delete)]),
        76..84 => Step::Pods(vec![(Who::SomeTerminating(0), Deed::End(dice.pick(&[0, 3, 143])))]),
        84..92 => Step::Edit(json!({"spec": size.of(dice.roll(SIZE_MAX))})),
        _ => Step::Edit(json!({"spec": {"suspend": dice.chance(60)}})),
    }
}

/// Plays the scenarios of `count` seeds from `first` on, and compares. Prints how to play one again.
pub async fn run(first: u64, count: u64) -> Result<()> {
    let scenarios: Vec<Scenario> = (first..first + count).map(of_seed).collect();
    let cluster = cluster().await?;
    let world = Arc::new(World::new(cluster.client().await?));
    let mut endings: Endings = on_cluster(&world, &scenarios, Body::All, Manages::Unclaimed).await;
    let manager = cluster.controller_manager(&["job-controller"], "")?;
    endings.extend(on_go(&world, &scenarios, None).await);
    drop(manager);
    let mut wrong = Vec::new();
    for (seed, scenario) in (first..).zip(&scenarios) {
        let [ours, go] = [Body::All, Body::Go].map(|body| endings.remove(&(scenario.name.clone(), body)));
        let found = match (ours, go) {
            (Some(Ok(ours)), Some(Ok(go))) => unless_wanted(ours.differences(&go, false)),
            (Some(Err(ours)), _) => vec![format!("ours: {ours:#}")],
            (_, Some(Err(go))) => vec![format!("go: {go:#}")],
            (None, _) | (_, None) => vec!["it was not played".to_owned()],
        };
        if !found.is_empty() {
            let spec = &scenario.job["spec"];
            wrong.push(format!(
                "seed {seed}: {}\n  spec {spec}\n  {}",
                scenario.steps_text(),
                found.join("\n  ")
            ));
        }
    }
    println!("random Jobs: seeds {first} to {}, {} differ", first + count - 1, wrong.len());
    if !wrong.is_empty() {
        bail!(
            "{}\nplay one again: WINDLASS_CONFORMANCE_SEED=<seed> cargo test -p windlass-conformance --test random",
            wrong.join("\n")
        );
    }
    Ok(())
}

impl Scenario {
    fn steps_text(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(|step| format!("{step:?}")).collect();
        steps.join(", ")
    }
}

/// How the lines end that tell of a Job which failed while it was suspended and was resumed then: ours says that it was. The
/// catalogue has it among the differences that we want.
const RESUMED: [&str; 3] =
    [r#""Job resumed" / "Job suspended""#, r#""JobResumed" / "JobSuspended""#, r#""False" / "True""#];

/// Nothing, if that is all.
fn unless_wanted(found: Vec<String>) -> Vec<String> {
    let is_wanted = |line: &String| {
        line.starts_with("job.status.conditions[") && RESUMED.iter().any(|end| line.ends_with(end))
    };
    if found.len() == RESUMED.len() && found.iter().all(is_wanted) { Vec::new() } else { found }
}
