//! Which number a table has in the stored keys.
//!
//! Invariant: a table that was ever in a snapshot keeps its number as long as it keeps its version; new ones get the next free
//! numbers in the order in which the operator declares them. A table in a newer version is a new one: what migrates moves from one
//! number to the other, so that no entry is met twice, and the old number becomes [`FREE_TABLE`] when nothing has it any more.

use super::error::StateError;
use super::timers::TIMERS_TABLE;
use crate::id::SubtaskId;
use crate::store::TableRef;

/// Far below the 16 bits that a stored key has for it.
const TABLES_MAX: usize = 1024;
/// In the place of a table that was migrated away: the number has no entries and may be given to another. No table of an
/// operator can have this name.
pub const FREE_TABLE: &str = "$free";

/// A table whose entries are still in an older version than the operator declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The operator's index of the table.
    pub table: u32,
    pub name: String,
    pub from_version: u32,
    pub to_version: u32,
    /// What the entries in the older version have in their stored keys.
    pub(super) from_number: u16,
}

#[derive(Debug)]
pub struct Tables {
    /// By number.
    stored: Vec<TableRef>,
    /// The number of each table of the operator, by the operator's index.
    numbers: Vec<u16>,
    /// The number of the timers' table, if there is one.
    timers: Option<u16>,
    declared: Vec<TableRef>,
    outdated: Vec<Outdated>,
}

impl Tables {
    /// # Errors
    /// If the operator declares a table twice, in an older version than the snapshot holds, or too many.
    pub fn assign(
        subtask: &SubtaskId,
        declared: &[TableRef],
        snapshot: Option<&[TableRef]>,
    ) -> Result<Tables, StateError> {
        let mut stored = snapshot.unwrap_or_default().to_vec();
        let mut numbers: Vec<u16> = Vec::with_capacity(declared.len());
        let mut outdated = Vec::new();
        let mut timers = None;
        for (index, table) in declared.iter().enumerate() {
            if declared[..index].iter().any(|other| other.name == table.name) {
                return Err(StateError::TableTwice { subtask: subtask.clone(), table: table.name.clone() });
            }
            let known = stored.iter().position(|known| known.name == table.name);
            let is_timers = table.name == TIMERS_TABLE;
            let number = match known.map(|number| (number, stored[number].version)) {
                Some((number, version)) if version == table.version => number,
                Some((number, from_version)) if from_version < table.version && !is_timers => {
                    let name = table.name.clone();
                    let (table_index, from_number) = (numbers.len() as u32, number as u16);
                    outdated.push(Outdated {
                        table: table_index,
                        name,
                        from_version,
                        to_version: table.version,
                        from_number,
                    });
                    place(&mut stored, table)
                }
                Some((_, version)) => {
                    return Err(StateError::TableVersion {
                        subtask: subtask.clone(),
                        table: table.name.clone(),
                        snapshot: version,
                        operator: table.version,
                    });
                }
                None => place(&mut stored, table),
            };
            if stored.len() > TABLES_MAX {
                let tables = stored.len();
                return Err(StateError::TooManyTables { subtask: subtask.clone(), tables, tables_max: TABLES_MAX });
            }
            // The operator has no index for it.
            if is_timers {
                timers = Some(number as u16);
            } else {
                numbers.push(number as u16);
            }
        }
        Ok(Tables { stored, numbers, timers, declared: declared.to_vec(), outdated })
    }

    /// What the operator declares, as it was given.
    pub fn declared_tables(&self) -> &[TableRef] {
        &self.declared
    }

    /// The tables that are to be migrated before a snapshot may be taken, in the operator's order.
    pub fn outdated(&self) -> &[Outdated] {
        &self.outdated
    }

    /// Nothing is left of the table in its older version.
    pub fn migrated(&mut self, table: u32) {
        if let Some(place) = self.outdated.iter().position(|outdated| outdated.table == table) {
            let from = usize::from(self.outdated.remove(place).from_number);
            self.stored[from] = TableRef { name: FREE_TABLE.to_owned(), version: 0 };
        }
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

/// Gives a table a number: one that nothing has any more, or the next one.
fn place(stored: &mut Vec<TableRef>, table: &TableRef) -> usize {
    if let Some(free) = stored.iter().position(|known| known.name == FREE_TABLE) {
        stored[free] = table.clone();
        return free;
    }
    stored.push(table.clone());
    stored.len() - 1
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
    fn a_table_in_a_newer_version_moves_to_another_number_which_is_free_afterwards() {
        let snapshot = [table("a", 1), table("b", 1)];
        let mut tables = assign(&[table("b", 1), table("a", 3)], Some(&snapshot)).expect("a newer version");
        assert_eq!([0, 1].map(|index| tables.number(index)), [Some(1), Some(2)]);
        let [outdated] = tables.outdated() else { panic!("one table is outdated: {:?}", tables.outdated()) };
        assert_eq!((outdated.table, &outdated.name[..], outdated.from_number), (1, "a", 0));
        assert_eq!((outdated.from_version, outdated.to_version), (1, 3));
        tables.migrated(1);
        assert!(tables.outdated().is_empty());
        assert_eq!(tables.stored(), [table(FREE_TABLE, 0), table("b", 1), table("a", 3)]);
        let next = assign(&[table("b", 1), table("a", 3), table("c", 1)], Some(tables.stored())).expect("a new table");
        assert_eq!([0, 1, 2].map(|index| next.number(index)), [Some(1), Some(2), Some(0)]);
    }

    #[test]
    fn an_older_version_or_a_table_declared_twice_is_refused() {
        let snapshot = [table("a", 2)];
        let error = assign(&[table("a", 1)], Some(&snapshot)).expect_err("an older version");
        assert!(matches!(error, StateError::TableVersion { snapshot: 2, operator: 1, .. }), "{error}");
        let error = assign(&[table("a", 1), table("a", 1)], None).expect_err("declared twice");
        assert!(matches!(error, StateError::TableTwice { .. }), "{error}");
    }
}
