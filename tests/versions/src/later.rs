//! The later versions: a struct for each key, and other keys.
//!
//! With `trap_at = K` in the configuration, the migration panics at the K-th entry that an instance migrates.

use lockgate::prelude::*;

use crate::mark::{Mark, send};

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    trap_at: Option<u64>,
}

/// A count, and whether any of it was counted by the first version.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Counted {
    count: u64,
    inherited: bool,
}

struct Later {
    counts: Value<Counted>,
    _unused: Map<u32, u32>,
    config: Config,
    migrated: u64,
}

impl Later {
    fn new(declare: &mut Declaration) -> Later {
        let counts = declare.value(TableName::new("counts").version(2));
        Later { counts, _unused: declare.map("unused"), config: Config::default(), migrated: 0 }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let counted = self.counts.update(ctx, |counted| {
            let counted = counted.unwrap_or_default();
            Counted { count: counted.count + 1, ..counted }
        })?;
        send(record.key(), counted.count, ctx);
        Ok(())
    }

    fn values(&mut self, migration: &mut Migration<'_>) -> Result<(), Error> {
        migration.value(self.counts, 1, |count: u64| {
            self.migrated += 1;
            assert!(self.config.trap_at != Some(self.migrated), "the configuration says so");
            Counted { count, inherited: true }
        })
    }
}

/// A version of the operator, with what it does to migrate.
macro_rules! version {
    ($(#[doc = $doc:literal])* $name:ident, |$later:ident, $migration:ident| $migrate:expr) => {
        $(#[doc = $doc])*
        pub struct $name(Later);

        impl Operator for $name {
            fn new(declare: &mut Declaration) -> $name {
                $name(Later::new(declare))
            }

            fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
                self.0.config = ctx.config()?;
                Ok(())
            }

            fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
                self.0.process(record, ctx)
            }

            fn migrate(&mut self, $migration: &mut Migration<'_>) -> Result<(), Error> {
                let $later = &mut self.0;
                $migrate
            }
        }
    };
}

version!(
    /// Keeps the keys.
    Tally,
    |later, migration| later.values(migration)
);

version!(
    /// Has marked keys.
    Marked,
    |later, migration| {
        later.values(migration)?;
        migration.keys(later.counts, 1, |key| Mark::of(key).0)
    }
);

version!(
    /// Has keys in lower case, so that several become one.
    Folded,
    |later, migration| {
        later.values(migration)?;
        migration.keys(later.counts, 1, |key| key.to_ascii_lowercase())?;
        migration.merge(later.counts, 1, |one, other| Counted {
            count: one.count + other.count,
            inherited: one.inherited || other.inherited,
        })
    }
);

version!(
    /// Doesn't say how to migrate.
    Silent,
    |_later, _migration| Ok(())
);
