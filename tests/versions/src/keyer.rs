//! Gives each record the key that the version of the counting operator wants: its value, in lower case or with a mark if the
//! configuration says so.

use lockgate::prelude::*;

use crate::mark::Mark;

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    lower: bool,
    mark: bool,
}

/// See the file.
pub struct Keyer {
    config: Config,
}

impl Operator for Keyer {
    fn new(_: &mut Declaration) -> Keyer {
        Keyer { config: Config::default() }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let mut key = record.value().unwrap_or_default().to_vec();
        if self.config.lower {
            key.make_ascii_lowercase();
        }
        if self.config.mark {
            key = Mark::of(&key).0;
        }
        ctx.emit(key, ());
        Ok(())
    }
}
