//! Resource quantities (`1500m`, `1.5Gi`, `1e3`): exact arithmetic, and upstream's canonical text.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const NANO_DIGITS: i64 = 9;
/// More digits do not fit into 128 bits.
const NANO_DIGITS_MAX: usize = 39;
const NANO_IN_MILLI: i128 = 1_000_000;
/// Upstream cuts binary quantities here; decimal ones may be larger.
const BINARY_MAX: i128 = i64::MAX as i128;

/// The texts of decimal suffixes, from 10^-9 in steps of 10^3.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// The texts of binary suffixes, from 2^0 in steps of 2^10.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes that a quantity was written with, and is printed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// An amount of a resource, exact to one nano unit. Finer amounts are rounded up, away from zero.
///
/// Equality and order are those of the amount: `1Ki` equals `1024`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

/// Why a text is no quantity; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is beyond 10^29, which upstream would still take.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// There is no such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, format: Format::DecimalSi };

    /// So many whole units.
    pub fn from_value(value: i64) -> Self {
        Self { nano: i128::from(value) * NANO, format: Format::DecimalSi }
    }

    /// So many thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self { nano: i128::from(milli) * NANO_IN_MILLI, format: Format::DecimalSi }
    }

    /// In whole units, rounded up (away from zero), cut to 64 bits.
    pub fn value(self) -> i64 {
        clamp(divide_up(self.nano, NANO))
    }

    /// In thousandths, rounded up (away from zero), cut to 64 bits.
    pub fn milli_value(self) -> i64 {
        clamp(divide_up(self.nano, NANO_IN_MILLI))
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it is below nothing.
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is a whole number of units.
    pub fn is_integer(self) -> bool {
        self.nano % NANO == 0
    }

    /// The least multiple of one thousandth that is not nearer to zero; what defaulting makes of resources.
    pub fn round_up_to_milli(self) -> Self {
        Self { nano: divide_up(self.nano, NANO_IN_MILLI).saturating_mul(NANO_IN_MILLI), ..self }
    }

    // Nothing has no format of its own, and takes that of what is added.
    fn with(self, other: Self, nano: i128) -> Self {
        Self { nano, format: if self.is_zero() { other.format } else { self.format } }
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, self.nano.saturating_add(other.nano))
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(other, self.nano.saturating_sub(other.nano))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

fn divide_up(nano: i128, unit: i128) -> i128 {
    let (whole, rest) = (nano / unit, nano % unit);
    whole + rest.signum()
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Format);
        }
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(rest);
        let (part, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if !is_suffix_like(suffix) {
            return Err(Error::Format);
        }
        let (base, format) = read_suffix(suffix).ok_or(Error::Suffix)?;
        let nano = match base {
            Base::Ten(exponent) => decimal_nano(whole, part, exponent)?,
            Base::Two(exponent) => binary_nano(whole, part, exponent),
        };
        // A binary amount below one can't be printed with a binary suffix.
        let format = if format == Format::BinarySi && nano < NANO { Format::DecimalSi } else { format };
        Ok(Self { nano: if is_negative { -nano } else { nano }, format })
    }
}

enum Base {
    Ten(i64),
    Two(u32),
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

// Letters of suffixes, then a sign, then digits: each may be missing.
fn is_suffix_like(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

fn read_suffix(suffix: &str) -> Option<(Base, Format)> {
    if let Some((exponent, _)) = (-3..).map(|i| i * 3).zip(DECIMAL).find(|(_, text)| *text == suffix) {
        return Some((Base::Ten(exponent), Format::DecimalSi));
    }
    if let Some((exponent, _)) = (0..).map(|i| i * 10).zip(BINARY).find(|(_, text)| *text == suffix) {
        return Some((Base::Two(exponent), Format::BinarySi));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Base::Ten(exponent.into()), Format::DecimalExponent))
}

fn decimal_nano(whole: &str, part: &str, exponent: i64) -> Result<i128, Error> {
    let all = format!("{whole}{part}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    // How many of the digits stand before the nano point: shift right and round up, or shift left.
    let places = digits.len() as i64 - part.len() as i64 + exponent + NANO_DIGITS;
    if places <= 0 {
        return Ok(1);
    }
    let places =
        usize::try_from(places).ok().filter(|places| *places <= NANO_DIGITS_MAX).ok_or(Error::Numeric)?;
    let kept = &digits[..places.min(digits.len())];
    let has_rest = digits[kept.len()..].bytes().any(|digit| digit != b'0');
    let nano: i128 = format!("{kept:0<places$}").parse().map_err(|_| Error::Numeric)?;
    Ok(nano + i128::from(has_rest))
}

fn binary_nano(whole: &str, part: &str, exponent: u32) -> i128 {
    let unit = NANO << exponent;
    // Digit by digit from the last: the floors nest, so that only whether there was a rest must be kept.
    let (mut nano, mut has_rest) = (0, false);
    for digit in part.bytes().rev() {
        let tenfold = nano + i128::from(digit - b'0') * unit;
        has_rest |= tenfold % 10 != 0;
        nano = tenfold / 10;
    }
    let digits = whole.trim_start_matches('0');
    let whole = if digits.is_empty() { 0 } else { digits.parse::<i64>().unwrap_or(i64::MAX).into() };
    let amount: i128 = whole;
    amount.saturating_mul(unit).saturating_add(nano + i128::from(has_rest)).min(BINARY_MAX * NANO)
}

/// Upstream's canonical form: no fraction, the largest suffix that needs none.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_small = self.nano.abs() < 1024 * NANO;
        match self.format {
            _ if self.is_zero() => f.write_str("0"),
            Format::BinarySi if !is_small && self.is_integer() => {
                let (amount, steps) = without_factors(self.nano / NANO, 1024, BINARY.len() - 1);
                write!(f, "{amount}{}", BINARY[steps])
            }
            Format::BinarySi | Format::DecimalSi => {
                let (amount, steps) = without_factors(self.nano, 1000, DECIMAL.len() - 1);
                write!(f, "{amount}{}", DECIMAL[steps])
            }
            Format::DecimalExponent => {
                let (amount, steps) = without_factors(self.nano, 1000, usize::MAX);
                match steps {
                    3 => write!(f, "{amount}"),
                    steps => write!(f, "{amount}e{}", steps as i64 * 3 - NANO_DIGITS),
                }
            }
        }
    }
}

fn without_factors(mut amount: i128, factor: i128, steps_max: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < steps_max && amount % factor == 0 {
        amount /= factor;
        steps += 1;
    }
    (amount, steps)
}
