//! The text form of index sets (`1,3-5,7`): printing, and the lenient and the strict parser.

use std::fmt;

use super::IndexSet;
use super::builder::Builder;

/// Why the strict parser refuses a text; the texts are those of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A piece with more than one `-`.
    #[error(
        "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
        quote(.0)
    )]
    TooManyParts(String),
    /// A limit that is no number.
    #[error("cannot convert string to integer for index: {}", quote(.0))]
    NotANumber(String),
    /// A limit at or above the number of completions.
    #[error("too large index: {}", quote(.0))]
    TooLarge(String),
    /// A limit that does not lie above the one before it.
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    NotIncreasing {
        /// The limit before.
        previous: u32,
        /// The limit that should be higher.
        current: u32,
    },
}

impl IndexSet {
    /// Reads what a controller stored: pieces that are no numbers are skipped, and whatever lies at or above
    /// `completions` is dropped, which is how a scaled-down Job forgets indexes.
    pub fn parse_lenient(text: &str, completions: i32) -> Self {
        let mut builder = Builder::default();
        for piece in pieces(text) {
            let mut limits = piece.split(|&byte| byte == b'-');
            let Some(first) = limits.next().and_then(number) else { continue };
            let Some(first) = below(first, completions) else { break };
            let last = match limits.next().map(number) {
                None => first,
                Some(None) => continue,
                Some(Some(last)) => below(last, completions).unwrap_or(completions as u32 - 1),
            };
            builder.push(first, last);
        }
        builder.finish()
    }

    /// Reads what a user wrote: every piece must be a number or an interval below `completions`, in
    /// increasing order. Adjacent intervals need not be merged. The empty text is the empty set.
    pub fn parse_strict(text: &str, completions: i32) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Ok(Self::new());
        }
        let mut builder = Builder::default();
        let mut previous = None;
        for piece in pieces(text) {
            let (first, last) = interval(piece, completions)?;
            if let Some(previous) = previous.filter(|&previous| previous >= first) {
                return Err(ParseError::NotIncreasing { previous, current: first });
            }
            builder.push(first, last);
            previous = Some(last);
        }
        Ok(builder.finish())
    }
}

/// A run of two is written as two indexes, a longer one as an interval; the empty set is the empty text.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for run in self.ranges() {
            let (first, last) = run.into_inner();
            if !text.is_empty() {
                text.push(',');
            }
            push_number(&mut text, first);
            if last > first {
                text.push(if last == first + 1 { ',' } else { '-' });
                push_number(&mut text, last);
            }
        }
        f.write_str(&text)
    }
}

fn pieces(text: &str) -> impl Iterator<Item = &[u8]> {
    text.as_bytes().split(|&byte| byte == b',')
}

/// A piece of a text that was cut at ASCII characters only.
fn owned(piece: &[u8]) -> String {
    String::from_utf8_lossy(piece).into_owned()
}

fn interval(piece: &[u8], completions: i32) -> Result<(u32, u32), ParseError> {
    let Some(at) = piece.iter().position(|&byte| byte == b'-') else {
        let index = limit(piece, completions)?;
        return Ok((index, index));
    };
    if piece[at + 1..].contains(&b'-') {
        return Err(ParseError::TooManyParts(owned(piece)));
    }
    let previous = limit(&piece[..at], completions)?;
    let current = limit(&piece[at + 1..], completions)?;
    if previous >= current {
        return Err(ParseError::NotIncreasing { previous, current });
    }
    Ok((previous, current))
}

fn limit(text: &[u8], completions: i32) -> Result<u32, ParseError> {
    let number = number(text).ok_or_else(|| ParseError::NotANumber(owned(text)))?;
    below(number, completions).ok_or_else(|| ParseError::TooLarge(owned(text)))
}

/// `number` as an index, if it is one of a Job with so many completions.
fn below(number: i64, completions: i32) -> Option<u32> {
    if number < i64::from(completions) { u32::try_from(number).ok() } else { None }
}

/// A decimal number of at most 64 bits, as Go's `Atoi` reads one that has no `-`: a leading `+` is fine.
fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0i64, |number, &digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

fn push_number(text: &mut String, mut number: u32) {
    let mut digits = [0u8; 10];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[start..]).expect("digits are ASCII"));
}

/// Quotes as Go's `%q` does, which writes control characters in another way than Rust's `{:?}`.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\0'..='\x1f' | '\x7f' => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c if c == '\'' || c.is_ascii() || c.escape_debug().len() == 1 => quoted.push(c),
            c if (c as u32) < 0x1_0000 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}
