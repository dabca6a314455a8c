//! Line splitting over all short texts, all chunk sizes and all places at which a file can end and grow.

use super::lines::{BATCH_BYTES, BATCH_ROWS, LineBatch, LineBuffer, Stop};
use crate::element::{Batch, NO_TIMESTAMP, Row};

/// All texts of these bytes up to a length.
fn texts(alphabet: &[u8], length_max: u32) -> Vec<Vec<u8>> {
    let mut texts = vec![Vec::new()];
    for length in 1..=length_max {
        for mut number in 0..alphabet.len().pow(length) {
            let mut text = Vec::new();
            for _ in 0..length {
                text.push(alphabet[number % alphabet.len()]);
                number /= alphabet.len();
            }
            texts.push(text);
        }
    }
    texts
}

/// The lines of a text, byte by byte.
fn reference(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < text.len() {
        match text[i] {
            b'\n' => lines.push(std::mem::take(&mut line)),
            b'\r' => {
                lines.push(std::mem::take(&mut line));
                i += usize::from(text.get(i + 1) == Some(&b'\n'));
            }
            byte => line.push(byte),
        }
        i += 1;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Feeds a text in chunks; at its end, what is left is a line.
fn split(buffer: &mut LineBuffer, text: &[u8], chunk: usize) -> Vec<Vec<u8>> {
    let mut batch = LineBatch::new();
    let mut chunks = text.chunks(chunk).peekable();
    assert_eq!(buffer.split_into(&mut batch, 100, chunks.peek().is_none()), Stop::NeedsMore);
    while let Some(chunk) = chunks.next() {
        buffer.room(chunk.len())[..chunk.len()].copy_from_slice(chunk);
        buffer.filled(chunk.len());
        assert_eq!(buffer.split_into(&mut batch, 100, chunks.peek().is_none()), Stop::NeedsMore);
    }
    assert_eq!(buffer.unread(), 0);
    let batch = batch.finish();
    batch.check().expect("well formed");
    batch.iter().map(|row| row.value.expect("a value").to_vec()).collect()
}

#[test]
fn lines_do_not_depend_on_the_chunks_they_come_in() {
    for text in texts(b"ab\r\n", 6) {
        for chunk in 1..=text.len().max(1) {
            assert_eq!(split(&mut LineBuffer::new(), &text, chunk), reference(&text), "{text:?} by {chunk}");
        }
    }
}

#[test]
fn a_file_that_grows_gives_its_lines_once_wherever_it_ended() {
    for text in texts(b"a\r\n", 7) {
        for cut in 0..=text.len() {
            let (before, after) = text.split_at(cut);
            let is_end = |byte: Option<&u8>| byte.is_none_or(|byte| b"\r\n".contains(byte));
            let mut wanted = reference(&text);
            if !is_end(before.last()) && !is_end(after.first()) {
                // The line was given when the file ended in it, so that the rest is another one.
                wanted = [reference(before), reference(after)].concat();
            }
            let mut kept = LineBuffer::new();
            let mut got = split(&mut kept, before, 3);
            let mut got_kept = got.clone();
            got_kept.extend(split(&mut kept, after, 1));
            let mut reopened = LineBuffer::new();
            reopened.reset(before.last().copied());
            got.extend(split(&mut reopened, after, 2));
            assert_eq!((&got, &got_kept), (&wanted, &wanted), "{before:?} then {after:?}");
        }
    }
}

#[test]
fn a_batch_is_full_at_its_limits_and_the_next_line_waits() {
    let mut buffer = LineBuffer::new();
    let text = b"x\n".repeat(BATCH_ROWS + 1);
    buffer.room(text.len()).copy_from_slice(&text);
    buffer.filled(text.len());
    let mut batch = LineBatch::new();
    assert_eq!(buffer.split_into(&mut batch, 10, true), Stop::BatchFull);
    assert_eq!((batch.finish().rows as usize, buffer.unread()), (BATCH_ROWS, 2));

    buffer.reset(None);
    let line = vec![b'y'; BATCH_BYTES / 2 - 1];
    let text = [&line[..], &line, b"12\n", &line].join(&b'\n');
    buffer.room(text.len()).copy_from_slice(&text);
    buffer.filled(text.len());
    let mut batch = LineBatch::new();
    assert_eq!(buffer.split_into(&mut batch, BATCH_BYTES, false), Stop::NeedsMore);
    assert_eq!(buffer.split_into(&mut batch, BATCH_BYTES, true), Stop::BatchFull);
    assert_eq!((batch.finish().values.data.len(), buffer.unread()), (BATCH_BYTES, line.len()));
}

#[test]
fn a_line_is_too_long_from_one_byte_over_the_limit_on() {
    for (length, ending, at_end, wanted) in [
        (10, "\n", false, Stop::NeedsMore),
        (10, "", true, Stop::NeedsMore),
        (10, "\r", false, Stop::NeedsMore),
        (10, "", false, Stop::NeedsMore),
        (11, "\n", false, Stop::TooLong),
        (11, "\r", false, Stop::TooLong),
        (11, "", true, Stop::TooLong),
        (11, "", false, Stop::TooLong),
    ] {
        let mut buffer = LineBuffer::new();
        let text = format!("ok\n{}{ending}", "z".repeat(length));
        buffer.room(text.len()).copy_from_slice(text.as_bytes());
        buffer.filled(text.len());
        let mut batch = LineBatch::new();
        assert_eq!(buffer.split_into(&mut batch, 10, at_end), wanted, "{text:?}");
        assert_eq!(batch.finish().value(0), Some(&b"ok"[..]));
    }
}

#[test]
fn a_batch_of_lines_is_what_pushing_them_would_give() {
    for rows in 1..40 {
        let text = b"line\n".repeat(rows);
        let mut buffer = LineBuffer::new();
        buffer.room(text.len()).copy_from_slice(&text);
        buffer.filled(text.len());
        let mut batch = LineBatch::new();
        buffer.split_into(&mut batch, 10, false);
        let mut pushed = Batch::with_capacity(0, 0);
        (0..rows).for_each(|_| pushed.push(Row { key: None, value: Some(b"line"), timestamp: NO_TIMESTAMP }));
        assert_eq!(batch.finish(), pushed);
    }
}
