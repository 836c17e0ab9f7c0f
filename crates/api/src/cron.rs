//! Schedules of CronJobs, as Kubernetes reads them: five fields or a name with `@`, nothing else.
//!
//! What is accepted and what errors say follows robfig/cron v3, `ParseStandard`, which Kubernetes uses.

/// When Jobs are to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that all fields name.
    At(Fields),
    /// After each span of this many nanoseconds, counted from the last time.
    Every(i64),
}

/// The minutes, hours and days of a schedule: bit `n` stands for the value `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// 0 to 59.
    pub minutes: u64,
    /// 0 to 23.
    pub hours: u64,
    /// 1 to 31.
    pub days: u64,
    /// 1 to 12.
    pub months: u64,
    /// 0 (Sunday) to 6.
    pub weekdays: u64,
}

/// Set beside the values of a field that names all of them: such a field does not narrow the other kind of day.
pub const ANY: u64 = 1 << 63;

/// The values that a field can have, and their names.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Schedule {
    /// Reads a schedule. The error is upstream's text. A time zone in front is skipped: whether there is such a zone is
    /// not known here, and the API refuses it anyway.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let mut text = text;
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let (_, rest) = text.split_once(' ').ok_or("a time zone is followed by no schedule")?;
            text = rest.trim();
        }
        if text.starts_with('@') {
            return named(text);
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            let count = parts.len();
            return Err(format!("expected exactly 5 fields, found {count}: [{}]", parts.join(" ")));
        };
        Ok(Self::At(Fields {
            minutes: field(minutes, &MINUTES)?,
            hours: field(hours, &HOURS)?,
            days: field(days, &DAYS)?,
            months: field(months, &MONTHS)?,
            weekdays: field(weekdays, &WEEKDAYS)?,
        }))
    }
}

/// `@daily` and the like.
fn named(text: &str) -> Result<Schedule, String> {
    let all = |bounds: &Bounds| bits(bounds.min, bounds.max, 1) | ANY;
    let daily =
        Fields { minutes: 1, hours: 1, days: all(&DAYS), months: all(&MONTHS), weekdays: all(&WEEKDAYS) };
    let first_day = 1 << DAYS.min;
    let fields = match text {
        "@yearly" | "@annually" => Fields { days: first_day, months: 1 << MONTHS.min, ..daily },
        "@monthly" => Fields { days: first_day, ..daily },
        "@weekly" => Fields { weekdays: 1, ..daily },
        "@daily" | "@midnight" => daily,
        "@hourly" => Fields { hours: all(&HOURS), ..daily },
        _ => {
            let span =
                text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let span = duration(span).map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            // upstream: no more often than once a second, and in whole seconds
            return Ok(Schedule::Every((span / SECOND * SECOND).max(SECOND)));
        }
    };
    Ok(Schedule::At(fields))
}

/// A comma-separated list of ranges.
fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut all = 0;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        all |= range(part, bounds)?;
    }
    Ok(all)
}

