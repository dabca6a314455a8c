//! What an operator implements and declares.

use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::migration::Migration;
use crate::open_context::OpenContext;
use crate::record::Record;
use crate::state::{Column, List, ListColumn, Map, MapColumn, Series, SeriesColumn, Value, ValueColumn};
use crate::timers::{Timer, Timers};

/// An operator: a struct that is handed records. See the [crate](crate) for how to start.
///
/// The host makes one instance for each subtask and calls it from one thread: `new`, `open`, `migrate` and `restore` if there is
/// state to take up, then `process`, `timer`, `watermark` and `snapshot` in any order, and `close`. After an error or a panic the instance
/// is dropped, and a new one goes on from the last checkpoint.
pub trait Operator: Sized + 'static {
    /// Declares tables, timers, inputs and outputs and keeps their handles.
    ///
    /// Also called without a job, to learn what the operator declares. So it must always declare the same, and do nothing
    /// else: configuration comes with [`open`](Self::open).
    fn new(declare: &mut Declaration) -> Self;

    /// Takes up the configuration.
    ///
    /// # Errors
    /// An error ends the job before it starts.
    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        let _ = ctx;
        Ok(())
    }

    /// Processes one record. Where there are several inputs, [`Context::input`] says from which it is.
    ///
    /// # Errors
    /// [`Error::bad_record`] if this record can't be processed; what `?` makes of an error of another type is that. If the
    /// job lets the operator reject records, such a record has no effect: nothing that was emitted, nothing that was done to
    /// tables and timers. Fields of the operator that were changed stay so: change them last.
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error>;

    /// Processes a batch, record by record. To be overridden by operators that gain from seeing many at once; these go
    /// through the batch with [`Context::next_record`] too, so that state and errors are those of the right record, and give
    /// a record's error to [`Context::reject`].
    ///
    /// # Errors
    /// As [`process`](Self::process).
    #[inline]
    fn process_batch(&mut self, ctx: &mut Context<'_>) -> Result<(), Error> {
        while let Some(record) = ctx.next_record() {
            if let Err(error) = self.process(record, ctx) {
                ctx.reject(error)?;
            }
        }
        Ok(())
    }

    /// A timer has fired. The current key is the timer's, for tables and further timers; what is emitted has the timer's time
    /// as its event time unless told otherwise.
    ///
    /// When a watermark comes, the event-time timers at or before it fire first, in the order of their times, those included
    /// that are set meanwhile; then [`watermark`](Self::watermark) is called.
    ///
    /// # Errors
    /// As [`process`](Self::process); a timer that is rejected is gone.
    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let _ = (timer, ctx);
        Ok(())
    }

    /// No more records with an event time at or before `timestamp` are to come; `i64::MAX` says that none are to come at
    /// all. There is no current record, and so no keyed state.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn watermark(&mut self, timestamp: i64, ctx: &mut Context<'_>) -> Result<(), Error> {
        let _ = (timestamp, ctx);
        Ok(())
    }

    /// The state that isn't in tables, at a barrier. [`encode`](crate::encoding::encode) makes bytes of most things.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// Takes up what [`snapshot`](Self::snapshot) gave: that of one subtask, or after a change of parallelism what the
    /// [`Redistribution`] says.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        let _ = states;
        Ok(())
    }

    /// Says what becomes of state that an older version of the operator has written. Called when the version that a
    /// [table](TableName::version) was declared with is greater than that of the state, before [`restore`](Self::restore);
    /// several times, with a part of the entries each time. So it must do the same with each entry whatever came before.
    ///
    /// ```
    /// use lockgate::prelude::*;
    /// use lockgate::testing::Harness;
    /// # struct Old { counts: Value<u64> }
    /// # impl Operator for Old {
    /// #     fn new(declare: &mut Declaration) -> Old { Old { counts: declare.value("counts") } }
    /// #     fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
    /// #         self.counts.update(ctx, |count| count.unwrap_or(0) + 1).map(drop)
    /// #     }
    /// # }
    ///
    /// #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    /// struct Tally {
    ///     count: u64,
    ///     bytes: u64,
    /// }
    ///
    /// /// Counts records and their bytes. Its first version, `Old`, counted only records, in a `Value<u64>`.
    /// struct Count {
    ///     counts: Value<Tally>,
    /// }
    ///
    /// impl Operator for Count {
    ///     fn new(declare: &mut Declaration) -> Count {
    ///         Count { counts: declare.value(TableName::new("counts").version(2)) }
    ///     }
    ///
    ///     fn migrate(&mut self, migration: &mut Migration<'_>) -> Result<(), Error> {
    ///         // The keys were upper and lower case once.
    ///         migration.keys(self.counts, 1, |key| key.to_ascii_lowercase())?;
    ///         migration.value(self.counts, 1, |count: u64| Tally { count, bytes: 0 })?;
    ///         migration.merge(self.counts, 1, |one, other| Tally {
    ///             count: one.count + other.count,
    ///             bytes: one.bytes + other.bytes,
    ///         })
    ///     }
    ///     // ...
    /// #   fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> { Ok(()) }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut old = Harness::<Old>::open()?;
    /// old.process([("Tea", ""), ("tea", ""), ("oil", "")])?;
    /// let mut new = Harness::<Count>::restore(&[&old.snapshot()?])?;
    /// assert_eq!(new.value("counts", "tea"), Some(Tally { count: 2, bytes: 0 }));
    /// assert_eq!(new.value::<Tally>("counts", "Tea"), None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An error ends the attempt. So does a version of a table of which nothing is said here.
    fn migrate(&mut self, migration: &mut Migration<'_>) -> Result<(), Error> {
        let _ = migration;
        Ok(())
    }

    /// The job is done, or stops. Nothing can be emitted any more.
    ///
    /// # Errors
    /// An error is reported; the job is over all the same.
    fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The tables, timers, inputs and outputs of an operator, as [`Operator::new`] declares them.
