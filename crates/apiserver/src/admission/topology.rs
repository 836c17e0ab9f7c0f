//! upstream: admission plugin PodTopologyLabels. A pod that has a node has the zone and the region of it.

use windlass_store::Key;

use crate::Shared;
use crate::object::Object;

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// What a node says about where it is; nothing if it is not there.
pub(crate) fn of_node(shared: &Shared, node: &str) -> Vec<(&'static str, String)> {
    let Some(record) = shared.store.get(&Key::new("nodes", "", node)) else { return Vec::new() };
    let label = |name: &'static str| Some((name, record.attributes.labels.get(name)?.clone()));
    LABELS.into_iter().filter_map(label).collect()
}

/// Labels a new pod that names its node.
pub(super) fn admit(shared: &Shared, object: &mut Object) {
    let labels = match object.text_at("spec", "nodeName") {
        "" => return,
        node => of_node(shared, node),
    };
    object.add_labels(labels);
}