/// `*`, `n`, `n-m`, each with `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut any = 0;
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        any = ANY;
        (bounds.min, bounds.max)
    } else {
        let start = value(ends[0], bounds.names, bounds.min)?;
        match ends[..] {
            [_] => (start, start),
            [_, end] => (start, value(end, bounds.names, bounds.min)?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = whole(step)?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            if step > 1 {
                any = 0;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(bits(start, end, step) | any)
}

fn bits(start: u64, end: u64, step: u64) -> u64 {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (start..=end).step_by(step).fold(0, |bits, value| bits | 1 << value)
}

fn value(text: &str, names: &[&str], first: u64) -> Result<u64, String> {
    let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match named {
        Some(at) => Ok(first + at as u64),
        None => whole(text),
    }
}

/// A number as Go's Atoi reads it.
fn whole(text: &str) -> Result<u64, String> {
    let failed =
        |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

const SECOND: i64 = 1_000_000_000;
/// What a duration can be given in, in nanoseconds.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// A duration as Go's ParseDuration reads it, in nanoseconds.
fn duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        if digits.is_empty() || digits == "." || digits.matches('.').count() > 1 {
            return Err(invalid());
        }
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        let part = scaled(digits, *scale).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(if is_negative { -total } else { total })
}

/// `1.5` times a scale.
fn scaled(digits: &str, scale: i64) -> Option<i64> {
    let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = if before.is_empty() { 0 } else { before.parse().ok()? };
    let mut part = whole.checked_mul(scale)?;
    let mut place = scale;
    for digit in after.bytes() {
        place /= 10;
        part = part.checked_add(i64::from(digit - b'0') * place)?;
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: impl IntoIterator<Item = u64>) -> u64 {
        values.into_iter().fold(0, |bits, value| bits | 1 << value)
    }

    fn fields(text: &str) -> Fields {
        match Schedule::parse(text) {
            Ok(Schedule::At(fields)) => fields,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_field_names_its_values() {
        let want = Fields {
            minutes: set([0, 15, 30, 45]),
            hours: set(9..=17),
            days: set(1..=31) | ANY,
            months: set([1, 6]),
            weekdays: set(1..=5),
        };
        assert_eq!(fields("*/15 9-17 * Jan,6 mon-FRI"), want);
        let want = Fields {
            minutes: set([5, 15, 25, 35, 45, 55]),
            hours: set([0]),
            days: set(1..=31) | ANY,
            months: set([2, 5, 8, 11]),
            weekdays: set([0, 6]),
        };
        assert_eq!(fields("5/10 0 ? 2-12/3 0,6"), want);
        assert_eq!(fields("TZ=Nowhere * * * * *").minutes, set(0..=59) | ANY);
        assert_eq!(fields("*/1 +3 1 1 0,,1").minutes, set(0..=59) | ANY, "a step of one leaves nothing out");
    }

    #[test]
    fn names_stand_for_fields() {
        let cases = [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("@monthly", "0 0 1 * *"),
            ("@weekly", "0 0 * * 0"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
        ];
        for (name, same) in cases {
            assert_eq!(Schedule::parse(name), Schedule::parse(same), "{name}");
        }
        let cases = [
            ("1h30m", 5400),
            ("90s", 90),
            ("1.5m", 90),
            (".5h", 1800),
            ("100ms", 1),
            ("+2s7us", 2),
            ("0", 1),
            ("-5s", 1),
            ("1µs1μs1ns", 1),
        ];
        for (span, seconds) in cases {
            let want = Schedule::Every(seconds * SECOND);
            assert_eq!(Schedule::parse(&format!("@every {span}")), Ok(want), "{span}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_upstream_says_it() {
        let cases = [
            ("", "empty spec string"),
            ("TZ=UTC", "a time zone is followed by no schedule"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("0 0 1 1 1 2026", "expected exactly 5 fields, found 6: [0 0 1 1 1 2026]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("1-x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("* * L * *", "failed to parse int from L: strconv.Atoi: parsing \"L\": invalid syntax"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            ("@reboot", "unrecognized descriptor: @reboot"),
            ("@every", "unrecognized descriptor: @every"),
            ("@every 1x", "failed to parse duration @every 1x: time: unknown unit \"x\" in duration \"1x\""),
            ("@every 1", "failed to parse duration @every 1: time: missing unit in duration \"1\""),
            ("@every ", "failed to parse duration @every : time: invalid duration \"\""),
            ("@every h", "failed to parse duration @every h: time: invalid duration \"h\""),
            ("@every 1.2.3s", "failed to parse duration @every 1.2.3s: time: invalid duration \"1.2.3s\""),
            (
                "@every 9999999999h",
                "failed to parse duration @every 9999999999h: time: invalid duration \"9999999999h\"",
            ),
            (
                "@every 2000000h2000000h",
                "failed to parse duration @every 2000000h2000000h: time: invalid duration \"2000000h2000000h\"",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(Schedule::parse(text), Err(want.to_owned()), "{text:?}");
        }
    }
}
