//! Patches of type `application/apply-patch+yaml`, with and without force. The first byte chooses the object.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    windlass_fuzz::patch("application/apply-patch+yaml", "", data);
    windlass_fuzz::patch("application/apply-patch+yaml", "&force=true", data);
});
