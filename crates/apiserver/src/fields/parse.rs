//! Reads the table. It is checked in, so what can't be read is a mistake of ours.

use std::collections::HashMap;

use super::{Field, Patch, Presence, Relation, Scalar, Struct, StructRef, Table, Type};

pub(super) fn table(text: &str) -> Table {
    let lines = || text.lines().filter_map(|line| line.strip_prefix("type "));
    let places: HashMap<&str, usize> =
        lines().map(|line| head(line).0).enumerate().map(|(place, name)| (name, place)).collect();
    let structs = lines().map(|line| read_struct(line, &places)).collect();
    let kinds = text.lines().filter_map(|line| line.strip_prefix("kind "));
    let kinds = kinds.map(|line| {
        let parts: Vec<&str> = line.split(' ').collect();
        let [version, kind, name] = parts.as_slice() else { panic!("a kind has three parts: {line:?}") };
        ((*version).to_owned(), (*kind).to_owned(), places[name])
    });
    Table { structs, kinds: kinds.collect() }
}

/// The name of a struct, and whether it is atomic.
fn head(line: &str) -> (&str, bool) {
    let name = line.split(' ').next().unwrap_or_default();
    (name.trim_end_matches('!'), name.ends_with('!'))
}

fn read_struct(line: &str, places: &HashMap<&str, usize>) -> Struct {
    let fields = line.split(' ').skip(1).map(|text| read_field(text, places)).collect();
    Struct::new(fields, head(line).1)
}

fn read_field(text: &str, places: &HashMap<&str, usize>) -> Field {
    let (name, rest) = text.split_once(':').expect("a field has a type");
    let (rest, patch) = match rest.split_once('~') {
        Some((rest, patch)) => (rest, Some(read_patch(patch))),
        None => (rest, None),
    };
    // A map of keys has an `=` nowhere else.
    let (rest, default) = match rest.split_once('=') {
        Some((rest, default)) => (rest, Some(serde_json::from_str(default).expect("a default is JSON"))),
        None => (rest, None),
    };
    let (rest, presence) = match rest.strip_suffix('+') {
        Some(rest) => (rest, Presence::Always),
        None => match rest.strip_suffix('?') {
            Some(rest) => (rest, Presence::Given),
            None => (rest, Presence::Filled),
        },
    };
    Field { name: name.to_owned(), ty: read_type(rest, places), presence, default, patch }
}

fn read_patch(text: &str) -> Patch {
    let (strategies, key) = text.split_once('@').expect("a strategy has a key");
    let has = |wanted| strategies.split(',').any(|strategy| strategy == wanted);
    Patch { merges: has("merge"), replaces: has("replace"), key: key.to_owned() }
}

fn read_type(text: &str, places: &HashMap<&str, usize>) -> Type {
    if let Some(rest) = text.strip_prefix('[') {
        let (keys, element) = rest.split_once(']').expect("a list has an end");
        let relation = match keys {
            "!" => Relation::Atomic,
            "" => Relation::Set,
            keys => {
                let mut keys: Vec<String> = keys.split(',').map(str::to_owned).collect();
                keys.sort();
                Relation::Keyed(keys)
            }
        };
        return Type::List { element: Box::new(read_type(element, places)), relation };
    }
    if let Some(rest) = text.strip_prefix('{') {
        let (atomic, element) = rest.split_once('}').expect("a map has an end");
        return Type::Map { element: Box::new(read_type(element, places)), is_atomic: atomic == "!" };
    }
    match text {
        "string" => Type::Scalar(Scalar::String),
        "numeric" => Type::Scalar(Scalar::Numeric),
        "boolean" => Type::Scalar(Scalar::Boolean),
        "untyped" => Type::Scalar(Scalar::Untyped),
        "any" => Type::Any,
        name => {
            let place = places.get(name.trim_end_matches('!'));
            let place = *place.unwrap_or_else(|| panic!("there is no type {name:?}"));
            Type::Struct(StructRef { place, is_atomic: name.ends_with('!') })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fields::{Presence, Relation, Type, of_kind};
    use crate::resources;

    fn at(kind: &str, path: &[&str]) -> Type {
        let root = of_kind(if kind == "Job" { "batch/v1" } else { "v1" }, kind).expect("a kind");
        path.iter().fold(root, |ty, name| match &ty {
            Type::List { element, .. } if *name == "*" => (**element).clone(),
            _ => ty.member(name).0.clone(),
        })
    }

    #[test]
    fn every_kind_that_is_served_has_a_type() {
        let missing: Vec<&str> = resources::all()
            .iter()
            .filter(|resource| of_kind(resource.api_version, resource.kind).is_none())
            .map(|resource| resource.kind)
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn every_field_is_found_by_its_name_and_no_other() {
        let structs = &crate::fields::TABLE.structs;
        for of in structs {
            for field in &of.fields {
                assert!(
                    of.field(&field.name).is_some_and(|found| std::ptr::eq(found, field)),
                    "{}",
                    field.name
                );
                assert!(of.field(&field.name[1..]).is_none(), "{}", field.name);
            }
            assert!(of.field("").is_none());
        }
        assert!(structs.iter().map(|of| of.fields.len()).sum::<usize>() > 1000);
    }

    #[test]
    fn lists_are_told_apart_as_upstream_says() {
        let keyed = |keys: &[&str]| Relation::Keyed(keys.iter().map(|key| (*key).to_owned()).collect());
        let cases: [(&str, &[&str], Relation); 8] = [
            ("Pod", &["spec", "containers"], keyed(&["name"])),
            ("Pod", &["spec", "containers", "*", "ports"], keyed(&["containerPort", "protocol"])),
            (
                "Job",
                &["spec", "template", "spec", "topologySpreadConstraints"],
                keyed(&["topologyKey", "whenUnsatisfiable"]),
            ),
            ("Pod", &["spec", "tolerations"], Relation::Atomic),
            ("Pod", &["metadata", "finalizers"], Relation::Set),
            ("Pod", &["metadata", "ownerReferences"], keyed(&["uid"])),
            ("Job", &["status", "conditions"], Relation::Atomic),
            ("Pod", &["status", "conditions"], keyed(&["type"])),
        ];
        for (kind, path, want) in cases {
            let Type::List { relation, .. } = at(kind, path) else { panic!("{kind} {path:?} is not a list") };
            assert_eq!(relation, want, "{kind} {path:?}");
        }
    }

    #[test]
    fn maps_and_structs_are_atomic_where_upstream_says() {
        for (kind, path, want) in [
            ("Pod", &["spec", "nodeSelector"][..], true),
            ("Job", &["spec", "selector"], true),
            ("Pod", &["metadata", "ownerReferences", "*"], true),
            ("Pod", &["metadata", "labels"], false),
            ("Pod", &["spec", "securityContext"], false),
        ] {
            assert_eq!(at(kind, path).is_leaf(), want, "{kind} {path:?}");
        }
    }

    #[test]
    fn keys_have_defaults_and_fields_a_presence() {
        let Type::Struct(port) = at("Pod", &["spec", "containers", "*", "ports", "*"]) else { panic!() };
        assert_eq!(port.get().field("protocol").expect("a field").default, Some(json!("TCP")));
        let Type::Struct(container) = at("Pod", &["spec", "containers", "*"]) else { panic!() };
        let presence = |name: &str| container.get().field(name).expect("a field").presence;
        assert_eq!(
            [presence("resources"), presence("securityContext"), presence("stdin")],
            [Presence::Always, Presence::Given, Presence::Filled]
        );
    }
}
