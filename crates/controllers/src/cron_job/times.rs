//! When a schedule is due. Pure.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use windlass_api::cron::{ANY, Fields, Schedule};

/// How far ahead a time is looked for: some schedules, as of the 31st of February, have none.
const YEARS: i16 = 5;
/// More missed times than this are worth a warning.
const MANY: i64 = 100;

/// The first time of the schedule after `after`, if there is one within five years.
pub(crate) fn next(schedule: &Schedule, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let whole = Timestamp::from_second(after.as_second()).ok()?;
    match schedule {
        Schedule::Every(span) => whole.checked_add(SignedDuration::from_nanos(*span)).ok(),
        Schedule::At(fields) => {
            let start = whole.checked_add(SignedDuration::from_secs(1)).ok()?.to_zoned(zone.clone());
            let last_year = start.year() + YEARS;
            search(fields, start, last_year).map(|time| time.timestamp())
        }
    }
}

/// Goes from the largest unit to the smallest. When a unit wraps around, a larger one changed: from the start again.
/// Hours and minutes are steps of real time, so that an hour that the clocks skip is not found, and one that they repeat is
/// found twice.
fn search(fields: &Fields, start: Zoned, last_year: i16) -> Option<Zoned> {
    let mut time = start;
    'again: loop {
        if time.year() > last_year {
            return None;
        }
        let mut is_start_of_month = false;
        while !has(fields.months, time.month()) {
            if !is_start_of_month {
                time = midnight(&time.first_of_month().ok()?)?;
                is_start_of_month = true;
            }
            time = time.checked_add(1.month()).ok()?;
            if time.month() == 1 {
                continue 'again;
            }
        }
        while !is_day(fields, &time) {
            time = midnight(&midnight(&time)?.checked_add(1.day()).ok()?)?;
            if time.day() == 1 {
                continue 'again;
            }
        }
        while !has(fields.hours, time.hour()) {
            time = on_the_hour(&time)?.checked_add(SignedDuration::from_hours(1)).ok()?;
            if time.hour() == 0 {
                continue 'again;
            }
        }
        while !has(fields.minutes, time.minute()) {
            time = on_the_minute(&time)?.checked_add(SignedDuration::from_mins(1)).ok()?;
            if time.minute() == 0 {
                continue 'again;
            }
        }
        if time.second() != 0 {
            time = on_the_minute(&time)?.checked_add(SignedDuration::from_mins(1)).ok()?;
            continue 'again;
        }
        return Some(time);
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits >> value & 1 == 1)
}

/// Both kinds of day must match where one of them names all days; otherwise one of them is enough.
fn is_day(fields: &Fields, time: &Zoned) -> bool {
    let day = has(fields.days, time.day());
    let weekday = has(fields.weekdays, time.weekday().to_sunday_zero_offset());
    if (fields.days | fields.weekdays) & ANY != 0 { day && weekday } else { day || weekday }
}

fn midnight(time: &Zoned) -> Option<Zoned> {
    time.with().time(Time::midnight()).build().ok()
}

fn on_the_hour(time: &Zoned) -> Option<Zoned> {
    let past = i64::from(time.minute()) * 60 + i64::from(time.second());
    time.checked_sub(SignedDuration::from_secs(past)).ok()
}

fn on_the_minute(time: &Zoned) -> Option<Zoned> {
    time.checked_sub(SignedDuration::from_secs(time.second().into())).ok()
}

/// Which times were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// None but the one that is due.
    None,
    /// Some.
    Few,
    /// So many that a clock may be wrong.
    Many,
}

/// Since when times count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// The CronJob was made.
    pub(crate) created: Timestamp,
    /// A Job was made for this time.
    pub(crate) last: Option<Timestamp>,
    /// Seconds after which it is too late for a time.
    pub(crate) deadline: Option<i64>,
}

/// The last time that is due, if one is.
pub(crate) fn due(
    schedule: &Schedule,
    zone: &TimeZone,
    since: &Since,
    now: Timestamp,
) -> Result<(Option<Timestamp>, Missed), &'static str> {
    let mut earliest = since.last.unwrap_or(since.created);
    if let Some(seconds) = since.deadline
        && let Ok(limit) = now.checked_sub(SignedDuration::from_secs(seconds))
    {
        earliest = earliest.max(limit);
    }
    most_recent(schedule, zone, earliest, now)
}

fn most_recent(
    schedule: &Schedule,
    zone: &TimeZone,
    earliest: Timestamp,
    now: Timestamp,
) -> Result<(Option<Timestamp>, Missed), &'static str> {
    const SENSELESS: &str = "time difference between two schedules is less than 1 second";
    let first = next(schedule, earliest, zone).ok_or(SENSELESS)?;
    if now < first {
        return Ok((None, Missed::None));
    }
    let second = next(schedule, first, zone).ok_or(SENSELESS)?;
    if now < second {
        return Ok((Some(first), Missed::None));
    }
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(SENSELESS);
    }
    let count = now.duration_since(first).as_secs() / between + 1;
    // One step further back than estimated: the times need not be evenly spaced.
    let start = first.checked_add(SignedDuration::from_secs((count - 2).saturating_mul(between)));
    let mut found = None;
    let mut time = next(schedule, start.map_err(|_| SENSELESS)?, zone);
    while let Some(at) = time.filter(|at| *at <= now) {
        found = Some(at);
        time = next(schedule, at, zone);
    }
    Ok((found, if count > MANY { Missed::Many } else { Missed::Few }))
}

