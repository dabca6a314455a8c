//! Messages on a stream: four bytes of length, then so many bytes.
//!
//! Invariant: memory grows with what has come, never with what was announced.

use std::io::{self, Read, Write};

use bytes::Bytes;

/// Metadata of a cluster with a hundred thousand partitions is smaller.
pub(super) const ANSWER_BYTES_MAX: usize = 32 << 20;

pub(super) fn write(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = i32::try_from(message.len()).map_err(|_| io::Error::other("the request is too long"))?;
    to.write_all(&[&length.to_be_bytes()[..], message].concat())?;
    to.flush()
}

/// # Errors
/// [`io::ErrorKind::InvalidData`] for a length that no answer has.
pub(super) fn read(from: &mut impl Read) -> io::Result<Bytes> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let announced = i32::from_be_bytes(length);
    let length = usize::try_from(announced).ok().filter(|length| *length <= ANSWER_BYTES_MAX).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("it announces {announced} bytes, which no answer has"))
    })?;
    let mut message = Vec::new();
    from.take(length as u64).read_to_end(&mut message)?;
    match message.len() == length {
        true => Ok(message.into()),
        false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} of {length} bytes came", message.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut stream = Vec::new();
        write(&mut stream, b"hello").expect("written");
        assert_eq!(stream[..4], [0, 0, 0, 5]);
        assert_eq!(&read(&mut &stream[..]).expect("read")[..], b"hello");
    }

    #[test]
    fn lengths_that_no_answer_has_and_answers_cut_off_are_errors() {
        for length in [-1, i32::MIN, i32::MAX, ANSWER_BYTES_MAX as i32 + 1] {
            let error = read(&mut &length.to_be_bytes()[..]).expect_err("a lie");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
        for cut in [&[0, 0][..], &[0, 0, 0, 5], &[0, 0, 0, 5, 1, 2]] {
            assert_eq!(read(&mut &cut[..]).expect_err("cut").kind(), io::ErrorKind::UnexpectedEof, "{cut:?}");
        }
    }
}
