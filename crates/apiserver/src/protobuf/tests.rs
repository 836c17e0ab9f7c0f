//! What real Go clients send, and what nobody sends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::{decode, resources};

const BYTES_MAX: usize = 1 << 20;

struct Golden {
    kind: &'static str,
    name: &'static str,
    body: Vec<u8>,
    json: Value,
}

fn golden() -> Vec<Golden> {
    let lines = include_str!("golden.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let [kind, name, body, json] = words[..] else { panic!("{line}") };
            let body = STANDARD.decode(body).expect("base64");
            Golden { kind, name, body, json: serde_json::from_str(json).expect("JSON") }
        })
        .collect()
}

fn to_json(body: &[u8]) -> Result<Value, Error> {
    let json = json_of(&Envelope::open(body)?, BYTES_MAX)?;
    Ok(serde_json::from_slice(&json).expect("what is written is JSON"))
}

#[test]
fn objects_of_every_kind_become_the_json_that_go_writes() {
    let golden = golden();
    assert!(golden.len() > 100, "{} objects", golden.len());
    for Golden { kind, name, body, json } in golden {
        assert_eq!(to_json(&body), Ok(json), "{kind} {name}");
    }
}

/// An alpha field of 1.36 that 1.37, whose types we have, does not have any more.
const GONE: &str = "status.nodeAllocatableResourceClaimStatuses[0].resources";

#[test]
fn what_comes_of_protobuf_has_no_field_that_the_server_does_not_know() {
    for Golden { kind, name, body, json } in golden().into_iter().filter(|golden| golden.name == "full") {
        let served = resources::all().iter().find(|r| r.kind == kind && json["apiVersion"] == r.api_version);
        let Some(resource) = served else { continue };
        let value = to_json(&body).expect("it can be read");
        let expected = if kind == "Pod" { vec![GONE.to_owned()] } else { Vec::new() };
        assert_eq!(decode::unknown(resource, &value), Ok(expected), "{kind} {name}");
    }
}

/// Takes out what only a decoder can judge: times, and fields of 1.36 that our types do not have.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let is_judged = |name: &str| {
                ["Time", "Timestamp", "At", "managedFields", "nodeAllocatableResourceClaimStatuses"]
                    .iter()
                    .any(|end| name.ends_with(end))
            };
            map.retain(|name, _| !is_judged(name));
            map.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn what_is_plain_by_the_table_can_be_decoded() {
    let mut plain = Vec::new();
    for Golden { kind, name, mut json, .. } in golden() {
        let served = resources::all().iter().find(|r| r.kind == kind && json["apiVersion"] == r.api_version);
        let Some(resource) = served else { continue };
        without_times(&mut json);
        if decode::is_plain(resource, &json) {
            assert_eq!(decode::decoded(resource, &json), Ok(Vec::new()), "{kind} {name}");
            plain.push(format!("{kind} {name}"));
        }
    }
    assert!(plain.len() > 30, "{plain:?}");
    assert!(["Pod sent", "Job sent"].iter().all(|name| plain.iter().any(|it| it == name)), "{plain:?}");
}

/// Those that can be changed at every byte in little time.
fn short() -> Vec<Golden> {
    golden().into_iter().filter(|golden| golden.body.len() < 250).collect()
}

#[test]
fn a_body_that_is_cut_short_is_refused() {
    for Golden { kind, name, body, json } in short() {
        let read: Vec<Value> = (0..body.len())
            .filter_map(|end| match to_json(&body[..end]) {
                Ok(value) => Some(value),
                Err(Error::Wire(
                    wire::Error::NoData
                    | wire::Error::NoPrefix
                    | wire::Error::NoBody
                    | wire::Error::UnexpectedEnd,
                )) => None,
                Err(error) => panic!("{kind} {name} cut at {end}: {error}"),
            })
            .collect();
        // After each field of the envelope it is whole again: without the object, and without the two empty texts after
        // it.
        let empty = golden()
            .into_iter()
            .find(|golden| golden.kind == kind && golden.json["apiVersion"] == json["apiVersion"]);
        let empty = empty.expect("the first of a kind is empty").json;
        assert_eq!(read, [empty, json.clone(), json], "{kind} {name}");
    }
}

#[test]
fn a_body_with_a_flipped_bit_is_refused_or_read_and_never_panics() {
    for Golden { body, .. } in short() {
        for at in 0..body.len() * 8 {
            let mut body = body.clone();
            body[at / 8] ^= 1 << (at % 8);
            // What is read must be JSON: that is checked inside.
            let _ = to_json(&body);
        }
    }
}

#[test]
fn what_is_around_the_object_must_be_there() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (b"k8s\0\x08\x01", "proto: wrong wireType = 0 for field typeMeta"),
        (b"k8s\0\x0a\x04\x0a\x02v1", "Object 'Kind' is missing in 'v1'"),
        (b"k8s\0\x0a\x05\x12\x03Pod", "Object 'apiVersion' is missing in 'Pod'"),
        (b"k8s\0\x0a\x09\x0a\x02v2\x12\x03Pod", "no kind \"Pod\" is registered for version \"v2\""),
    ];
    for (body, expected) in cases {
        assert_eq!(to_json(body).map_err(|error| error.to_string()), Err(expected.to_owned()), "{body:?}");
    }
}

