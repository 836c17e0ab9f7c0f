//! What is wrong with metadata, in Kubernetes' words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use windlass_api::field::{Errors, Path};
use windlass_api::validation::meta::{
    dns1035_label, dns1123_label, dns1123_subdomain, label_value, pattern_text, qualified_name,
    validate_annotations, validate_cluster_object_meta, validate_object_meta, validate_object_meta_update,
};

// `<a64>` in a text stands for 64 letters a.
fn expand(text: &str) -> String {
    let mut parts = text.split("<a");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (count, rest) = part.split_once('>').expect("<a is followed by a number and >");
        expanded += &"a".repeat(count.parse().expect("<a is followed by a number"));
        expanded += rest;
    }
    expanded
}

fn meta(plain: Value, fields: &str) -> ObjectMeta {
    let mut plain = plain;
    let fields: Value = serde_json::from_str(&expand(fields)).expect("fields are JSON");
    let fields = fields.as_object().cloned().unwrap_or_default();
    plain.as_object_mut().expect("an object").extend(fields);
    serde_json::from_value(plain).expect("metadata")
}

fn assert_errors(rule: &str, found: &Errors, wanted: &[&str]) {
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let wanted: Vec<String> = wanted.iter().map(|text| expand(text)).collect();
    assert_eq!(found, wanted, "{rule}");
}

#[test]
fn formats_of_texts_are_those_of_kubernetes() {
    for (rule, text, wanted) in TEXTS {
        let wanted: Vec<String> = wanted.iter().map(|text| expand(text)).collect();
        assert_eq!(rule(&expand(text)), wanted, "{text:?}");
    }
    assert_eq!(pattern_text("must be so", "x+", &[]), "must be so (regex used for validation is 'x+')");
}

#[test]
fn new_metadata_is_held_to_every_rule() {
    for (rule, fields, wanted) in CREATED {
        let meta = meta(json!({"name": "n", "namespace": "s"}), fields);
        assert_errors(rule, &validate_object_meta(&meta, &Path::new("metadata"), dns1123_subdomain), wanted);
    }
}

#[test]
fn metadata_of_a_kind_without_namespaces_has_none() {
    for (namespace, wanted) in
        [("s", &["metadata.namespace: Forbidden: not allowed on this type"][..]), ("", &[])]
    {
        let meta = meta(json!({"name": "n", "namespace": namespace}), "{}");
        let errors = validate_cluster_object_meta(&meta, &Path::new("metadata"), dns1123_subdomain);
        assert_errors("no namespace", &errors, wanted);
    }
}

#[test]
fn errors_about_owners_show_their_json() {
    let fields = r#"{"ownerReferences": [
        {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"},
        {"apiVersion": "v1", "kind": "K", "name": "a", "uid": "u", "controller": true},
        {"apiVersion": "v1", "kind": "K", "name": "b", "uid": "v", "controller": true}]}"#;
    let meta = meta(json!({"name": "n", "namespace": "s"}), fields);
    let event = r#"{"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}"#;
    let first = r#"{"apiVersion":"v1","controller":true,"kind":"K","name":"a","uid":"u"}"#;
    let second = r#"{"apiVersion":"v1","controller":true,"kind":"K","name":"b","uid":"v"}"#;
    assert_errors(
        "owners",
        &validate_object_meta(&meta, &Path::new("metadata"), dns1123_subdomain),
        &[
            &format!(
                "metadata.ownerReferences: Invalid value: {event}: /v1, Kind=Event is disallowed from being an owner"
            ),
            &format!(
                "metadata.ownerReferences: Invalid value: [{event},{first},{second}]: Only one reference can have \
                 Controller set to true. Found \"true\" in references for K/a and K/b"
            ),
        ],
    );
}

#[test]
fn annotations_have_at_most_256_kib_together() {
    let path = Path::new("metadata.annotations");
    let fits = [("a".to_owned(), "x".repeat(256 * 1024 - 1))].into();
    assert_errors("fits", &validate_annotations(&fits, &path), &[]);
    let long = [("a".to_owned(), "x".repeat(256 * 1024))].into();
    let text = "metadata.annotations: Too long: may not be more than 262144 bytes";
    assert_errors("too long", &validate_annotations(&long, &path), &[text]);
}

#[test]
fn changed_metadata_is_held_to_every_rule() {
    for (rule, old, new, wanted) in CHANGED {
        let plain = json!({"name": "n", "namespace": "s", "resourceVersion": "1"});
        let (old, new) = (meta(plain.clone(), old), meta(plain, new));
        assert_errors(rule, &validate_object_meta_update(&new, &old, &Path::new("metadata")), wanted);
    }
}

type Rule = fn(&str) -> Vec<String>;

