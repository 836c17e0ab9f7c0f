//! Sets of exit codes written as `1-12,100-127`.

use std::fmt;
use std::ops::{BitAnd, BitOr, RangeInclusive, Sub};

/// A set of exit codes: ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitCodeRanges(Vec<RangeInclusive<i32>>);

/// Why a text is no set of exit codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no text.
    #[error("at least one value is required")]
    Empty,
    /// A piece that is neither a number of 32 bits nor two of them.
    #[error("the piece {0:?} must be an exit code or a range of exit codes such as 40-50")]
    Malformed(String),
    /// A range that ends before it starts.
    #[error("the piece {0:?} must not end before it starts")]
    Reversed(String),
}

impl ExitCodeRanges {
    /// Reads comma-separated codes and ranges, in any order. A code may be negative, as on Windows: `-5--1`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Empty);
        }
        text.split(',').map(range).collect()
    }

    /// Whether `code` is a member.
    pub fn contains(&self, code: i32) -> bool {
        let after = self.0.partition_point(|range| *range.start() <= code);
        after > 0 && *self.0[after - 1].end() >= code
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in ascending order.
    pub fn ranges(&self) -> &[RangeInclusive<i32>] {
        &self.0
    }

    /// All members in ascending order. There may be 2^32.
    pub fn codes(&self) -> impl Iterator<Item = i32> + '_ {
        self.0.iter().cloned().flatten()
    }

    fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).cloned().collect()
    }

    /// All codes that are not members.
    pub fn complement(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut start = Some(i32::MIN);
        for range in &self.0 {
            if let Some(start) = start.filter(|start| start < range.start()) {
                gaps.push(start..=*range.start() - 1);
            }
            start = range.end().checked_add(1);
        }
        gaps.extend(start.map(|start| start..=i32::MAX));
        Self(gaps)
    }
}

/// Sorts and merges; ranges that hold nothing are left out.
impl FromIterator<RangeInclusive<i32>> for ExitCodeRanges {
    fn from_iter<T: IntoIterator<Item = RangeInclusive<i32>>>(ranges: T) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<i32>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                Some(_) | None => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl BitOr for &ExitCodeRanges {
    type Output = ExitCodeRanges;

    fn bitor(self, other: Self) -> ExitCodeRanges {
        self.union(other)
    }
}

impl BitAnd for &ExitCodeRanges {
    type Output = ExitCodeRanges;

    fn bitand(self, other: Self) -> ExitCodeRanges {
        self.complement().union(&other.complement()).complement()
    }
}

impl Sub for &ExitCodeRanges {
    type Output = ExitCodeRanges;

    fn sub(self, other: Self) -> ExitCodeRanges {
        self.complement().union(other).complement()
    }
}

impl fmt::Display for ExitCodeRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, range) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", range.start())?;
            if range.start() < range.end() {
                write!(f, "-{}", range.end())?;
            }
        }
        Ok(())
    }
}

fn range(piece: &str) -> Result<RangeInclusive<i32>, ParseError> {
    // The first character may be a sign; any later `-` separates.
    let separator = piece.bytes().skip(1).position(|byte| byte == b'-').map(|position| position + 1);
    let (first, last) = separator.map_or((piece, piece), |at| (&piece[..at], &piece[at + 1..]));
    let malformed = || ParseError::Malformed(piece.to_owned());
    let first = code(first).ok_or_else(malformed)?;
    let last = code(last).ok_or_else(malformed)?;
    if first > last {
        return Err(ParseError::Reversed(piece.to_owned()));
    }
    Ok(first..=last)
}

fn code(text: &str) -> Option<i32> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}
