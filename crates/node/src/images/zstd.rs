//! What zstd has packed: all frames of a stream, one after the other, with the bounds of one who reads from strangers.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// What a frame may ask to be remembered of what came before: as much as the program `zstd` reads without being asked.
const WINDOW_BYTES_MAX: u64 = 128 << 20;

/// Unpacks a stream while it is read. Frames for other readers (an index of the archive, for one) are skipped.
pub(super) struct Unpacked<R> {
    from: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Unpacked<R> {
    pub(super) fn new(from: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { from, decoder, is_in_frame: false }
    }

    /// Goes to the next frame that holds something; false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.from.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.from) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.from).take(length), &mut io::sink())?;
                    if skipped != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
        Ok(false)
    }

    /// A frame may end with a sum of what was in it.
    fn check_sum(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if self.decoder.get_calculated_checksum() != Some(sum) => {
                Err(invalid("the content has another checksum than its frame says".into()))
            }
            _ => Ok(()),
        }
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {why}"))
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame && !self.next_frame()? {
                return Ok(0);
            }
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded =
                    self.decoder.decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|error| invalid(error.to_string()))?;
            }
            match self.decoder.read(into)? {
                0 => {
                    self.check_sum()?;
                    self.is_in_frame = false;
                }
                count => return Ok(count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn pack(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        let read = Unpacked::new(packed).read_to_end(&mut all);
        read.map(|_| all).map_err(|error| error.to_string())
    }

    /// A frame that is not for us, with this much in it.
    fn skippable(content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).expect("short").to_le_bytes();
        [&0x184D_2A53_u32.to_le_bytes()[..], &length, content].concat()
    }

    /// A frame of one block of repeated bytes, which says that it needs a window of 2^`window` bytes. No checksum.
    fn repeated(window: u8, byte: u8, count: u32) -> Vec<u8> {
        let header = [0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3];
        let block = (count << 3 | 1 << 1 | 1).to_le_bytes();
        [&header[..], &block[..3], &[byte]].concat()
    }

    #[test]
    fn all_frames_are_read_and_those_for_others_are_skipped() {
        let large: Vec<u8> = (0..400_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for (packed, want) in [
            (vec![], vec![]),
            (pack(b""), vec![]),
            (pack(b"one"), b"one".to_vec()),
            ([pack(b"one"), pack(b""), pack(b"two")].concat(), b"onetwo".to_vec()),
            ([skippable(b"index"), pack(b"one"), skippable(b"")].concat(), b"one".to_vec()),
            (skippable(b"nothing else"), vec![]),
            (repeated(17, b'x', 5), b"xxxxx".to_vec()),
            (pack(&large), large),
        ] {
            assert!(unpack(&packed) == Ok(want.clone()), "{} bytes of {} packed", want.len(), packed.len());
        }
    }

    #[test]
    fn what_is_cut_off_or_spoilt_is_an_error() {
        let whole = [skippable(b"index"), pack(&b"content".repeat(1000))].concat();
        assert_eq!(unpack(&whole).map(|all| all.len()), Ok(7000));
        // Where the frame that is skipped ends, the stream may end too.
        for length in (1..whole.len()).filter(|length| *length != 13) {
            assert!(unpack(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
        }
        let (spoilt_sum, garbage) = (whole.len() - 1, [&whole[..], b"more"].concat());
        let mut spoilt = whole;
        spoilt[spoilt_sum] ^= 1;
        let want = "zstd: the content has another checksum than its frame says";
        assert_eq!(unpack(&spoilt).err().as_deref(), Some(want));
        assert!(unpack(&garbage).is_err(), "what follows is no frame");
    }

    #[test]
    fn a_frame_cannot_ask_for_all_memory() {
        assert_eq!(unpack(&repeated(27, b'x', 3)).as_deref(), Ok(&b"xxx"[..]));
        let error = unpack(&repeated(31, b'x', 3)).expect_err("2 GiB");
        assert!(error.starts_with("zstd: ") && error.contains("2147483648"), "{error}");
    }
}
