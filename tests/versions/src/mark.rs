//! What a key is in the later versions: `v2:` and the key, wherever it comes from.

use lockgate::prelude::*;

const MARK: &[u8] = b"v2:";

/// A key with its mark.
pub struct Mark(pub Vec<u8>);

impl Mark {
    pub fn of(key: &[u8]) -> Mark {
        Mark([MARK, key].concat())
    }
}

/// Sends a count with the key as it was before it was marked.
pub(crate) fn send(key: Option<&[u8]>, count: u64, ctx: &mut Context<'_>) {
    let key = key.unwrap_or_default();
    let text = key.strip_prefix(MARK).unwrap_or(key);
    ctx.emit_with(key, |value| {
        value.bytes(text);
        value.byte(b'\t');
        value.integer(count);
    });
}
