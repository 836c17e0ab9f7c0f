//! Label selectors, and field selectors after the first line break.
#![no_main]

use std::fmt::Write;

use http::Method;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let mut encoded = || {
        let mut text = String::new();
        for byte in parts.next().unwrap_or_default() {
            write!(text, "%{byte:02x}").expect("a string takes everything");
        }
        text
    };
    let (labels, fields) = (encoded(), encoded());
    // A head of a request is short, whatever the network lets through.
    if labels.len() + fields.len() > 16_000 {
        return;
    }
    let uri = format!("/api/v1/pods?labelSelector={labels}&fieldSelector={fields}");
    let (code, answer) = windlass_fuzz::send(Method::GET, &uri, "", b"");
    assert!(matches!(code, 200 | 400), "{code} {answer}");
});
