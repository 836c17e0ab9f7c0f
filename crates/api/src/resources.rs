//! What the containers of a pod need together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::quantity::Quantity;

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The requests, or the limits, of all that run side by side, or of the step of the initialisation that needs most
/// beside the sidecars that run by then.
///
/// `list` chooses requests or limits. Texts that are no quantities count as nothing.
pub fn aggregate(
    spec: &PodSpec,
    list: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Text>>,
) -> Amounts {
    let amounts = |container: &Container| -> Amounts {
        let list = container.resources.as_ref().and_then(list);
        list.into_iter()
            .flatten()
            .filter_map(|(name, text)| Some((name.clone(), text.0.parse().ok()?)))
            .collect()
    };
    let (mut running, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &spec.containers {
        add(&mut running, &amounts(container));
    }
    for container in spec.init_containers.iter().flatten() {
        let mut step = amounts(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &step);
            add(&mut sidecars, &step);
            step.clone_from(&sidecars);
        } else {
            add(&mut step, &sidecars);
        }
        raise(&mut most, &step);
    }
    raise(&mut running, &most);
    running
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = *entry + *amount;
    }
}

fn raise(most: &mut Amounts, step: &Amounts) {
    for (name, amount) in step {
        let entry = most.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}
