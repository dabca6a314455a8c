//! Good bytes made bad: flipped, cut, doubled, moved, exchanged with those of others, or given lengths that lie.
//!
//! Invariant: what comes out is at most a few times as long as what went in.

use serde_json::{Value, json};

use crate::chance::Chance;

/// So many changes at most are made to one thing.
const CHANGES_MAX: usize = 6;

/// Numbers at which lengths and counters go wrong.
const WORDS: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX];

/// Changes bytes in one to a few places. `others`: more of the kind, of which parts may get in.
pub fn damaged(chance: &mut Chance<'_, '_>, good: &[u8], others: &[&[u8]]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..chance.between(1, CHANGES_MAX) {
        change(chance, &mut bytes, others);
    }
    bytes
}

fn change(chance: &mut Chance<'_, '_>, bytes: &mut Vec<u8>, others: &[&[u8]]) {
    let at = chance.below(bytes.len() + 1);
    let length = part_length(chance, bytes.len() - at);
    match chance.below(9) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = chance.byte();
            }
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..at + length)),
        4 => {
            let part = bytes[at..at + length].to_vec();
            let to = chance.below(bytes.len() + 1);
            bytes.splice(to..to, part);
        }
        5 => {
            let new = chance.bytes(16);
            bytes.splice(at..at, new);
        }
        6 => {
            let width = *chance.pick(&[1, 2, 4, 8]);
            let word = chance.pick(&WORDS).to_le_bytes();
            let fits = width.min(bytes.len() - at);
            bytes[at..at + fits].copy_from_slice(&word[..fits]);
        }
        7 if !others.is_empty() => {
            let other = *chance.pick(others);
            let from = chance.below(other.len() + 1);
            let part = &other[from..from + part_length(chance, other.len() - from)];
            bytes.splice(at..at + length, part.iter().copied());
        }
        _ => bytes[at..at + length].reverse(),
    }
}

/// Mostly short.
fn part_length(chance: &mut Chance<'_, '_>, most: usize) -> usize {
    let most = if chance.one_in(4) { most } else { most.min(32) };
    chance.below(most + 1)
}

/// A text with changes like those of a typist, of parts of `words` among them.
pub fn damaged_text(chance: &mut Chance<'_, '_>, good: &str, words: &[&str]) -> String {
    let mut text = good.to_owned();
    for _ in 0..chance.between(1, CHANGES_MAX) {
        let at = text.floor_char_boundary(chance.below(text.len() + 1));
        let length = part_length(chance, text.len() - at);
        let end = text.floor_char_boundary(at + length);
        match chance.below(5) {
            0 => text.truncate(at),
            1 => text.replace_range(at..end, ""),
            2 => text.insert_str(at, chance.pick::<&str>(words)),
            3 => text.replace_range(at..end, chance.pick::<&str>(words)),
            _ => {
                let part = text[at..end].to_owned();
                let to = text.floor_char_boundary(chance.below(text.len() + 1));
                text.insert_str(to, &part);
            }
        }
    }
    text
}

/// Changes a JSON value in one to a few places, which are all as likely: another value, one that is gone, one more.
pub fn damaged_json(chance: &mut Chance<'_, '_>, good: &Value) -> Value {
    let mut json = good.clone();
    for _ in 0..if chance.one_in(2) { chance.between(1, CHANGES_MAX) } else { 1 } {
        let mut place = chance.below(places(&json));
        if let Some(found) = find(&mut json, &mut place) {
            change_json(chance, found);
        }
    }
    json
}

/// How many values there are within, itself included.
fn places(json: &Value) -> usize {
    1 + match json {
        Value::Object(fields) => fields.values().map(places).sum::<usize>(),
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The value at a place, counted from the outside to the inside.
fn find<'j>(json: &'j mut Value, place: &mut usize) -> Option<&'j mut Value> {
    if *place == 0 {
        return Some(json);
    }
    *place -= 1;
    match json {
        Value::Object(fields) => fields.values_mut().find_map(|field| find(field, place)),
        Value::Array(items) => items.iter_mut().find_map(|item| find(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn change_json(chance: &mut Chance<'_, '_>, json: &mut Value) {
    let is_kept = !chance.one_in(4);
    match json {
        Value::Object(fields) if is_kept => {
            let key = fields.keys().nth(chance.below(fields.len().max(1))).cloned().unwrap_or_default();
            if chance.one_in(2) {
                fields.remove(&key);
            } else {
                fields.insert("more".to_owned(), Value::Null);
            }
        }
        Value::Array(items) if is_kept && !items.is_empty() => {
            let place = chance.below(items.len());
            if chance.one_in(2) {
                items.remove(place);
            } else {
                items.push(items[place].clone());
            }
        }
        Value::String(text) if is_kept => {
            *text = damaged_text(chance, text, &["/", "..", "\u{1b}[2J", "\0", "é", "18446744073709551615", "-", "{}"]);
        }
        _ => *json = any_json(chance),
    }
}

fn any_json(chance: &mut Chance<'_, '_>) -> Value {
    match chance.below(9) {
        0 => json!(chance.long()),
        1 => json!(chance.below(300)),
        2 => json!(-1),
        3 => json!(1.5),
        4 => json!(""),
        5 => json!(null),
        6 => json!([]),
        7 => json!({}),
        _ => json!(chance.one_in(2)),
    }
}
