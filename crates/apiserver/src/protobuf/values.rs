//! The values whose JSON is not that of their fields: texts, times, quantities and what holds JSON itself.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::value::RawValue;
use windlass_api::protobuf::{Payload, Reader, timestamp};

use super::{Error, wire};

/// Go's zero time, the first second of the year 1: not a time at all.
const NO_TIME: i64 = -62_135_596_800;

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a vector takes every text");
}

pub(super) fn number(out: &mut Vec<u8>, number: i64) {
    write!(out, "{number}").expect("a vector takes every number");
}

pub(super) fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    text(out, &STANDARD.encode(bytes));
}

/// Whole seconds: what the JSON of a time can say.
pub(super) fn time(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let seconds = timestamp(bytes, name)?.map(|(seconds, _)| seconds);
    written(out, seconds.map(|seconds| i128::from(seconds) * 1_000_000_000), name, "%Y-%m-%dT%H:%M:%SZ")
}

pub(super) fn micro_time(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let at = timestamp(bytes, name)?.map(|(seconds, nanoseconds)| {
        i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds / 1000 * 1000)
    });
    written(out, at, name, "%Y-%m-%dT%H:%M:%S.%6fZ")
}

fn written(out: &mut Vec<u8>, nanoseconds: Option<i128>, name: &str, format: &str) -> Result<(), Error> {
    let Some(at) = nanoseconds.filter(|at| *at != i128::from(NO_TIME) * 1_000_000_000) else {
        out.extend(b"null");
        return Ok(());
    };
    let time = Timestamp::from_nanosecond(at).ok().filter(|time| *time >= Timestamp::constant(NO_TIME, 0));
    let time = time.ok_or_else(|| wire::Error::NotATime { field: name.to_owned() })?;
    text(out, &time.strftime(format).to_string());
    Ok(())
}

pub(super) fn quantity(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let mut quantity = "0";
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            quantity = payload.text(name)?;
        }
    }
    text(out, quantity);
    Ok(())
}

pub(super) fn int_or_string(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let (mut kind, mut int, mut string) = (0, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => kind = payload.number(name)?,
            2 => int = payload.number(name)? as i32,
            3 => string = payload.text(name)?,
            _ => {}
        }
    }
    match kind {
        0 => number(out, i64::from(int)),
        1 => text(out, string),
        // upstream: the JSON encoder says so
        _ => return Err(Error::NeitherIntNorString { field: name.to_owned() }),
    }
    Ok(())
}

pub(super) fn strings(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            items.push(payload.text(name)?);
        }
    }
    serde_json::to_writer(out, &items).expect("a vector takes every list of texts");
    Ok(())
}

pub(super) fn json(out: &mut Vec<u8>, bytes: &[u8], name: &str) -> Result<(), Error> {
    let mut raw: Option<Payload<'_>> = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            raw = Some(payload);
        }
    }
    let raw = raw.map_or(Ok(&[][..]), |payload| payload.bytes(name))?;
    if raw.is_empty() {
        out.extend(b"null");
        return Ok(());
    }
    let value: &RawValue =
        serde_json::from_slice(raw).map_err(|_| Error::NotJson { field: name.to_owned() })?;
    out.extend(value.get().as_bytes());
    Ok(())
}
