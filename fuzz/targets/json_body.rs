//! Bodies of creates in JSON. The first byte chooses the kind and how strict the server is.
#![no_main]

use http::Method;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((path, body)) = windlass_fuzz::choose(data) else { return };
    let validation = ["Ignore", "Warn", "Strict"][usize::from(data[0] / 64 % 3)];
    let uri = format!("{path}?dryRun=All&fieldValidation={validation}");
    let (code, answer) = windlass_fuzz::send(Method::POST, &uri, "application/json", body);
    // What the server has made of it is an object that it takes. A Job is not: its selector names its own UID.
    if code == 201 && !path.ends_with("jobs") {
        let mut again = answer.clone();
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            again["metadata"].as_object_mut().expect("every object has metadata").remove(field);
        }
        let (code, second) =
            windlass_fuzz::send(Method::POST, &uri, "application/json", again.to_string().as_bytes());
        assert_eq!(code, 201, "{second}\nwas\n{answer}");
    }
});