///
/// ```
/// use lockgate::prelude::*;
///
/// struct Fraud {
///     spent: Value<u64>,
///     places: Map<String, u32>,
///     suspicious: Output,
/// }
///
/// impl Operator for Fraud {
///     fn new(declare: &mut Declaration) -> Fraud {
///         Fraud {
///             spent: declare.value("spent"),
///             places: declare.map(TableName::new("places").version(2)),
///             suspicious: declare.output("suspicious"),
///         }
///     }
/// #   fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> { Ok(()) }
///     // ...
/// }
///
/// let declared = Declaration::of::<Fraud>();
/// assert_eq!(declared.inputs()[0].name, "in");
/// assert_eq!(declared.outputs(), ["out", "suspicious"]);
/// assert_eq!(declared.tables()[1].version, 2);
/// ```
pub struct Declaration {
    inputs: Vec<InputName>,
    redistribution: Redistribution,
    timers: bool,
    outputs: Vec<&'static str>,
    tables: Vec<Table>,
    columns: Vec<Box<dyn Column>>,
}

/// A table that an operator declares: `table` of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub kind: TableKind,
    pub version: u32,
}

/// What a table holds for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    Value,
    Map,
    List,
}

/// The name by which a table is known across versions of an operator, and the version of its encoding (1 unless said).
/// [`Operator::migrate`] brings state to a greater version; it can't be brought back to a smaller one.
#[derive(Clone, Copy, Debug)]
pub struct TableName {
    name: &'static str,
    version: u32,
}

impl TableName {
    pub const fn new(name: &'static str) -> TableName {
        TableName { name, version: 1 }
    }

    #[must_use]
    pub const fn version(self, version: u32) -> TableName {
        TableName { version, ..self }
    }
}

impl From<&'static str> for TableName {
    fn from(name: &'static str) -> TableName {
        TableName::new(name)
    }
}

/// An input that an operator declares: `input` of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputName {
    pub name: &'static str,
    /// Whether every subtask gets all of its records.
    pub broadcast: bool,
}

/// An input, to compare with [`Context::input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input {
    pub(crate) port: u32,
}

impl Input {
    /// The only one of an operator that declares none; its name is `in`.
    pub const MAIN: Input = Input { port: 0 };

    /// Its number, in the order of their declaration.
    pub fn port(self) -> u32 {
        self.port
    }
}

/// What becomes of the bytes of [`Operator::snapshot`] when the parallelism changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redistribution {
    /// Each new subtask gets those of some old ones, or of none. Each goes to one new subtask.
    #[default]
    Split,
    /// Each new subtask gets those of all old ones.
    Union,
    /// They are the same in all subtasks: each new one gets those of one old one. That of operators with a broadcast input.
    Broadcast,
}

/// An output to [emit](Context::emit_to) to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    pub(crate) port: u32,
}

impl Output {
    /// The output that every operator has; its name is `out`.
    pub const MAIN: Output = Output { port: 0 };
}

/// One bit of a word for each, and one for the cache.
const TABLES_MAX: usize = 31;

impl Declaration {
    /// What an operator declares.
    pub fn of<Op: Operator>() -> Declaration {
        Declaration::with::<Op>().1
    }

    pub(crate) fn with<Op: Operator>() -> (Op, Declaration) {
        let mut declaration = Declaration {
            inputs: Vec::new(),
            redistribution: Redistribution::default(),
            timers: false,
            outputs: vec!["out"],
            tables: Vec::new(),
            columns: Vec::new(),
        };
        let operator = Op::new(&mut declaration);
        if declaration.inputs.is_empty() {
            declaration.input("in");
        }
        (operator, declaration)
    }

    /// Declares a table with one value for each key.
    ///
    /// # Panics
    /// If there is a table of that name already, or there are 31 of them; so do `map` and `list`.
    pub fn value<V: Data>(&mut self, name: impl Into<TableName>) -> Value<V> {
        Value::new(self.table(name.into(), TableKind::Value, Box::new(ValueColumn::<V>::new())))
    }

