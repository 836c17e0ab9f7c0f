//! Bodies in protobuf.
#![no_main]

use http::Method;
use serde_json::Value;
use windlass_apiserver::protobuf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(json) = protobuf::to_json(data) else { return };
    let value: Value = serde_json::from_slice(&json).expect("what is written is JSON");
    let (uri, media_type) =
        ("/apis/batch/v1/namespaces/default/jobs?dryRun=All", "application/vnd.kubernetes.protobuf");
    let from_protobuf = windlass_fuzz::send(Method::POST, uri, media_type, data);
    let from_json = windlass_fuzz::send(Method::POST, uri, "application/json", value.to_string().as_bytes());
    // Two objects have two UIDs, and may have two times.
    assert_eq!(from_protobuf.0, from_json.0, "{} {}", from_protobuf.1, from_json.1);
});
