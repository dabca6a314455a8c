//! Says of each record by which input it has come: `left 5`, `right 7`. What it is told by `rules` it only remembers.
//!
//! With `side = "5"` in its configuration, records of that value go to the output `side`. With `watermarks = true` it tells each
//! watermark: `watermark 12`. At the end, every subtask tells the rules that it knows: `rules a,b`.

use lockgate::prelude::*;

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    side: Option<String>,
    watermarks: bool,
}

/// See the crate.
pub struct Shapes {
    left: Input,
    rules: Input,
    side: Output,
    config: Config,
    known: Vec<String>,
}

impl Operator for Shapes {
    fn new(declare: &mut Declaration) -> Shapes {
        let left = declare.input("left");
        declare.input("right");
        Shapes {
            left,
            rules: declare.broadcast_input("rules"),
            side: declare.output("side"),
            config: Config::default(),
            known: Vec::new(),
        }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = std::str::from_utf8(record.value().unwrap_or_default())?;
        if ctx.input() == self.rules {
            self.known.push(value.to_owned());
            return Ok(());
        }
        let input = if ctx.input() == self.left { "left" } else { "right" };
        let output = if self.config.side.as_deref() == Some(value) { self.side } else { Output::MAIN };
        ctx.emit_to(output, record.key(), format!("{input} {value}").as_str());
        Ok(())
    }

    fn watermark(&mut self, timestamp: i64, ctx: &mut Context<'_>) -> Result<(), Error> {
        if timestamp == i64::MAX {
            self.known.sort();
            ctx.emit((), format!("rules {}", self.known.join(",")).as_str());
        } else if self.config.watermarks {
            ctx.emit((), format!("watermark {timestamp}").as_str());
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.known.join("\n").into_bytes())
    }

    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        for state in states {
            self.known.extend(String::from_utf8(state.clone())?.lines().map(str::to_owned));
        }
        Ok(())
    }
}

lockgate::export!(Shapes);
