//! What stands around an operator of another language when it is tested.

use lockgate::prelude::*;

/// Sets the count of a record's key to the record's value: the beginning of a count that others go on with.
pub struct SetCount {
    counts: Value<u64>,
}

impl Operator for SetCount {
    fn new(declare: &mut Declaration) -> SetCount {
        SetCount { counts: declare.value("counts") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.counts.set(ctx, record.value_str()?.parse()?)
    }
}

/// Gives records headers and takes values away, by the value: with `header` two of a name, one of them without a value; with
/// `missing` none is left.
pub struct Dress;

impl Operator for Dress {
    fn new(_: &mut Declaration) -> Dress {
        Dress
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?;
        if value.contains("header") {
            ctx.add_header("trace", Some(b"\x00\xff".as_slice()));
            ctx.add_header("trace", None::<&[u8]>);
        }
        ctx.emit(record.key(), (!value.contains("missing")).then_some(value));
        Ok(())
    }
}

/// Tells all that there is to a record in a line.
pub struct Facts;

impl Operator for Facts {
    fn new(_: &mut Declaration) -> Facts {
        Facts
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let text = |bytes: Option<&[u8]>| {
            bytes.map_or("none".to_owned(), |bytes| format!("{:?}", bytes.escape_ascii().to_string()))
        };
        let headers = record.headers().map(|header| format!("{}={}", header.name, text(header.value)));
        let headers = headers.collect::<Vec<_>>().join(" ");
        let (key, value, time) = (text(record.key()), text(record.value()), record.timestamp());
        ctx.emit_fmt((), format_args!("key {key} value {value} time {time:?} headers [{headers}]"));
        Ok(())
    }
}

/// What `visits` of `tests/languages` is in other languages: it counts the pages of each visitor, tells all at `bye`, forgets one, and
/// refuses what begins with `bad` when it has counted it.
pub struct Visits {
    pages: Map<String, u64>,
}

impl Operator for Visits {
    fn new(declare: &mut Declaration) -> Visits {
        Visits { pages: declare.map("pages") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let page = record.value_str()?;
        if page == "bye" {
            let (mut entries, mut place) = (self.pages.iter(ctx)?, 0);
            while let Some((seen, visits)) = entries.next(ctx)? {
                ctx.emit_fmt(record.key(), format_args!("{} {place} {seen} {visits}", record.key_str()?));
                place += 1;
            }
            return self.pages.clear(ctx);
        }
        if let Some(forgotten) = page.strip_prefix("forget ") {
            return self.pages.remove(ctx, forgotten);
        }
        self.pages.update(ctx, page, |visits| visits.unwrap_or(0) + 1)?;
        if page.starts_with("bad") {
            return Err(Error::bad_record("a bad page"));
        }
        Ok(())
    }
}
