//! Which lists are merged, and by what: the patch strategies of the kinds that are served.

use crate::resources::Resource;

/// How a list is patched.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    /// As a whole.
    Replaced,
    /// As a set of scalars.
    Set,
    /// Item by item, told apart by this field.
    Keyed(&'static str, &'static Schema),
}

/// What is known about one field.
#[derive(Debug)]
enum Field {
    /// A map with a schema.
    Map(&'static Schema),
    /// A map that is patched as a whole.
    Whole,
    /// A list.
    List(List),
}

/// What is known about the fields of a map. Fields that are not named: maps are merged, lists are replaced.
#[derive(Debug)]
pub(crate) struct Schema(&'static [(&'static str, Field)]);

impl Schema {
    fn field(&self, name: &str) -> Option<&'static Field> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, field)| field)
    }

    pub(super) fn list(&self, name: &str) -> List {
        match self.field(name) {
            Some(Field::List(list)) => *list,
            Some(Field::Map(_) | Field::Whole) | None => List::Replaced,
        }
    }

    pub(super) fn child(&self, name: &str) -> &'static Schema {
        match self.field(name) {
            Some(Field::Map(schema)) => schema,
            Some(Field::List(_) | Field::Whole) | None => &PLAIN,
        }
    }

    pub(super) fn is_replaced(&self, name: &str) -> bool {
        matches!(self.field(name), Some(Field::Whole))
    }
}

const fn keyed(key: &'static str, schema: &'static Schema) -> Field {
    Field::List(List::Keyed(key, schema))
}

static PLAIN: Schema = Schema(&[]);

static META: Schema =
    Schema(&[("finalizers", Field::List(List::Set)), ("ownerReferences", keyed("uid", &PLAIN))]);

static CONTAINER: Schema = Schema(&[
    ("env", keyed("name", &PLAIN)),
    ("ports", keyed("containerPort", &PLAIN)),
    ("volumeDevices", keyed("devicePath", &PLAIN)),
    ("volumeMounts", keyed("mountPath", &PLAIN)),
]);

static POD_SPEC: Schema = Schema(&[
    ("containers", keyed("name", &CONTAINER)),
    ("ephemeralContainers", keyed("name", &CONTAINER)),
    ("hostAliases", keyed("ip", &PLAIN)),
    ("imagePullSecrets", keyed("name", &PLAIN)),
    ("initContainers", keyed("name", &CONTAINER)),
    ("resourceClaims", keyed("name", &PLAIN)),
    ("schedulingGates", keyed("name", &PLAIN)),
    ("topologySpreadConstraints", keyed("topologyKey", &PLAIN)),
    ("volumes", keyed("name", &PLAIN)),
]);

static POD_STATUS: Schema = Schema(&[
    ("conditions", keyed("type", &PLAIN)),
    ("hostIPs", keyed("ip", &PLAIN)),
    ("podIPs", keyed("ip", &PLAIN)),
    ("resourceClaimStatuses", keyed("name", &PLAIN)),
]);

static CONDITIONS: Schema = Schema(&[("conditions", keyed("type", &PLAIN))]);

static POD: Schema = Schema(&[
    ("metadata", Field::Map(&META)),
    ("spec", Field::Map(&POD_SPEC)),
    ("status", Field::Map(&POD_STATUS)),
]);

static POD_TEMPLATE: Schema = Schema(&[("metadata", Field::Map(&META)), ("spec", Field::Map(&POD_SPEC))]);
static JOB_SPEC: Schema = Schema(&[("template", Field::Map(&POD_TEMPLATE))]);
static JOB: Schema = Schema(&[
    ("metadata", Field::Map(&META)),
    ("spec", Field::Map(&JOB_SPEC)),
    ("status", Field::Map(&CONDITIONS)),
]);

static JOB_TEMPLATE: Schema = Schema(&[("metadata", Field::Map(&META)), ("spec", Field::Map(&JOB_SPEC))]);
static CRON_JOB_SPEC: Schema = Schema(&[("jobTemplate", Field::Map(&JOB_TEMPLATE))]);
static CRON_JOB: Schema = Schema(&[("metadata", Field::Map(&META)), ("spec", Field::Map(&CRON_JOB_SPEC))]);

static NODE_SPEC: Schema = Schema(&[("podCIDRs", Field::List(List::Set))]);
static NODE_STATUS: Schema =
    Schema(&[("addresses", keyed("type", &PLAIN)), ("conditions", keyed("type", &PLAIN))]);
static NODE: Schema = Schema(&[
    ("metadata", Field::Map(&META)),
    ("spec", Field::Map(&NODE_SPEC)),
    ("status", Field::Map(&NODE_STATUS)),
]);

static BUDGET_SPEC: Schema = Schema(&[("selector", Field::Whole)]);
static BUDGET: Schema = Schema(&[
    ("metadata", Field::Map(&META)),
    ("spec", Field::Map(&BUDGET_SPEC)),
    ("status", Field::Map(&CONDITIONS)),
]);

static SERVICE_ACCOUNT: Schema =
    Schema(&[("metadata", Field::Map(&META)), ("secrets", keyed("name", &PLAIN))]);

static ANY: Schema = Schema(&[("metadata", Field::Map(&META)), ("status", Field::Map(&CONDITIONS))]);

/// How objects of a kind are patched.
pub(crate) fn schema(resource: &Resource) -> &'static Schema {
    match resource.kind {
        "Pod" => &POD,
        "Job" => &JOB,
        "CronJob" => &CRON_JOB,
        "Node" => &NODE,
        "PodDisruptionBudget" => &BUDGET,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        _ => &ANY,
    }
}
