//! The fields of a protobuf message as they stand in the bytes, with the errors of upstream's decoder.
//!
//! Which field means what is for others to know: the server has a table of all kinds, a controller looks at a few fields.

/// What bodies in protobuf begin with.
pub const PREFIX: &[u8] = b"k8s\0";

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Why bytes are no message, or not the one that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each text says it")]
pub enum Error {
    #[error("empty data")]
    NoData,
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [{}]",
        PREFIX.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
    )]
    NoPrefix,
    #[error("empty body")]
    NoBody,
    #[error("unexpected EOF")]
    UnexpectedEnd,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    #[error("proto: illegal wireType {wire}")]
    IllegalWireType { wire: u8 },
    #[error("proto: illegal tag {number} (wire type {wire})")]
    IllegalTag { number: u64, wire: u8 },
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongType { wire: u8, field: String },
    #[error("proto: field {field} is not UTF-8")]
    NotText { field: String },
    #[error("proto: field {field} is not a time from the year 1 to 9999")]
    NotATime { field: String },
}

/// A body whose kind is known: what stands around an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion` of the object.
    pub api_version: &'a str,
    /// `kind` of the object.
    pub kind: &'a str,
    /// The message of that kind.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads what stands around an object.
    pub fn open(body: &'a [u8]) -> Result<Self, Error> {
        if body.is_empty() {
            return Err(Error::NoData);
        }
        let rest = body.strip_prefix(PREFIX).ok_or(Error::NoPrefix)?;
        if rest.is_empty() {
            return Err(Error::NoBody);
        }
        let mut envelope = Self::default();
        let mut reader = Reader::new(rest);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => envelope.read_type(payload.bytes("typeMeta")?)?,
                2 => envelope.raw = payload.bytes("raw")?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => self.api_version = payload.text("apiVersion")?,
                2 => self.kind = payload.text("kind")?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The seconds and nanoseconds of a time; nothing where Go has its zero time.
pub fn timestamp(bytes: &[u8], name: &str) -> Result<Option<(i64, i32)>, Error> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => seconds = payload.number(name)? as i64,
            2 => nanoseconds = payload.number(name)? as i32,
            _ => {}
        }
    }
    // upstream: an empty message is no time, not the beginning of 1970
    Ok((!bytes.is_empty()).then_some((seconds, nanoseconds)))
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Numbers and truth values.
    Varint(u64),
    /// Texts, bytes, messages, and lists of numbers.
    Bytes(&'a [u8]),
    /// A form that no field of Kubernetes has.
    Foreign(u8),
}

impl<'a> Payload<'a> {
    /// The number of a field that has this name.
    pub fn number(self, name: &str) -> Result<u64, Error> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Bytes(_) => Err(wrong_type(BYTES, name)),
            Self::Foreign(wire) => Err(wrong_type(wire, name)),
        }
    }

    /// The bytes of a field that has this name.
    pub fn bytes(self, name: &str) -> Result<&'a [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) => Err(wrong_type(VARINT, name)),
            Self::Foreign(wire) => Err(wrong_type(wire, name)),
        }
    }

    /// The text of a field that has this name.
    pub fn text(self, name: &str) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes(name)?).map_err(|_| Error::NotText { field: name.to_owned() })
    }
}

fn wrong_type(wire: u8, name: &str) -> Error {
    Error::WrongType { wire, field: name.to_owned() }
}

/// Reads one message, field by field.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Of the bytes of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The number of the next field and what it holds; nothing at the end.
    pub fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        let payload = match wire {
            GROUP => self.skip_group()?,
            GROUP_END => return Err(Error::EndOfGroup),
            wire => self.payload(wire)?,
        };
        Ok(Some((number, payload)))
    }

    fn tag(&mut self) -> Result<(u32, u8), Error> {
        let tag = self.varint()?;
        let wire = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 => Ok((number, wire)),
            Ok(_) | Err(_) => Err(Error::IllegalTag { number: tag >> 3, wire }),
        }
    }

    fn payload(&mut self, wire: u8) -> Result<Payload<'a>, Error> {
        match wire {
            VARINT => Ok(Payload::Varint(self.varint()?)),
            FIXED64 => self.take(8).map(|_| Payload::Foreign(wire)),
            BYTES => {
                let length = self.varint()?;
                let length = i64::try_from(length).map_err(|_| Error::NegativeLength)?;
                let length = usize::try_from(length).map_err(|_| Error::UnexpectedEnd)?;
                self.take(length).map(Payload::Bytes)
            }
            FIXED32 => self.take(4).map(|_| Payload::Foreign(wire)),
            _ => Err(Error::IllegalWireType { wire }),
        }
    }

    /// Groups can stand in groups: they are counted, so that no depth of them costs a stack.
    fn skip_group(&mut self) -> Result<Payload<'a>, Error> {
        let mut depth = 1_usize;
        while depth > 0 {
            let (_, wire) = self.tag()?;
            match wire {
                GROUP => depth += 1,
                GROUP_END => depth -= 1,
                wire => {
                    self.payload(wire)?;
                }
            }
        }
        Ok(Payload::Foreign(GROUP))
    }

    /// A number in groups of seven bits, the lowest first.
    pub fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Error::UnexpectedEnd)?;
            self.rest = rest;
            // upstream: bits beyond the 64th are lost
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Error::Overflow)
    }

    /// Nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, Error> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_every_wire_type_are_read_and_groups_are_skipped() {
        // 1: 300, 2: "hi", 3: group with {4: 1, 5: group}, 6: fixed64, 7: fixed32, 8: 1
        let bytes = b"\x08\xac\x02\x12\x02hi\x1b\x20\x01\x2b\x2c\x1c\x31\0\0\0\0\0\0\0\0\x3d\0\0\0\0\x40\x01";
        let expected = vec![
            (1, Payload::Varint(300)),
            (2, Payload::Bytes(b"hi")),
            (3, Payload::Foreign(3)),
            (6, Payload::Foreign(1)),
            (7, Payload::Foreign(5)),
            (8, Payload::Varint(1)),
        ];
        assert_eq!(all(bytes), Ok(expected));
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(all(&minus_one), Ok(vec![(1, Payload::Varint(u64::MAX))]));
    }

    #[test]
    fn damaged_bytes_are_refused_with_the_error_of_upstream() {
        let huge = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let negative = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let deep = vec![0x0b; 1_000_000];
        let cases: [(&[u8], Error); 12] = [
            (b"\x08", Error::UnexpectedEnd),
            (b"\x08\x80", Error::UnexpectedEnd),
            (b"\x12\x03hi", Error::UnexpectedEnd),
            (b"\x31\0\0\0", Error::UnexpectedEnd),
            (b"\x1b\x20\x01", Error::UnexpectedEnd),
            (&huge, Error::UnexpectedEnd),
            (&negative, Error::NegativeLength),
            (&[0xff; 12], Error::Overflow),
            (b"\x1c", Error::EndOfGroup),
            (b"\x00\x01", Error::IllegalTag { number: 0, wire: 0 }),
            (b"\x0e", Error::IllegalWireType { wire: 6 }),
            (&deep, Error::UnexpectedEnd),
        ];
        for (bytes, error) in cases {
            let shown = &bytes[..bytes.len().min(16)];
            assert_eq!(all(bytes), Err(error), "{shown:x?}");
        }
    }
}
