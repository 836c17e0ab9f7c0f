//! Patches of type `application/merge-patch+json`. The first byte chooses the object.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| windlass_fuzz::patch("application/merge-patch+json", "", data));