    /// Declares a table with values by user key for each key.
    pub fn map<K: Data, V: Data>(&mut self, name: impl Into<TableName>) -> Map<K, V> {
        Map::new(self.table(name.into(), TableKind::Map, Box::new(MapColumn::<V>::new())))
    }

    /// Declares a table with values by number for each key; it is stored as a map is.
    pub(crate) fn series<V: Data>(&mut self, name: impl Into<TableName>) -> Series<V> {
        Series::new(self.table(name.into(), TableKind::Map, Box::new(SeriesColumn::<V>::new())))
    }

    /// Declares a table with a list for each key.
    pub fn list<V: Data>(&mut self, name: impl Into<TableName>) -> List<V> {
        List::new(self.table(name.into(), TableKind::List, Box::new(ListColumn::<V>::new())))
    }

    /// Declares an output beside the main one. In the job file it is `operator:name`.
    ///
    /// # Panics
    /// If there is one of that name already.
    pub fn output(&mut self, name: &'static str) -> Output {
        assert!(!self.outputs.contains(&name), "two outputs have the name '{name}'");
        self.outputs.push(name);
        Output { port: self.outputs.len() as u32 - 1 }
    }

    /// Declares an input. An operator that declares none has one, `in`.
    ///
    /// ```
    /// use lockgate::prelude::*;
    ///
    /// struct Limit {
    ///     limits: Input,
    ///     limit: u64,
    /// }
    ///
    /// impl Operator for Limit {
    ///     fn new(declare: &mut Declaration) -> Limit {
    ///         declare.input("amounts");
    ///         Limit { limits: declare.broadcast_input("limits"), limit: u64::MAX }
    ///     }
    ///
    ///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
    ///         let number = record.value_str()?.parse()?;
    ///         if ctx.input() == self.limits {
    ///             self.limit = number;
    ///         } else if number <= self.limit {
    ///             ctx.emit(record.key(), record.value());
    ///         }
    ///         Ok(())
    ///     }
    ///     // snapshot, restore: self.limit
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut harness = lockgate::testing::Harness::<Limit>::open()?;
    /// harness.process_from("amounts", [("a", "7")])?;
    /// harness.process_from("limits", [((), "5")])?;
    /// harness.process_from("amounts", [("a", "6"), ("a", "5")])?;
    /// assert_eq!(harness.take_output(), [("a", "7"), ("a", "5")]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is one of that name already.
    pub fn input(&mut self, name: &'static str) -> Input {
        self.add_input(InputName { name, broadcast: false })
    }

    /// Declares an input of which every subtask gets all records: a control stream. Its records need no key, and there is no
    /// keyed state while they are processed. What is kept of them belongs into [`Operator::snapshot`], and is the same in all
    /// subtasks.
    ///
    /// # Panics
    /// As [`input`](Self::input).
    pub fn broadcast_input(&mut self, name: &'static str) -> Input {
        self.redistribution = Redistribution::Broadcast;
        self.add_input(InputName { name, broadcast: true })
    }

    fn add_input(&mut self, input: InputName) -> Input {
        let name = input.name;
        assert!(self.inputs.iter().all(|other| other.name != name), "two inputs have the name '{name}'");
        self.inputs.push(input);
        Input { port: self.inputs.len() as u32 - 1 }
    }

    /// Declares that the operator sets timers. Like tables, they make it keyed.
    pub fn timers(&mut self) -> Timers {
        self.timers = true;
        Timers::new()
    }

    /// Says what becomes of the bytes of [`Operator::snapshot`] when the parallelism changes; they are split unless said. With
    /// a broadcast input they are the same everywhere, and this changes nothing.
    pub fn redistribution(&mut self, redistribution: Redistribution) {
        if !self.inputs.iter().any(|input| input.broadcast) {
            self.redistribution = redistribution;
        }
    }

    pub fn inputs(&self) -> &[InputName] {
        &self.inputs
    }

    pub fn uses_timers(&self) -> bool {
        self.timers
    }

    pub fn redistribution_of_state(&self) -> Redistribution {
        self.redistribution
    }

    /// The names of the outputs, the main one first.
    pub fn outputs(&self) -> &[&'static str] {
        &self.outputs
    }

    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn table(&mut self, name: TableName, kind: TableKind, column: Box<dyn Column>) -> u32 {
        let TableName { name, version } = name;
        assert!(self.tables.iter().all(|table| table.name != name), "two tables have the name '{name}'");
        assert!(self.tables.len() < TABLES_MAX, "an operator has at most {TABLES_MAX} tables");
        self.tables.push(Table { name, kind, version });
        self.columns.push(column);
        self.tables.len() as u32 - 1
    }

    pub(crate) fn into_columns(self) -> Vec<Box<dyn Column>> {
        self.columns
    }
}