/// A format, a text, and what is wrong with it.
const TEXTS: &[(Rule, &str, &[&str])] = &[
    (dns1123_label, "a", &[]),
    (dns1123_label, "a-b", &[]),
    (
        dns1123_label,
        "A",
        &[
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (dns1123_label, "a.b", &["must not contain dots"]),
    (
        dns1123_label,
        "-a",
        &[
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (
        dns1123_label,
        "",
        &[
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (dns1123_label, "<a64>", &["must be no more than 63 characters"]),
    (
        dns1123_label,
        "a.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        &["must be no more than 63 characters", "must not contain dots"],
    ),
    (dns1123_subdomain, "a.b", &[]),
    (
        dns1123_subdomain,
        "a..b",
        &[
            r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        dns1123_subdomain,
        "A",
        &[
            r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        dns1123_subdomain,
        "",
        &[
            r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (dns1123_subdomain, "<a254>", &["must be no more than 253 characters"]),
    (dns1035_label, "a1", &[]),
    (
        dns1035_label,
        "1a",
        &[
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (
        dns1035_label,
        "A",
        &[
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (
        dns1035_label,
        "",
        &[
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    ),
    (dns1035_label, "<a64>", &["must be no more than 63 characters"]),
    (qualified_name, "a", &[]),
    (qualified_name, "a/b", &[]),
    (qualified_name, "A_b.c", &[]),
    (
        qualified_name,
        "a/b/c",
        &[
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ],
    ),
    (qualified_name, "/b", &["prefix part must be non-empty"]),
    (
        qualified_name,
        "a/",
        &[
            "name part must be non-empty",
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    ),
    (
        qualified_name,
        "-",
        &[
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    ),
    (
        qualified_name,
        "A/b",
        &[
            r#"prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (qualified_name, "<a254>/b", &["prefix part must be no more than 253 bytes"]),
    (qualified_name, "<a64>", &["name part must be no more than 63 bytes"]),
    (label_value, "", &[]),
    (label_value, "a", &[]),
    (
        label_value,
        "-",
        &[
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    ),
    (label_value, "<a64>", &["must be no more than 63 bytes"]),
    (
        label_value,
        "a b",
        &[
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    ),
];

/// The rule, fields of metadata, and all the errors.
const CREATED: &[(&str, &str, &[&str])] = &[
    ("plain metadata is fine", "{}", &[]),
    (
        "a name is needed",
        r#"{"name": ""}"#,
        &["metadata.name: Required value: name or generateName is required"],
    ),
    (
        "a base of a name is no name",
        r#"{"name": "", "generateName": "a-"}"#,
        &["metadata.name: Required value: name or generateName is required"],
    ),
    ("a base of a name may end in a dash", r#"{"generateName": "abc-"}"#, &[]),
    ("a base of a name has the rules of names", r#"{"generateName": "A-"}"#, &[]),
    (
        "a base of one dash is no name",
        r#"{"generateName": "-"}"#,
        &[
            r#"metadata.generateName: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a base that is not ASCII is no name",
        r#"{"generateName": "\u00e9-"}"#,
        &[
            r#"metadata.generateName: Invalid value: "é-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a name has rules",
        r#"{"name": "A_"}"#,
        &[
            r#"metadata.name: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a name has a limit",
        r#"{"name": "<a254>"}"#,
        &[r#"metadata.name: Invalid value: "<a254>": must be no more than 253 characters"#],
    ),
    ("a namespace is needed", r#"{"namespace": ""}"#, &["metadata.namespace: Required value"]),
    (
        "a namespace is a DNS label",
        r#"{"namespace": "a.b"}"#,
        &[r#"metadata.namespace: Invalid value: "a.b": must not contain dots"#],
    ),
    (
        "a generation is not negative",
        r#"{"generation": -1}"#,
        &["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
    ),
    (
        "labels have rules",
        r#"{"labels": {"a/b/c": "x"}}"#,
        &[
            r#"metadata.labels: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#,
        ],
    ),
    (
        "keys of labels have prefixes",
        r#"{"labels": {"/a": "x"}}"#,
        &[r#"metadata.labels: Invalid value: "/a": prefix part must be non-empty"#],
    ),
    (
        "prefixes are DNS subdomains",
        r#"{"labels": {"A_/a": "x"}}"#,
        &[
            r#"metadata.labels: Invalid value: "A_/a": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "prefixes have a limit",
        r#"{"labels": {"<a254>/a": "x"}}"#,
        &[r#"metadata.labels: Invalid value: "<a254>/a": prefix part must be no more than 253 bytes"#],
    ),
    (
        "keys have names",
        r#"{"labels": {"a/": "x"}}"#,
        &[
            r#"metadata.labels: Invalid value: "a/": name part must be non-empty"#,
            r#"metadata.labels: Invalid value: "a/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "keys have a limit",
        r#"{"labels": {"<a64>": "x"}}"#,
        &[r#"metadata.labels: Invalid value: "<a64>": name part must be no more than 63 bytes"#],
    ),
    (
        "values of labels have rules",
        r#"{"labels": {"a": "-"}}"#,
        &[
            r#"metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        "values of labels have a limit",
        r#"{"labels": {"a": "<a64>"}}"#,
        &[r#"metadata.labels: Invalid value: "<a64>": must be no more than 63 bytes"#],
    ),
    (
        "annotations have keys",
        r#"{"annotations": {"-A": "any thing"}}"#,
        &[
            r#"metadata.annotations: Invalid value: "-A": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    ("keys of annotations may have capitals", r#"{"annotations": {"X.Y/Z": "any thing"}}"#, &[]),
    (
        "an owner has a version, a kind, a name and a uid",
        r#"{"ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}"#,
        &[
            r#"metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty"#,
            r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ],
    ),
    (
        "a version of an owner has at most one slash",
        r#"{"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}, {"apiVersion": "a/", "kind": "K", "name": "n", "uid": "u"}, {"apiVersion": "a/v1", "kind": "K", "name": "n", "uid": "u"}]}"#,
        &[
            r#"metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
            r#"metadata.ownerReferences.apiVersion: Invalid value: "a/": version must not be empty"#,
        ],
    ),
    (
        "finalizers have rules",
        r#"{"finalizers": ["-a/b"]}"#,
        &[
            r#"metadata.finalizers: Invalid value: "-a/b": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "finalizers without a domain are known",
        r#"{"finalizers": ["orphan", "kubernetes", "mine"]}"#,
        &[
            r#"metadata.finalizers[2]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified"#,
        ],
    ),
    (
        "orphans and foreground deletion exclude each other",
        r#"{"finalizers": ["orphan", "foregroundDeletion"]}"#,
        &[
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#,
        ],
    ),
    (
        "managed fields have an operation and a type",
        r#"{"managedFields": [{"operation": "Delete", "fieldsType": "FieldsV2", "manager": "<a129>", "subresource": "<a257>"}, {"operation": "Apply", "fieldsType": "FieldsV1", "manager": "m"}]}"#,
        &[
            r#"metadata.managedFields[0].operation: Invalid value: "Delete": must be `Apply` or `Update`"#,
            r#"metadata.managedFields[0].fieldsType: Invalid value: "FieldsV2": must be `FieldsV1`"#,
            "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
            "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
        ],
    ),
    (
        "a manager is printable",
        r#"{"managedFields": [{"operation": "Update", "manager": "a\tb"}]}"#,
        &[
            r#"metadata.managedFields[0].manager: Invalid value: "a\tb": invalid character U+0009 (at position 1)"#,
        ],
    ),
];

/// The rule, fields before and after, and all the errors.
const CHANGED: &[(&str, &str, &str, &[&str])] = &[
    ("nothing changes", "{}", "{}", &[]),
    (
        "a resource version is needed",
        "{}",
        r#"{"resourceVersion": ""}"#,
        &[r#"metadata.resourceVersion: Invalid value: "": must be specified for an update"#],
    ),
    (
        "a generation does not shrink",
        r#"{"generation": 2}"#,
        r#"{"generation": 1}"#,
        &["metadata.generation: Invalid value: 1: must not be decremented"],
    ),
    (
        "names, uid and times stay",
        r#"{"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}"#,
        r#"{"name": "m", "namespace": "t", "uid": "v", "creationTimestamp": "2026-01-02T00:00:00Z"}"#,
        &[
            r#"metadata.name: Invalid value: "m": field is immutable"#,
            r#"metadata.namespace: Invalid value: "t": field is immutable"#,
            r#"metadata.uid: Invalid value: "v": field is immutable"#,
            r#"metadata.creationTimestamp: Invalid value: "2026-01-02T00:00:00Z": field is immutable"#,
        ],
    ),
    (
        "a deletion is not taken back",
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}"#,
        "{}",
        &[
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            "metadata.deletionGracePeriodSeconds: Invalid value: null: field is immutable",
        ],
    ),
    (
        "a deletion is not made by hand",
        "{}",
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}"#,
        &[
            r#"metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable"#,
            "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable",
        ],
    ),
    (
        "finalizers are not added to what is being deleted",
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}"#,
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "x/z", "x/y", "x/y"]}"#,
        &[
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/y", "x/z"}"#,
        ],
    ),
    (
        "finalizers are removed from what is being deleted",
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}"#,
        r#"{"deletionTimestamp": "2026-01-01T00:00:00Z"}"#,
        &[],
    ),
    ("finalizers are added otherwise", "{}", r#"{"finalizers": ["a/b"]}"#, &[]),
    (
        "finalizers are known",
        "{}",
        r#"{"finalizers": ["mine"]}"#,
        &[
            r#"metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified"#,
        ],
    ),
    (
        "labels, annotations, owners and managed fields have rules",
        "{}",
        r#"{"labels": {"-a": "b"}, "annotations": {"-c": ""}, "ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "n", "uid": "u"}], "managedFields": [{"operation": "x"}]}"#,
        &[
            r#"metadata.labels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"metadata.annotations: Invalid value: "-c": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
            r#"metadata.managedFields[0].operation: Invalid value: "x": must be `Apply` or `Update`"#,
        ],
    ),
];