/// An object of a table of its own.
fn read(table: &str, raw: &[u8], bytes_max: usize) -> Result<Value, String> {
    let schema = Schema::parse(&format!("kind v1 A A\nmessage A\n{table}")).expect("a table");
    let envelope = Envelope { api_version: "v1", kind: "A", raw };
    let json = json_by(&schema, &envelope, bytes_max).map_err(|error| error.to_string())?;
    let mut value: Value = serde_json::from_slice(&json).expect("what is written is JSON");
    let fields = value.as_object_mut().expect("an object");
    fields.remove("kind");
    fields.remove("apiVersion");
    Ok(value)
}

#[test]
fn a_field_given_twice_is_the_last_or_all_parts_of_a_message() {
    let table = "1 a? string\n2 b? *A\n3 c? []int32\n4 d? map[string]string";
    let cases: [(&[u8], Value); 6] = [
        (b"\x0a\x01x\x0a\x01y", json!({"a": "y"})),
        (b"\x0a\x01x\x0a\x00", json!({})),
        (b"\x12\x03\x0a\x01x\x12\x02\x18\x05", json!({"b": {"a": "x", "c": [5]}})),
        (b"\x18\x01\x1a\x02\x02\x03\x18\x04", json!({"c": [1, 2, 3, 4]})),
        (b"\x1a\x00", json!({})),
        (b"\x22\x03\x0a\x01k\x22\x06\x0a\x01k\x12\x01v\x22\x00", json!({"d": {"": "", "k": "v"}})),
    ];
    for (raw, expected) in cases {
        assert_eq!(read(table, raw, BYTES_MAX), Ok(expected), "{raw:?}");
    }
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    assert_eq!(read("1 a? string", b"\x50\x01\x0a\x01x\xa2\x06\x01z", BYTES_MAX), Ok(json!({"a": "x"})));
}

#[test]
fn numbers_are_cut_to_their_width_as_upstream_cuts_them() {
    let table = "1 a int32\n2 b int64\n3 c bool";
    let raw =
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x02";
    assert_eq!(read(table, raw, BYTES_MAX), Ok(json!({"a": -1, "b": -1, "c": true})));
    assert_eq!(read(table, b"\x08\x80\x80\x80\x80\x10", BYTES_MAX), Ok(json!({"a": 0, "b": 0, "c": false})));
}

#[test]
fn values_that_json_cannot_say_are_refused() {
    let cases: [(&str, &[u8], &str); 8] = [
        ("1 a string", b"\x0a\x01\xff", "proto: field a is not UTF-8"),
        ("1 a string", b"\x08\x01", "proto: wrong wireType = 0 for field a"),
        ("1 a int32", b"\x0b\x0c", "proto: wrong wireType = 3 for field a"),
        ("1 a int32", b"\x0a\x00", "proto: wrong wireType = 2 for field a"),
        (
            "1 a Time",
            b"\x0a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "proto: field a is not a time from the year 1 to 9999",
        ),
        ("1 a IntOrString", b"\x0a\x02\x08\x02", "impossible IntOrString.Type of field a"),
        ("1 a JSON", b"\x0a\x03\x0a\x01{", "proto: field a does not hold JSON"),
        ("1 a []A", b"\x0a\x02\x0a\x05", "unexpected EOF"),
    ];
    for (table, raw, expected) in cases {
        assert_eq!(read(table, raw, BYTES_MAX), Err(expected.to_owned()), "{table} {raw:?}");
    }
}

#[test]
fn times_are_written_as_go_writes_them() {
    let cases: [(&str, &[u8], Value); 7] = [
        ("Time", b"\x0a\x00", json!(null)),
        ("Time", b"\x0a\x02\x08\x00", json!("1970-01-01T00:00:00Z")),
        ("Time", b"\x0a\x08\x08\x00\x10\x80\x94\xeb\xdc\x03", json!("1970-01-01T00:00:00Z")),
        ("Time", b"\x0a\x0b\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01", json!(null)),
        ("Time", b"\x0a\x0b\x08\x81\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01", json!("0001-01-01T00:00:01Z")),
        ("MicroTime", b"\x0a\x04\x08\x01\x10\x00", json!("1970-01-01T00:00:01.000000Z")),
        ("MicroTime", b"\x0a\x05\x08\x01\x10\xd1\x0f", json!("1970-01-01T00:00:01.000002Z")),
    ];
    for (kind, raw, expected) in cases {
        let value = read(&format!("1 a {kind}"), raw, BYTES_MAX);
        assert_eq!(value, Ok(json!({"a": expected})), "{kind} {raw:?}");
    }
}

#[test]
fn depth_has_a_limit() {
    let mut raw = Vec::new();
    for _ in 0..40 {
        let mut outer = vec![0x0a, u8::try_from(raw.len()).expect("short")];
        outer.extend(&raw);
        raw = outer;
    }
    let deep = read("1 a? *A", &raw, BYTES_MAX);
    assert_eq!(deep, Err("proto: messages are nested more than 32 deep".to_owned()));
    // A message that holds itself even when nothing is given has no end.
    let endless = read("1 a A", b"", BYTES_MAX);
    assert_eq!(endless, Err("proto: messages are nested more than 32 deep".to_owned()));
}

#[test]
fn a_few_bytes_do_not_become_a_text_without_end() {
    // Two bytes an item, and thirty in JSON.
    let table = "1 items? []B\nmessage B\n1 aLongNameForAField string\n2 b string";
    let raw = [0x0a, 0x00].repeat(100_000);
    assert_eq!(
        read(table, &raw, 1 << 16),
        Err("the JSON of the object is longer than 65536 bytes".to_owned())
    );
    let raw = [0x0a, 0x00].repeat(1000);
    assert!(read(table, &raw, 1 << 16).is_ok());
}
