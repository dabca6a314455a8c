//! The user key of a timer in the table [`TIMERS_TABLE`](super::TIMERS_TABLE).
//!
//! Clock (1 byte), time (8 bytes, big-endian, sign bit flipped), length of the key (4 bytes, big-endian), key, tag. In bytewise
//! order the timers of a clock are neighbours, the earliest first. One entry of each key group is none: the watermark, with the user
//! key `00` and the value of an i64 (little-endian).

use super::Clock;

/// The user key of a timer.
pub fn of(clock: Clock, time_ms: i64, key: &[u8], tag: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + key.len() + tag.len());
    bytes.push(clock.byte());
    bytes.extend_from_slice(&sortable(time_ms));
    bytes.extend_from_slice(&(key.len() as u32).to_be_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(tag);
    bytes.into_boxed_slice()
}

/// The user key of the watermark; before those of all timers.
pub const WATERMARK: &[u8] = &[0];

/// Bytes of a user key before key and tag.
pub const HEADER_BYTES: usize = 13;

/// A time whose bytes are ordered as times are.
fn sortable(time_ms: i64) -> [u8; 8] {
    (time_ms ^ i64::MIN).to_be_bytes()
}

/// Time, key and tag of a user key; `None` if it is none of a timer.
pub fn parse(user_key: &[u8]) -> Option<(i64, &[u8], &[u8])> {
    let (header, rest) = user_key.split_first_chunk::<HEADER_BYTES>()?;
    let time_ms = i64::from_be_bytes(*header[1..].first_chunk()?) ^ i64::MIN;
    let key_bytes = u32::from_be_bytes(*header[9..].first_chunk()?);
    let (key, tag) = rest.split_at_checked(key_bytes as usize)?;
    Some((time_ms, key, tag))
}

/// The time of a user key of a timer.
///
/// # Panics
/// If it is none.
pub fn time_of(user_key: &[u8]) -> i64 {
    parse(user_key).expect("the user key of a timer").0
}

/// What is before all user keys of a clock.
pub fn before_all(clock: Clock) -> Box<[u8]> {
    Box::new([clock.byte()])
}

/// Whether a user key is one of this clock.
pub fn is_of(clock: Clock, user_key: &[u8]) -> bool {
    user_key.first() == Some(&clock.byte())
}

impl Clock {
    fn byte(self) -> u8 {
        match self {
            Clock::EventTime => 1,
            Clock::ProcessingTime => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_key_has_the_documented_bytes_and_comes_apart_again() {
        let user_key = of(Clock::ProcessingTime, 1, b"key", b"tag");
        assert_eq!(*user_key, *b"\x02\x80\0\0\0\0\0\0\x01\0\0\0\x03keytag");
        assert_eq!(parse(&user_key), Some((1, &b"key"[..], &b"tag"[..])));
        assert_eq!(parse(&user_key[..15]), None, "shorter than its key");
        assert_eq!(parse(&user_key[..12]), None, "shorter than its header");
    }

    #[test]
    fn user_keys_are_ordered_as_times_are() {
        let times = [i64::MIN, i64::MIN + 1, -1, 0, 1, 1 << 40, i64::MAX];
        let keys = times.map(|time| of(Clock::EventTime, time, b"z", b""));
        assert!(keys.is_sorted());
        assert_eq!(keys.each_ref().map(|key| time_of(key)), times);
        assert!(keys.iter().all(|key| before_all(Clock::EventTime) < *key && is_of(Clock::EventTime, key)));
        assert!(of(Clock::ProcessingTime, i64::MIN, b"", b"") > keys[6]);
    }
}
