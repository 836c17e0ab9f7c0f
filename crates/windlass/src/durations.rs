//! Durations as Go writes them (`1h30m`, `100ms`, `2.5s`), because that is how Kubernetes' own flags are written.

use std::time::Duration;

use jiff::SignedDuration;

/// Why a duration could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not a sequence of numbers with units.
    #[error("{0:?} is not a duration; write it as in 100ms, 10s or 1h30m")]
    Malformed(String),
    /// A number has no unit.
    #[error("{0:?} has no unit; write it as in 100ms, 10s or 1h30m")]
    NoUnit(String),
    /// It is below zero.
    #[error("{0:?} is negative")]
    Negative(String),
    /// It is longer than can be written down.
    #[error("{0:?} is too long")]
    TooLong(String),
}

const NANOS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, micro sign
    ("μs", 1_000), // U+03BC, Greek letter mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration that is not negative. `0` needs no unit.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.starts_with('-') {
        return Err(Error::Negative(text.to_owned()));
    }
    if unsigned.is_empty() {
        return Err(Error::Malformed(text.to_owned()));
    }
    let mut rest = unsigned;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, after) = part(rest, text)?;
        total = total.checked_add(nanos).ok_or_else(|| Error::TooLong(text.to_owned()))?;
        rest = after;
    }
    Ok(Duration::from_nanos(total))
}

/// The same span, for arithmetic with times.
pub fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Writes a span that is not negative as Go does, without parts that are zero: `1h30m`, `2.5s`, `100ms`.
pub fn text(span: SignedDuration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    for (number, unit) in [(hours, "h"), (minutes, "m")] {
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    match (seconds, millis) {
        (0, 0) if !text.is_empty() => text,
        (seconds, 0) => format!("{text}{seconds}s"),
        (seconds, millis) => {
            let fraction = format!("{millis:03}");
            format!("{text}{seconds}.{}s", fraction.trim_end_matches('0'))
        }
    }
}

/// The nanoseconds of the first number with its unit, and what follows.
fn part<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), Error> {
    let malformed = || Error::Malformed(text.to_owned());
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    if number.is_empty() {
        return Err(malformed());
    }
    if unit.is_empty() {
        return Err(Error::NoUnit(text.to_owned()));
    }
    let (_, scale) = NANOS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let too_long = || Error::TooLong(text.to_owned());
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
    let nanos = whole.checked_mul(*scale).ok_or_else(too_long)?;
    Ok((nanos.checked_add(fraction_of(fraction, *scale)).ok_or_else(too_long)?, rest))
}

/// `0.fraction × scale`, cut off below a nanosecond.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut unit = scale as f64;
    let sum: f64 = digits
        .bytes()
        .map(|digit| {
            unit /= 10.0;
            f64::from(digit - b'0') * unit
        })
        .sum();
    // A tenth of a nanosecond makes up for what binary fractions lose.
    (sum + 0.1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_without_parts_that_are_zero() {
        let cases = [
            (0, "0s"),
            (100, "100ms"),
            (1_000, "1s"),
            (2_500, "2.5s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (5_400_050, "1h30m0.05s"),
        ];
        for (millis, want) in cases {
            assert_eq!(text(SignedDuration::from_millis(millis)), want);
        }
        assert_eq!(signed(Duration::MAX), SignedDuration::MAX);
    }

    #[test]
    fn durations_read_as_go_reads_them() {
        let cases = [
            ("0", 0),
            ("+5s", 5_000_000_000),
            ("5s", 5_000_000_000),
            ("100ms", 100_000_000),
            ("1m30s", 90_000_000_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("2.5s", 2_500_000_000),
            ("0.1s", 100_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1.000000001s", 1_000_000_001),
            ("10µs", 10_000),
            ("10μs", 10_000),
            ("0s", 0),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_named() {
        let malformed = |text: &str| Err(Error::Malformed(text.to_owned()));
        for text in ["", "+", "s", ".s", "1.2.3s", "3x", "1 s", "s1"] {
            assert_eq!(parse(text), malformed(text), "{text}");
        }
        assert_eq!(parse("10"), Err(Error::NoUnit("10".to_owned())));
        assert_eq!(parse("1h30"), Err(Error::NoUnit("1h30".to_owned())));
        assert_eq!(parse("-1s"), Err(Error::Negative("-1s".to_owned())));
        for text in ["9999999h", "99999999999999999999s"] {
            assert_eq!(parse(text), Err(Error::TooLong(text.to_owned())), "{text}");
        }
    }
}