/// When to look again: at the next time, whether or not there is a deadline.
pub(crate) fn wake(schedule: &Schedule, zone: &TimeZone, since: &Since, now: Timestamp) -> Option<Timestamp> {
    let earliest = since.last.unwrap_or(since.created);
    let from = match most_recent(schedule, zone, earliest, now) {
        Ok((Some(recent), _)) => recent,
        Ok((None, Missed::None)) => earliest,
        Ok((None, Missed::Few | Missed::Many)) | Err(_) => now,
    };
    next(schedule, from, zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text).expect("a schedule")
    }

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).expect("a zone")
    }

    #[test]
    fn the_next_time_is_the_first_after_a_moment_that_all_fields_name() {
        let cases = [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59.5Z", "2026-01-01T00:01:00Z"),
            ("0 * * * *", "2026-01-01T23:30:00Z", "2026-01-02T00:00:00Z"),
            ("*/15 9-17 * * mon-fri", "2026-01-02T17:50:00Z", "2026-01-05T09:00:00Z"),
            ("0 0 1 * *", "2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("30 6 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T06:30:00Z"),
            ("30 6 */2 * 5", "2026-01-01T00:00:00Z", "2026-01-01T06:30:00Z"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"),
            ("@every 90s", "2026-01-01T00:00:00.7Z", "2026-01-01T00:01:30Z"),
        ];
        for (text, after, expected) in cases {
            assert_eq!(
                next(&schedule(text), time(after), &TimeZone::UTC),
                Some(time(expected)),
                "{text} after {after}"
            );
        }
        assert_eq!(next(&schedule("59 23 31 2 *"), time("2026-01-01T00:00:00Z"), &TimeZone::UTC), None);
    }

    #[test]
    fn an_hour_that_the_clocks_skip_is_left_out_and_one_they_repeat_comes_twice() {
        let berlin = zone("Europe/Berlin");
        let cases = [
            // 02:30 is not there on the 29th of March 2026.
            ("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            // On the 25th of October it comes twice.
            ("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("30 2 * * *", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"),
            ("0 12 * * *", "2026-03-28T12:00:00Z", "2026-03-29T10:00:00Z"),
        ];
        for (text, after, expected) in cases {
            assert_eq!(
                next(&schedule(text), time(after), &berlin),
                Some(time(expected)),
                "{text} after {after}"
            );
        }
    }

    #[test]
    fn of_many_missed_times_only_the_last_is_due() {
        let since = |last: Option<&str>, deadline| Since {
            created: time("2026-01-01T00:00:30Z"),
            last: last.map(time),
            deadline,
        };
        let cases = [
            ("* * * * *", since(None, None), "2026-01-01T00:00:59Z", None, Missed::None),
            (
                "* * * * *",
                since(None, None),
                "2026-01-01T00:01:00Z",
                Some("2026-01-01T00:01:00Z"),
                Missed::None,
            ),
            (
                "* * * * *",
                since(None, None),
                "2026-01-01T00:05:10Z",
                Some("2026-01-01T00:05:00Z"),
                Missed::Few,
            ),
            (
                "* * * * *",
                since(None, None),
                "2026-01-01T05:00:10Z",
                Some("2026-01-01T05:00:00Z"),
                Missed::Many,
            ),
            (
                "0 * * * *",
                since(Some("2026-01-01T03:00:00Z"), None),
                "2026-01-01T03:59:59Z",
                None,
                Missed::None,
            ),
            ("0 * * * *", since(None, Some(60)), "2026-01-01T03:30:00Z", None, Missed::None),
            (
                "30 6-16/4 * * 1-5",
                since(Some("2026-01-01T14:30:00Z"), None),
                "2026-01-06T11:00:00Z",
                Some("2026-01-06T10:30:00Z"),
                Missed::Few,
            ),
        ];
        for (text, since, now, expected, missed) in cases {
            let found = due(&schedule(text), &TimeZone::UTC, &since, time(now));
            assert_eq!(found, Ok((expected.map(time), missed)), "{text} {since:?} at {now}");
        }
        let senseless =
            due(&schedule("59 23 31 2 *"), &TimeZone::UTC, &since(None, None), time("2026-06-01T00:00:00Z"));
        assert_eq!(senseless, Err("time difference between two schedules is less than 1 second"));
    }

    #[test]
    fn the_next_look_is_at_the_next_time_also_after_a_miss() {
        let since = Since { created: time("2026-01-01T00:00:30Z"), last: None, deadline: None };
        let wake_at = |now: &str| wake(&schedule("*/10 * * * *"), &TimeZone::UTC, &since, time(now));
        assert_eq!(wake_at("2026-01-01T00:01:00Z"), Some(time("2026-01-01T00:10:00Z")));
        assert_eq!(wake_at("2026-01-01T00:35:00Z"), Some(time("2026-01-01T00:40:00Z")));
    }
}
