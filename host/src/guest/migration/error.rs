//! Why state of an older version can't be brought to an operator's own.

use crate::element::Malformed;

/// What is wrong with a migration, or with what it gave.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationError {
    #[error(
        "declares version {to} of its table '{table}', whose state is in version {from}, and its component exports no migration"
    )]
    NotExported { table: String, from: u32, to: u32 },
    #[error("gave malformed {what} for its table '{table}': {source}")]
    Malformed { table: String, what: &'static str, source: Malformed },
    #[error(
        "said that it keeps the keys of its table '{table}', and gave an entry of a key that it wasn't given: '{key}'"
    )]
    KeyNotKept { table: String, key: String },
    #[error("gave an entry of its table '{table}' with a key that belongs to another subtask: '{key}'")]
    KeyElsewhere { table: String, key: String },
    #[error("changes the keys of its table '{table}' while timers are set, which would keep the old keys")]
    TimersSet { table: String },
}

impl MigrationError {
    /// What to do about it.
    pub fn help(&self) -> String {
        let help = match self {
            MigrationError::NotExported { .. } => {
                "nothing is lost: build the component with the `lockgate` SDK, whose `Operator::migrate` says what becomes of \
                 older state, or for the world `migrating-operator`; or take the component that wrote the state"
            }
            MigrationError::Malformed { .. } | MigrationError::KeyNotKept { .. } => {
                "this is the operator's fault; nothing is lost: correct its migration, or take the component that wrote the \
                 state, and run the job again"
            }
            MigrationError::KeyElsewhere { .. } => {
                "nothing is lost: a subtask of a running job can't hand state to another one; stop the job, and start it with \
                 the new component"
            }
            MigrationError::TimersSet { .. } => {
                "nothing is lost: run the old component until its timers have fired, or keep the keys as they are and declare \
                 a new table for the new ones"
            }
        };
        help.to_owned()
    }
}
