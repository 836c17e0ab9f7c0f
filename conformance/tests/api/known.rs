//! Differences from the real kube-apiserver that we want, or can't help, each with its reason.

use windlass_conformance::compare::Known;

const KEPT: &str =
    "a field that we do not know is kept, and warned about: what a newer client says is not lost";
const DECODER: &str = "the text of Go's decoder names the types of Go";
const YAML: &str = "the text is that of another YAML parser";
const STRUCTS: &str = "the value is shown with the fields of the API, not of Go's internal types";
const ORDER: &str = "the fields of a value are shown in the order of the alphabet, not of Go's types";
const DIFF: &str = "what changed is shown as fields of the API, not as a diff of Go's internal types";
const COLUMNS: &str = "columns are not described: no client shows it";
const FORMS: &str = "answers are JSON, whatever else a client might have had";
const MANAGER: &str = "what the server makes itself is managed by windlass";
const REVIEWS: &str = "a review is not stored: nobody comes to own its fields";
const ETCD: &str = "streamed lists need a newer etcd than the reference has";
const OLDER_WATCH: &str = "the older paths of watches are not offered: they were deprecated in 1.11";

const fn known(step: &'static str, at: &'static str, reason: &'static str) -> Known {
    Known { step, at, reason }
}

/// All of them. An entry that no longer differs fails the test.
pub const KNOWN: &[Known] = &[
    known("create/field_validation/*", "/body/colour", KEPT),
    known("create/field_validation/*", "/body/spec/paralellism", KEPT),
    known("create/field_validation/*", "/body/spec/template/spec/containers/0/imagePullpolicy", KEPT),
    known("create/field_validation/*", "/body/metadata/managedFields/0/fieldsV1", KEPT),
    known("patch/field_validation/*", "/body/spec/paralellism", KEPT),
    known("patch/field_validation/*", "/body/metadata/managedFields/0/fieldsV1/f:spec/f:paralellism", KEPT),
    known("create/bad_bodies/a number for a text", "/body/message", DECODER),
    known("create/bad_bodies/a text for a number", "/body/message", DECODER),
    known("create/bad_bodies/a fraction for a number", "/body/message", DECODER),
    known("create/bad_bodies/a number out of range", "/body/message", DECODER),
    known("create/bad_bodies/a map for a list", "/body/message", DECODER),
    known("create/bad_bodies/a text for a map", "/body/message", DECODER),
    known("create/bad_bodies/labels that are no texts", "/body/message", DECODER),
    known("create/bad_bodies/a bad time", "/body/message", DECODER),
    known("delete/options/a text for a number", "/body/message", DECODER),
    known("objects/config/data that is no text", "/body/message", DECODER),
    known("objects/config/binary that is not base64", "/body/message", DECODER),
    known("objects/leases/a time that is none", "/body/message", DECODER),
    known("patch/strategic/a list for a map", "/body/message", DECODER),
    known("patch/strategic/a list for a map", "/body/details/causes/0/message", DECODER),
    known("create/bad_bodies/yaml that is none", "/body/message", YAML),
    known("patch/apply/not yaml", "/body/message", YAML),
    known("create/field_validation/put, warn", "/body/message", STRUCTS),
    known("create/field_validation/put, warn", "/body/details/causes/5/message", STRUCTS),
    known("jobs/invalid/a success policy without indexes", "/body/message", STRUCTS),
    known("jobs/invalid/a success policy without indexes", "/body/details/causes/0/message", STRUCTS),
    known("jobs/updates/the template", "/body/message", STRUCTS),
    known("jobs/updates/the template", "/body/details/causes/0/message", STRUCTS),
    known("jobs/updates/a failure policy", "/body/message", STRUCTS),
    known("jobs/updates/a failure policy", "/body/details/causes/2/message", STRUCTS),
    known("jobs/updates/an image while suspended", "/body/message", STRUCTS),
    known("jobs/updates/an image while suspended", "/body/details/causes/0/message", STRUCTS),
    known("patch/strategic/a container by its name", "/body/message", STRUCTS),
    known("patch/strategic/a container by its name", "/body/details/causes/0/message", STRUCTS),
    known("pods/invalid/bad security", "/body/message", STRUCTS),
    known("pods/invalid/bad security", "/body/details/causes/0/message", STRUCTS),
    known("objects/budgets/both", "/body/message", STRUCTS),
    known("objects/budgets/both", "/body/details/causes/0/message", STRUCTS),
    known("create/metadata/two controllers", "/body/message", ORDER),
    known("create/metadata/two controllers", "/body/details/causes/0/message", ORDER),
    known("patch/json/a wrong type", "/body/message", ORDER),
    known("patch/json/a wrong type", "/body/details/causes/0/message", ORDER),
    known("patch/merge/a wrong type", "/body/message", ORDER),
    known("patch/merge/a wrong type", "/body/details/causes/0/message", ORDER),
    known("patch/merge/another kind", "/body/message", ORDER),
    known("patch/merge/another kind", "/body/details/causes/0/message", ORDER),
    known("patch/field_validation/*", "/body/message", ORDER),
    known("patch/field_validation/*", "/body/details/causes/0/message", ORDER),
    known("patch/merge/lists are replaced", "/body/message", DIFF),
    known("patch/merge/lists are replaced", "/body/details/causes/0/message", DIFF),
    known("pods/updates/*", "/body/message", DIFF),
    known("pods/updates/*", "/body/details/causes/0/message", DIFF),
    known("forms/tables/*", "/body/columnDefinitions/*/description", COLUMNS),
    known("watch/forms/tables", "/body/0/object/columnDefinitions/*/description", COLUMNS),
    known("forms/tables/roles", "/body/rows", "an empty list is a list, never null"),
    known("forms/refused/xml", "/body", FORMS),
    known("forms/refused/any application", "/code", FORMS),
    known("forms/refused/json of some version", "/body/message", FORMS),
    known("read/missing/a group", "/body", "every refusal is a Status, also on paths that nobody serves"),
    known("read/missing/a group", "/type", "every refusal is a Status, also on paths that nobody serves"),
    known(
        "patch/merge/bad labels",
        "/body/details/causes",
        "the strategy of ConfigMaps looks at labels twice, and the same cause is told once more",
    ),
    known("namespaces/lifecycle/by phase", "/body/items/0/metadata/managedFields/0/manager", MANAGER),
    known("namespaces/lifecycle/default", "/body/metadata/managedFields/0/manager", MANAGER),
    known("objects/priority_classes/of the system", "/body/metadata/managedFields/0/manager", MANAGER),
    known(
        "namespaces/lifecycle/generated",
        "/body/metadata/managedFields/0/fieldsV1/f:metadata/f:labels",
        "the label of a generated name is owned like that of a given one",
    ),
    known(
        "pods/eviction/the budget after that",
        "/body/metadata/managedFields",
        "what the server writes into a budget is not the client's",
    ),
    known(
        "watch/too_old/a watch from an old version",
        "/body/0/object/message",
        "the text is that of the real server's cache of events, which it does without here",
    ),
    known("reviews/access/*", "/body/metadata/managedFields", REVIEWS),
    known("reviews/identity/*", "/body/metadata/managedFields", REVIEWS),
    known("reviews/identity/a token that is none", "/body/spec/token", "a token is never sent back"),
    known("watch/history/by the older path", "/code", OLDER_WATCH),
    known("watch/history/one object by the older path", "/code", OLDER_WATCH),
    known("watch/initial_events/all and a bookmark", "/body", ETCD),
    known("watch/initial_events/from anywhere", "/body", ETCD),
    known("watch/initial_events/from the latest", "/body", ETCD),
    known("watch/initial_events/by label", "/body", ETCD),
];
