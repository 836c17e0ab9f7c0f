//! Label and field selectors: reading, printing, matching, and complaints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use windlass_api::field::Path;
use windlass_api::selector::{FieldSelector, Operator, Requirement, Selector, validate_label_selector};

fn object(json: &str) -> LabelSelector {
    serde_json::from_str(json).expect("a label selector")
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn queries_are_read_and_printed_in_order() {
    for (text, printed) in PRINTED {
        let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(selector.to_string(), *printed, "{text:?}");
        assert_eq!(Selector::parse(printed), Ok(selector), "{text:?}");
    }
}

#[test]
fn queries_that_cannot_be_read_are_refused_in_the_words_of_kubernetes() {
    for (text, error) in REFUSED {
        assert_eq!(Selector::parse(text), Err((*error).to_owned()), "{text:?}");
    }
}

#[test]
fn selectors_of_objects_are_read() {
    for (json, printed) in OBJECTS {
        let selector = Selector::from_label_selector(&object(json));
        assert_eq!(selector.map(|selector| selector.to_string()), Ok((*printed).to_owned()), "{json}");
    }
}

#[test]
fn selectors_of_objects_that_mean_nothing_are_refused() {
    for (json, error) in OBJECTS_REFUSED {
        assert_eq!(Selector::from_label_selector(&object(json)), Err((*error).to_owned()), "{json}");
    }
}

#[test]
fn requirements_have_as_many_values_as_their_operators_need() {
    let two = || vec!["1".to_owned(), "2".to_owned()];
    for (operator, error) in [
        (Operator::Equals, "exact-match compatibility requires one single value"),
        (Operator::GreaterThan, "for 'Gt', 'Lt' operators, exactly one value is required"),
    ] {
        let error = format!("values: Invalid value: [\"1\",\"2\"]: {error}");
        assert_eq!(Requirement::new("a", operator, two()), Err(error));
    }
}

#[test]
fn labels_match_when_all_requirements_do() {
    let have = labels(&[("a", "b"), ("n", "5"), ("e", "")]);
    let yes = [
        "",
        "a",
        "a=b",
        "a==b",
        "a!=c",
        "x!=c",
        "a in (b,c)",
        "a notin (c)",
        "x notin (c)",
        "!x",
        "n>4",
        "n<6",
        "e=",
        "e in ()",
        "a=b,n>4,!x",
    ];
    let no = [
        "x",
        "a=c",
        "a!=b",
        "a in (c)",
        "x in (c)",
        "a notin (b)",
        "!a",
        "n>5",
        "n<5",
        "a>1",
        "x<1",
        "x=",
        "a=b,x",
    ];
    for (texts, wanted) in [(&yes[..], true), (&no[..], false)] {
        for text in texts {
            let selector = Selector::parse(text).expect("a selector");
            assert_eq!(selector.matches(&have), wanted, "{text:?}");
        }
    }
}

#[test]
fn an_empty_selector_matches_all_and_no_selector_matches_none() {
    let have = labels(&[("a", "b")]);
    let empty = Selector::from_optional(Some(&LabelSelector::default())).expect("a selector");
    let none = Selector::from_optional(None).expect("a selector");
    assert_eq!(empty, Selector::everything());
    assert!(empty.matches(&have) && empty.is_empty() && empty.to_string().is_empty());
    assert_eq!(none, Selector::Nothing);
    assert!(!none.matches(&have) && !none.is_empty() && none.to_string().is_empty());
}

#[test]
fn one_more_requirement_narrows_a_selector_and_nothing_stays_nothing() {
    let more = || Requirement::new("b", Operator::In, vec!["1".to_owned()]).expect("a requirement");
    let both = Selector::parse("c,a=1").expect("a selector").and(more());
    assert_eq!(both.to_string(), "a=1,b in (1),c");
    let value = |key: &str| ["a", "b", "c"].contains(&key).then_some("1");
    assert!(both.matches_values(value));
    assert!(!both.matches_values(|key| value(key).filter(|_| key != "b")));
    assert_eq!(Selector::Nothing.and(more()), Selector::Nothing);
}

#[test]
fn field_selectors_are_read_and_printed_in_order() {
    for (text, printed) in FIELDS {
        let selector = FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(selector.to_string(), *printed, "{text:?}");
    }
}

#[test]
fn field_selectors_that_cannot_be_read_are_refused() {
    for (text, error) in FIELDS_REFUSED {
        assert_eq!(FieldSelector::parse(text), Err((*error).to_owned()), "{text:?}");
    }
}

#[test]
fn fields_match_when_all_terms_do_and_a_missing_field_is_empty() {
    let have = [("status.phase", "Running"), ("spec.nodeName", "")];
    for (text, wanted) in [
        ("", true),
        ("status.phase=Running", true),
        ("status.phase!=Running", false),
        ("status.phase==Running,spec.nodeName=", true),
        ("status.phase=Running,spec.nodeName!=", false),
        ("metadata.name=", true),
        ("metadata.name=a", false),
    ] {
        let selector = FieldSelector::parse(text).expect("a field selector");
        assert_eq!(selector.matches(&have), wanted, "{text:?}");
    }
}

#[test]
fn a_field_selector_tells_its_fields_and_exact_values() {
    let selector = FieldSelector::parse("b=1,a!=2,c=3").expect("a field selector");
    assert_eq!(selector.fields().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!((selector.exact("b"), selector.exact("a"), selector.exact("x")), (Some("1"), None, None));
}

#[test]
fn selectors_in_objects_are_held_to_every_rule() {
    for (cases, allows_old_values) in [(VALID, false), (VALID_OLD, true)] {
        for (json, wanted) in cases {
            let errors =
                validate_label_selector(&object(json), &Path::new("spec.selector"), allows_old_values);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *wanted, "{json}");
        }
    }
}

/// A query and how it is printed.
const PRINTED: &[(&str, &str)] = &[
    ("", ""),
    ("a", "a"),
    ("!a", "!a"),
    ("a=b", "a=b"),
    ("a==b", "a==b"),
    ("a!=b", "a!=b"),
    ("a in (x,y)", "a in (x,y)"),
    ("a notin (z)", "a notin (z)"),
    ("a in (y,x,y)", "a in (x,y)"),
    ("a in ()", "a in ()"),
    ("a in (,x)", "a in (,x)"),
    ("a in (x,)", "a in (,x)"),
    ("a in (x,,y)", "a in (,x,y)"),
    ("a>5", "a>5"),
    ("a<5", "a<5"),
    ("a=", "a="),
    ("a!=,b", "a!=,b"),
    ("b,a", "a,b"),
    (" a = b , c ", "a=b,c"),
    ("in", "in"),
    ("notin=in", "notin=in"),
    ("in in (in,notin)", "in in (in,notin)"),
    ("a\tin\t(b)", "a in (b)"),
    ("x/y=z", "x/y=z"),
    ("a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1,j<2", "a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1,j<2"),
    ("a!=b,a=c", "a!=b,a=c"),
    ("a in (,)", "a in ()"),
];

/// A query and why it can't be read.
const REFUSED: &[(&str, &str)] = &[
    (
        "a>-5",
        r#"unable to parse requirement: values[0][a]: Invalid value: "-5": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
    ),
    ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    (",", "found ',', expected: !, identifier, or 'end of string'"),
    ("a,", "found '', expected: identifier after ','"),
    ("a,,b", "found ',', expected: identifier after ','"),
    ("!", "unable to parse requirement: found '', expected: identifier"),
    ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ("=b", "found '=', expected: !, identifier, or 'end of string'"),
    ("a in", "unable to parse requirement: found '' expected: '('"),
    ("a in x", "unable to parse requirement: found 'x' expected: '('"),
    ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
    ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
    ("a in (x,", "unable to parse requirement: found '', expected: ',', or identifier"),
    ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
    ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
    ("a=b c", "found 'c', expected: ',' or 'end of string'"),
    ("a=(", "unable to parse requirement: found '(', expected: identifier"),
    (
        "a>x",
        r#"unable to parse requirement: values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer"#,
    ),
    (
        "-a",
        r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
    ),
    ("a=b c=d", "found 'c', expected: ',' or 'end of string'"),
    (
        "a=-b",
        r#"unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
    ),
    ("a in (x,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
    (
        "a=='",
        r#"unable to parse requirement: values[0][a]: Invalid value: "'": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
    ),
    ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
    ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
    ("a==b=c", "found '=', expected: ',' or 'end of string'"),
    (
        "x/y/z",
        r#"unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#,
    ),
    (
        "a in (-b,-c)",
        r#"unable to parse requirement: [values[0][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'), values[1][a]: Invalid value: "-c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#,
    ),
    ("!,a", "unable to parse requirement: found ',', expected: identifier"),
];

/// A selector of an object and how it is printed.
const OBJECTS: &[(&str, &str)] = &[
    ("{}", ""),
    (r#"{"matchLabels": {"b": "x", "a": "y"}}"#, "a=y,b=x"),
    (
        r#"{"matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "b", "operator": "NotIn", "values": ["z"]}, {"key": "a", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]}"#,
        "a,b notin (z),c in (x,y),!d",
    ),
    (r#"{"matchLabels": {"b": "x"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}"#, "a,b=x"),
];

/// A selector of an object and why it means nothing.
const OBJECTS_REFUSED: &[(&str, &str)] = &[
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "Like"}]}"#,
        r#""Like" is not a valid label selector operator"#,
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "In"}]}"#,
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}"#,
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}"#,
        r#"values: Invalid value: ["x"]: values set must be empty for exists and does not exist"#,
    ),
    (
        r#"{"matchLabels": {"-a": "b c"}}"#,
        r#"[key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), values[0][-a]: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#,
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "In", "values": ["-b", "-b"]}]}"#,
        r#"[values[0][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'), values[1][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#,
    ),
];

