//! Query 8, monitor new users: `person,name,window start` of everybody who has registered and opened an auction in the
//! same 10 s.

use std::time::Duration;

use lockgate::blocks::WindowJoin;
use lockgate::encoding::decode;
use lockgate::prelude::*;

use crate::event::Person;

const SIZE: Duration = Duration::from_secs(10);

/// Inputs: `persons` and `auctions`, both keyed by the person.
pub struct NewSellers {
    auctions: Input,
    /// Names, and one for each auction.
    join: WindowJoin<String, ()>,
}

impl Operator for NewSellers {
    fn new(declare: &mut Declaration) -> NewSellers {
        declare.input("persons");
        NewSellers { auctions: declare.input("auctions"), join: WindowJoin::declare(declare, "sellers", SIZE) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if ctx.input() == self.auctions {
            self.join.add_right(ctx, &record, ())?;
        } else {
            let person = decode::<Person>(record.value().unwrap_or_default())?;
            self.join.add_left(ctx, &record, person.name)?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let person = std::str::from_utf8(timer.key())?;
        self.join.fire(ctx, &timer, |ctx, window, names, auctions| {
            for name in names.iter().filter(|_| !auctions.is_empty()) {
                ctx.emit_fmt((), format_args!("{person},{name},{}", window.start));
            }
            Ok(())
        })?;
        Ok(())
    }
}
