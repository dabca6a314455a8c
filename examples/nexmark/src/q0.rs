//! Query 0, pass through: every event as it is. It costs what a record costs.

use lockgate::prelude::*;

/// See the module.
pub struct PassThrough;

impl Operator for PassThrough {
    fn new(_: &mut Declaration) -> PassThrough {
        PassThrough
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        ctx.emit(record.key(), record.value());
        Ok(())
    }
}