/// A field selector and how it is printed.
const FIELDS: &[(&str, &str)] = &[
    ("", ""),
    ("a=b", "a=b"),
    ("a==b", "a=b"),
    ("a!=b", "a!=b"),
    ("b=1,a=2", "a=2,b=1"),
    (",a=b,", "a=b"),
    ("=", ""),
    ("=x", "=x"),
    ("a=", "a="),
    ("a=b\\,c", r#"a=b\,c"#),
    ("a=b\\=c", r#"a=b\=c"#),
    ("a=b\\\\", r#"a=b\\"#),
    ("a.b/c=d", "a.b/c=d"),
];

/// A field selector and why it can't be read.
const FIELDS_REFUSED: &[(&str, &str)] = &[
    ("a!==b", "invalid field selector: unescaped character in value: 61"),
    ("a", "invalid selector: 'a'; can't understand 'a'"),
    ("a,b=c", "invalid selector: 'a,b=c'; can't understand 'a'"),
    ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ("a=b\\x", r#"invalid field selector: invalid escape sequence: \x"#),
    ("a=b\\", r#"invalid field selector: invalid escape sequence: \"#),
    ("a!b", "invalid selector: 'a!b'; can't understand 'a!b'"),
];

/// A selector of a new object and all its errors.
const VALID: &[(&str, &[&str])] = &[
    (
        r#"{"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Exists"}]}"#,
        &[],
    ),
    (
        r#"{"matchLabels": {"-a": "b c"}}"#,
        &[
            r#"spec.selector.matchLabels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"spec.selector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "NotIn", "values": []}, {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "DoesNotExist", "values": ["x"]}, {"key": "a", "operator": "Gt", "values": ["5"]}, {"key": "-a", "operator": "In", "values": ["b c"]}]}"#,
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector.matchExpressions[3].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            r#"spec.selector.matchExpressions[4].operator: Invalid value: "Gt": not a valid selector operator"#,
            r#"spec.selector.matchExpressions[5].key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"spec.selector.matchExpressions[5].values[0]: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
];

/// A selector of an old object and all its errors.
const VALID_OLD: &[(&str, &[&str])] = &[
    (
        r#"{"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Exists"}]}"#,
        &[],
    ),
    (
        r#"{"matchLabels": {"-a": "b c"}}"#,
        &[
            r#"spec.selector.matchLabels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"spec.selector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        r#"{"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "NotIn", "values": []}, {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "DoesNotExist", "values": ["x"]}, {"key": "a", "operator": "Gt", "values": ["5"]}, {"key": "-a", "operator": "In", "values": ["b c"]}]}"#,
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector.matchExpressions[3].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            r#"spec.selector.matchExpressions[4].operator: Invalid value: "Gt": not a valid selector operator"#,
            r#"spec.selector.matchExpressions[5].key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
];
