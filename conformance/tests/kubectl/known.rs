//! Differences in what kubectl prints that we want, or can't help, each with its reason.

use windlass_conformance::compare::Known;

const SCHEMA: &str = "the schema lists no values of texts, and says of more fields that they are required";
const STRUCTS: &str = "the value is shown with the fields of the API, not of Go's internal types";
const UID: &str = "the reference's file of tokens gives users a UID, ours does not";
const RULES: &str = "who may do everything is told that, and not what else they may";
const IMPERSONATION: &str = "nobody acts as somebody else here, not even who may do everything";

/// `new` and `older`: the same for each kubectl.
macro_rules! known {
    ($($line:literal $at:literal $reason:ident,)*) => {
        &[$(
            Known { step: concat!("new: ", $line), at: $at, reason: $reason },
            Known { step: concat!("older: ", $line), at: $at, reason: $reason },
        )*]
    };
}

/// All of them. An entry that no longer differs fails the test.
pub const KNOWN: &[Known] = known![
    "kubectl explain job.spec.podFailurePolicy.rules" "/out" SCHEMA,
    "kubectl explain pod.spec.containers.env --recursive" "/out" SCHEMA,
    "kubectl set image job/one c=other" "/err" STRUCTS,
    "kubectl auth whoami" "/out" UID,
    "kubectl auth can-i --list" "/out" RULES,
    "kubectl auth can-i delete nodes --as=someone" "/err" IMPERSONATION,
    "kubectl auth can-i delete nodes --as=someone" "/out" IMPERSONATION,
    "kubectl auth can-i get pods --as=someone" "/code" IMPERSONATION,
    "kubectl auth can-i list pods --as=someone -q" "/code" IMPERSONATION,
    "kubectl get pods --as=someone" "/code" IMPERSONATION,
    "kubectl get jobs --as=nobody" "/err" IMPERSONATION,
];
