//! Every function next to the plain way of the standard library.

use std::fmt::Debug;
use std::str::FromStr;

use proptest::prelude::*;

use super::*;

fn plain<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn plain_leading<T: FromStr>(text: &[u8]) -> Option<(T, &[u8])> {
    let sign = usize::from(text.first().is_some_and(|byte| b"+-".contains(byte)));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(sign + digits);
    Some((plain(number)?, rest))
}

fn agrees<T: Integer + FromStr + PartialEq + Debug>(text: &[u8]) {
    let shown = text.escape_ascii();
    assert_eq!(integer::<T>(text).ok(), plain::<T>(text), "{shown}");
    assert_eq!(leading_integer::<T>(text), plain_leading::<T>(text), "{shown}");
}

fn all_types_agree(text: &[u8]) {
    agrees::<u8>(text);
    agrees::<u16>(text);
    agrees::<u32>(text);
    agrees::<u64>(text);
    agrees::<usize>(text);
    agrees::<i8>(text);
    agrees::<i16>(text);
    agrees::<i32>(text);
    agrees::<i64>(text);
    agrees::<isize>(text);
}

#[test]
fn any_byte_at_any_place_ends_a_number_as_it_should() {
    for len in 1..28 {
        for at in 0..len {
            for byte in 0..=u8::MAX {
                let mut text = *b"1029384756102938475610293847";
                text[at] = byte;
                agrees::<u64>(&text[..len]);
                agrees::<i32>(&text[..len]);
            }
        }
    }
}

#[test]
fn a_type_takes_its_last_value_and_not_the_next() {
    for edge in [0, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63, 1i128 << 64] {
        for number in [edge - 1, edge, edge + 1, -edge - 1, -edge, -edge + 1] {
            for zeros in 0..26 {
                let sign = if number < 0 { "-" } else { "" };
                let digits = format!("{}{}", "0".repeat(zeros), number.unsigned_abs());
                all_types_agree(format!("{sign}{digits}").as_bytes());
                all_types_agree(format!("+{digits} ").as_bytes());
            }
        }
    }
    for text in ["", "+", "-", "-0", "+0", "--1", "+-1", "-a", "0x1", " 1", "1 ", "99999999999999999999"] {
        all_types_agree(text.as_bytes());
    }
}

#[test]
fn what_is_no_integer_is_named_in_the_error() {
    let error = integer::<u32>(b"12\xff").expect_err("no integer");
    assert_eq!(error.to_string(), r"not a u32: '12\xff'");
}

/// Mostly digits.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![20 => b'0'..=b'9', 1 => any::<u8>(), 1 => prop::sample::select(b"+-,/:\0\x80".to_vec())];
    prop::collection::vec(byte, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_as_the_standard_library_reads_it(text in text()) {
        all_types_agree(&text);
    }

    #[test]
    fn fields_are_what_is_between_separators(text in text(), separator in prop::sample::select(b",01\xff".to_vec())) {
        let plain = text.split(|&byte| byte == separator).collect::<Vec<_>>();
        prop_assert_eq!(fields(&text, separator).collect::<Vec<_>>(), &plain[..]);
        let mut some = fields(&text, separator);
        some.next();
        prop_assert_eq!(some.rest().map(|rest| fields(rest, separator).collect()), (plain.len() > 1).then(|| plain[1..].to_vec()));
        prop_assert_eq!(split_once(&text, separator).map(|(first, _)| first), (plain.len() > 1).then_some(plain[0]));
    }

    #[test]
    fn numbers_are_printed_as_the_standard_library_prints_them(number: u64, bits in 0..64u32) {
        let mut printed = [b'x'; PRINTED_BYTES_MAX];
        let number = number >> bits;
        let len = print(number, &mut printed);
        prop_assert_eq!(String::from_utf8_lossy(&printed[..len]), number.to_string());
        let signed = number as i64;
        let printed = decimal(signed);
        prop_assert_eq!(String::from_utf8_lossy(printed.as_bytes()), signed.to_string());
    }
}

#[test]
fn every_four_digits_are_printed_as_they_are() {
    for four in 0..10_000 {
        let printed = [four * 10_000, four].map(|number| eight_digits(number).to_le_bytes());
        assert_eq!(String::from_utf8_lossy(printed.as_flattened()), format!("{four:04}00000000{four:04}"));
    }
}
