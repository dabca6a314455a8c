//! What is seen of an instance from outside, so that it can be compared before and behind a call.
//!
//! Invariant: looking changes nothing.

use lockgate_host::element::{Batch, Column};
use lockgate_host::guest::{Emitted, FIRED_ROWS_MAX, Fired, OperatorError, Rejection};
use lockgate_host::state::{Clock, KeyedState};

use crate::guest::puppet::{OUTPUTS, TABLES};
use crate::guest::store::{column, own_keys};
use crate::text;

/// However much a page may have.
const PAGE_BYTES: u32 = 1 << 20;

/// All entries of the keys that scripts know, and the earliest timers.
#[derive(Debug, PartialEq)]
pub struct Look {
    entries: Vec<(u32, &'static str, Column, Column)>,
    timers: [Option<i64>; 2],
    any_timer: bool,
}

impl Look {
    pub fn at(state: &KeyedState) -> Result<Look, String> {
        let mut entries = Vec::new();
        for table in 0..TABLES.len() as u32 {
            for key in own_keys() {
                let page = state.scan(table, key.as_bytes(), None, PAGE_BYTES);
                let page = page.map_err(|error| format!("the state can't be read: {error}"))?;
                agree(state, table, key, &page.user_keys, &page.values)?;
                entries.push((table, key, page.user_keys, page.values));
            }
        }
        let timers = [Clock::EventTime, Clock::ProcessingTime].map(|clock| state.next_timer(clock));
        Ok(Look { entries, timers, any_timer: state.is_any_timer_set() })
    }
}

/// Whether what a scan gives is what a look-up gives.
fn agree(state: &KeyedState, table: u32, key: &str, user_keys: &Column, values: &Column) -> Result<(), String> {
    let rows = user_keys.rows();
    let keys = column(&vec![key.as_bytes(); rows]);
    let (got, found) = state.get_many(table, &keys, user_keys).map_err(|error| error.to_string())?;
    let all = (0..rows).all(|row| found[row / 8] >> (row % 8) & 1 == 1 && got.get(row) == values.get(row));
    if all { Ok(()) } else { Err(format!("a scan of '{key}' in table {table} and look-ups disagree")) }
}

/// What is wrong with what a call has put out.
pub fn check_emitted(emitted: &Emitted, limit_bytes: usize) -> Result<(), String> {
    let mut bytes = 0;
    for (port, batch) in emitted {
        if *port >= OUTPUTS || batch.is_empty() {
            return Err(format!("{} rows were put out to output {port}", batch.rows));
        }
        check_batch(batch)?;
        bytes += batch.keys.data.len() + batch.values.data.len() + batch.headers.data.len();
    }
    if bytes > limit_bytes { Err(format!("{bytes} bytes were put out; {limit_bytes} are the limit")) } else { Ok(()) }
}

/// Reads all of a batch.
pub fn check_batch(batch: &Batch) -> Result<(), String> {
    batch.check().map_err(|malformed| format!("a batch got through: {malformed}"))?;
    for row in 0..batch.rows as usize {
        let headers = batch.headers(row).map(|header| header.name.len() + header.value.map_or(0, <[u8]>::len));
        let _all_of_it = (batch.row(row), headers.sum::<usize>());
    }
    Ok(())
}

pub fn check_rejections(rejections: &[Rejection], rows: u32, allowed: bool) -> Result<(), String> {
    if !allowed && !rejections.is_empty() {
        return Err("rows were rejected where none may be".to_owned());
    }
    let mut next = 0;
    for rejection in rejections {
        if !(next..rows).contains(&rejection.row) {
            return Err(format!("row {} of {rows} was rejected behind row {next}", rejection.row));
        }
        next = rejection.row + 1;
        // It may be empty.
        text::check_printable(&format!("'{}'", rejection.message))?;
    }
    Ok(())
}

pub fn check_fired(fired: &Fired, allowed: bool) -> Result<(), String> {
    if fired.rows as usize > FIRED_ROWS_MAX {
        return Err(format!("{} timers fired at once", fired.rows));
    }
    let rejections = fired.rejections.iter().map(|(rejection, _)| rejection.clone()).collect::<Vec<_>>();
    check_rejections(&rejections, fired.rows, allowed)
}

/// What is wrong with an error, for those who read it.
pub fn check_error(error: &OperatorError) -> Result<(), String> {
    text::check_printable(&error.to_string())?;
    text::check_printable(&error.help())
}
