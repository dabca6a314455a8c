//! The first version: a number for each key.

use lockgate::prelude::*;

/// See the file.
pub struct First {
    counts: Value<u64>,
    /// Never touched: it has no entries to be migrated.
    _unused: Map<u32, u32>,
}

impl Operator for First {
    fn new(declare: &mut Declaration) -> First {
        First { counts: declare.value("counts"), _unused: declare.map("unused") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        super::mark::send(record.key(), count, ctx);
        Ok(())
    }
}
