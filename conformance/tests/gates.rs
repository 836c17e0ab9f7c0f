//! Features switched off and on again.

use windlass_conformance::scenario::gates;

#[tokio::test(flavor = "multi_thread")]
async fn features_can_be_switched_off_and_on_again() -> anyhow::Result<()> {
    gates::run().await
}

#[test]
fn the_other_features_are_not_to_be_switched_in_this_release() -> anyhow::Result<()> {
    let cases = [
        ("JobBackoffLimitPerIndex", "feature is locked to true"),
        ("JobSuccessPolicy", "feature is locked to true"),
        ("JobPodFailurePolicy", "unrecognized feature gate"),
        ("PodDisruptionConditions", "unrecognized feature gate"),
    ];
    for (feature, why) in cases {
        let said = gates::refusal(feature)?;
        assert!(said.contains(why), "{feature}: {said}");
    }
    Ok(())
}
