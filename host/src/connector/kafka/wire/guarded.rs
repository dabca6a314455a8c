//! The bytes of an answer, read under guard: no length in them is believed that the bytes can't hold.
//!
//! The decoders of `kafka-protocol` take memory for an array as soon as they have read its length, before its elements; a lying length would
//! have them ask for hundreds of gigabytes, which ends the process. In the flexible versions of Kafka's messages every length is an
//! unsigned varint, which is read byte by byte, so it can be seen here.
//!
//! Invariant: a varint above both [`SMALL`] and the number of bytes left is an error before its reader learns it.

use std::ops::Range;

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

/// A varint that is no length but the number of a field may be larger than what is left; memory for so few elements is no harm.
const SMALL: u64 = 1_024;

pub(super) struct Guarded {
    bytes: Bytes,
    /// Of the varint that is being read.
    value: u64,
    shift: u32,
}

impl Guarded {
    pub fn new(bytes: Bytes) -> Guarded {
        Guarded { bytes, value: 0, shift: 0 }
    }

    /// Takes note of one byte of what may be a varint. A flag is read in the same way, and is one of a single byte.
    fn note(&mut self, byte: u8) -> Result<(), TryGetError> {
        // Longer ones than five bytes are no varints of Kafka; what they amount to is above every limit anyway.
        self.value = self.value.saturating_add(u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(u64::MAX));
        let most = SMALL.max(self.bytes.remaining() as u64 + 1);
        if self.value > most {
            let requested = usize::try_from(self.value).unwrap_or(usize::MAX);
            return Err(TryGetError { requested, available: self.bytes.remaining() });
        }
        match byte & 0x80 {
            0 => (self.value, self.shift) = (0, 0),
            _ => self.shift = (self.shift + 7).min(63),
        }
        Ok(())
    }
}

impl Buf for Guarded {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.bytes.try_get_u8()?;
        self.note(byte)?;
        Ok(byte)
    }
}

impl ByteBuf for Guarded {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.bytes.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.bytes.get_bytes(size)
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        self.bytes.try_get_bytes(size)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ListTransactionsResponse, MetadataResponse};
    use kafka_protocol::protocol::Decodable;

    use super::*;

    #[test]
    fn a_length_that_the_bytes_cannot_hold_is_an_error_and_takes_no_memory() {
        // Throttle time, error code, no state filters, then two thousand million transactions.
        let lying = [&[0, 0, 0, 0, 0, 0, 1][..], &[0xff, 0xff, 0xff, 0xff, 0x07], &[0; 40]].concat();
        let error = ListTransactionsResponse::decode(&mut Guarded::new(lying.into()), 0).expect_err("a lie");
        assert!(error.to_string().contains("only 43 available"), "{error}");
    }

    #[test]
    fn a_varint_that_never_ends_is_an_error() {
        for length in 7..20 {
            let lying = [&[0, 0, 0, 0][..], &vec![0xff; length]].concat();
            assert!(MetadataResponse::decode(&mut Guarded::new(lying.into()), 12).is_err(), "{length}");
        }
    }

    #[test]
    fn a_length_that_fits_is_read() {
        let mut guarded = Guarded::new(Bytes::from(vec![0x88, 0x10].into_iter().chain([7; 2_055]).collect::<Vec<_>>()));
        assert_eq!((guarded.try_get_u8(), guarded.try_get_u8()), (Ok(0x88), Ok(0x10)));
        let mut short = Guarded::new(Bytes::from(vec![0x88, 0x10].into_iter().chain([7; 2_000]).collect::<Vec<_>>()));
        assert!(short.try_get_u8().is_ok() && short.try_get_u8().is_err());
    }
}
