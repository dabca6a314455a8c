//! Which number a table has in the stored keys.
//!
//! Invariant: a table that was ever in a snapshot keeps its number; new ones get the next free numbers in the order in which the
//! operator declares them.

use super::error::StateError;
use super::timers::TIMERS_TABLE;
use crate::id::SubtaskId;
use crate::store::TableRef;

/// Far below the 16 bits that a stored key has for it.
const TABLES_MAX: usize = 1024;

#[derive(Debug)]
pub struct Tables {
    /// By number.
    stored: Vec<TableRef>,
    /// The number of each table of the operator, by the operator's index.
    numbers: Vec<u16>,
    /// The number of the timers' table, if there is one.
    timers: Option<u16>,
}

impl Tables {
    /// # Errors
    /// If the operator declares a table twice, in another version than the snapshot holds, or too many.
    pub fn assign(
        subtask: &SubtaskId,
        declared: &[TableRef],
        snapshot: Option<&[TableRef]>,
    ) -> Result<Tables, StateError> {
        let mut stored = snapshot.unwrap_or_default().to_vec();
        let mut numbers: Vec<u16> = Vec::with_capacity(declared.len());
        let mut timers = None;
        for table in declared {
            let number = match stored.iter().position(|known| known.name == table.name) {
                Some(number) => number,
                None => {
                    stored.push(table.clone());
                    stored.len() - 1
                }
            };
            if stored.len() > TABLES_MAX {
                let tables = stored.len();
                return Err(StateError::TooManyTables { subtask: subtask.clone(), tables, tables_max: TABLES_MAX });
            }
            if numbers.contains(&(number as u16)) || timers == Some(number as u16) {
                return Err(StateError::TableTwice { subtask: subtask.clone(), table: table.name.clone() });
            }
            if stored[number].version != table.version {
                return Err(StateError::TableVersion {
                    subtask: subtask.clone(),
                    table: table.name.clone(),
                    snapshot: stored[number].version,
                    operator: table.version,
                });
            }
            // The operator has no index for it.
            if table.name == TIMERS_TABLE {
                timers = Some(number as u16);
            } else {
                numbers.push(number as u16);
            }
        }
        Ok(Tables { stored, numbers, timers })
    }

    /// The number of the operator's table.
    #[inline]
    pub fn number(&self, table: u32) -> Option<u16> {
        self.numbers.get(table as usize).copied()
    }

    /// The number of the timers' table, if the operator uses timers.
    pub fn timers(&self) -> Option<u16> {
        self.timers
    }

    /// How many tables the operator declares.
    pub fn declared(&self) -> usize {
        self.numbers.len()
    }

    /// All tables by number, as a snapshot lists them.
    pub fn stored(&self) -> &[TableRef] {
        &self.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Name;

    fn table(name: &str, version: u32) -> TableRef {
        TableRef { name: name.to_owned(), version }
    }

    fn assign(declared: &[TableRef], snapshot: Option<&[TableRef]>) -> Result<Tables, StateError> {
        let subtask = SubtaskId { operator: Name::new("count").expect("a name"), index: 0 };
        Tables::assign(&subtask, declared, snapshot)
    }

    #[test]
    fn tables_keep_their_numbers_and_new_ones_come_behind() {
        let snapshot = [table("a", 1), table("gone", 4), table("b", 2)];
        let tables = assign(&[table("b", 2), table("new", 1), table("a", 1)], Some(&snapshot)).expect("good");
        assert_eq!([0, 1, 2, 3].map(|index| tables.number(index)), [Some(2), Some(3), Some(0), None]);
        assert_eq!(tables.stored(), [table("a", 1), table("gone", 4), table("b", 2), table("new", 1)]);
        assert_eq!(tables.declared(), 3);
    }

    #[test]
    fn the_timers_table_has_a_number_and_no_index() {
        let tables = assign(&[table("a", 1), table(TIMERS_TABLE, 1), table("b", 1)], None).expect("good");
        assert_eq!([0, 1, 2].map(|index| tables.number(index)), [Some(0), Some(2), None]);
        assert_eq!((tables.timers(), tables.declared()), (Some(1), 2));
        assert_eq!(assign(&[table("a", 1)], Some(tables.stored())).expect("good").timers(), None);
    }

    #[test]
    fn another_version_or_a_table_declared_twice_is_refused() {
        let snapshot = [table("a", 1)];
        let error = assign(&[table("a", 2)], Some(&snapshot)).expect_err("another version");
        assert!(matches!(error, StateError::TableVersion { snapshot: 1, operator: 2, .. }), "{error}");
        let error = assign(&[table("a", 1), table("a", 1)], None).expect_err("declared twice");
        assert!(matches!(error, StateError::TableTwice { .. }), "{error}");
    }
}
