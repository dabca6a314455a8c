//! A chain of operators that note what is done with them, of which one is swapped.

use super::*;
use crate::element::{Batch, Row};
use crate::guest::{
    Call, Clock, Declared, Descriptor, Emitted, Failure, Fired, InstanceContext, OperatorError, Rejection,
};
use crate::id::SubtaskId;
use crate::task::{Chain, Counters, Tail};

/// What was done, in order.
type Notes = Arc<Mutex<Vec<String>>>;

fn note(notes: &Notes, what: String) {
    notes.lock().expect("no test panics with it").push(what);
}

fn taken(notes: &Notes) -> Vec<String> {
    std::mem::take(&mut *notes.lock().expect("no test panics with it"))
}

/// An operator that passes records on. Its state is its name.
struct Noting {
    name: &'static str,
    notes: Notes,
}

impl Drop for Noting {
    fn drop(&mut self) {
        note(&self.notes, format!("{} ends", self.name));
    }
}

impl OperatorInstance for Noting {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        let states = states.iter().map(|state| String::from_utf8_lossy(state)).collect::<Vec<_>>().join(",");
        note(&self.notes, format!("{} is restored from {states}", self.name));
        Ok(())
    }

    fn process(&mut self, _: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        note(&self.notes, format!("{} takes {}", self.name, batch.rows));
        emitted.push((0, batch.clone()));
        Ok(Vec::new())
    }

    fn fire_timers(&mut self, _: Clock, _: i64, _: &mut Emitted) -> Result<Fired, OperatorError> {
        Ok(Fired::default())
    }

    fn next_timer(&self, _: Clock) -> Option<i64> {
        None
    }

    fn set_now(&mut self, now_ms: i64) {
        assert!(now_ms > 0, "the time of day");
    }

    fn watermark(&mut self, _: i64, _: &mut Emitted) -> Result<(), OperatorError> {
        Ok(())
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        note(&self.notes, format!("{} is cut at {epoch}", self.name));
        Ok(self.name.as_bytes().to_vec())
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        note(&self.notes, format!("{} is closed", self.name));
        Ok(())
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        None
    }

    fn migrated_entries(&self) -> u64 {
        3
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        None
    }
}

/// Makes the next one.
struct Next {
    descriptor: Descriptor,
    notes: Notes,
    fails: bool,
}

impl OperatorFactory for Next {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
        note(&self.notes, "next is opened".to_owned());
        if self.fails {
            let failure = Failure::Panic { message: "not like that".to_owned() };
            return Err(OperatorError::new(context.subtask, Call::Open, failure));
        }
        Ok(Box::new(Noting { name: "next", notes: Arc::clone(&self.notes) }))
    }
}

fn subtask(name: &str) -> SubtaskId {
    SubtaskId { operator: Name::new(name).expect("a name"), index: 0 }
}

fn slot(name: &'static str, notes: &Notes, board: &SwapBoard) -> OperatorSlot {
    let reopen = move |factory: &dyn OperatorFactory, state: Option<KeyedState>| {
        let context = InstanceContext {
            job: Name::new("job").expect("a name"),
            subtask: subtask(name),
            parallelism: 1,
            config_json: "{}".to_owned(),
            limits: crate::guest::Limits::default(),
            rejections: false,
            state,
            counters: crate::guest::Counters::default(),
        };
        let instance = factory.open(context)?;
        let migrated_entries = instance.migrated_entries();
        Ok(Reopened { instance, migrated_entries })
    };
    OperatorSlot {
        subtask: subtask(name),
        instance: Box::new(Noting { name, notes: Arc::clone(notes) }),
        chained_input: 0,
        chained_port: 0,
        operator_state: Vec::new(),
        counters: Counters::default(),
        swaps: Swaps { board: board.clone(), reopen: Box::new(reopen) },
        pace: crate::task::Pace::new(&crate::guest::Limits::default()),
    }
}

/// The order to swap "second" at epoch 2.
fn order(notes: &Notes, fails: bool) -> SwapOrder {
    let descriptor = Descriptor::new(Declared::PLAIN).expect("sensible");
    let factory = Arc::new(Next { descriptor, notes: Arc::clone(notes), fails });
    SwapOrder { epoch: Epoch(2), operator: Name::new("second").expect("a name"), factory }
}

fn chain(notes: &Notes, board: &SwapBoard) -> Chain {
    let operators = ["first", "second"].map(|name| slot(name, notes, board));
    Chain::new(operators.into(), Tail::Outlets(Vec::new()), Vec::new())
}

fn record() -> Arc<Batch> {
    let mut batch = Batch::default();
    batch.push(Row { key: None, value: Some(b"value"), timestamp: 1 });
    Arc::new(batch)
}

#[test]
fn behind_the_snapshot_of_the_ordered_epoch_the_ordered_operator_alone_is_another_one() {
    let (notes, board) = (Notes::default(), SwapBoard::default());
    let mut chain = chain(&notes, &board);
    board.post(order(&notes, false));
    chain.snapshot(Epoch(1)).expect("a snapshot");
    chain.swap(Epoch(1)).expect("nothing is ordered there");
    chain.batch(0, None, record()).expect("a good record");
    assert_eq!(taken(&notes), ["first is cut at 1", "second is cut at 1", "first takes 1", "second takes 1"]);
    chain.snapshot(Epoch(2)).expect("a snapshot");
    chain.swap(Epoch(2)).expect("it can be opened");
    chain.batch(0, None, record()).expect("a good record");
    let swapped = ["first is cut at 2", "second is cut at 2", "second ends", "next is opened"];
    let then = ["next is restored from second", "first takes 1", "next takes 1"];
    assert_eq!(taken(&notes), [&swapped[..], &then].concat());
    let figures = board.figures();
    assert_eq!((figures.subtasks, figures.migrated_entries), (1, 3));
    assert!(!figures.paused_max.is_zero());
}

#[test]
fn the_snapshot_behind_a_swap_has_changed() {
    let (notes, board) = (Notes::default(), SwapBoard::default());
    let mut chain = chain(&notes, &board);
    board.post(order(&notes, false));
    chain.snapshot(Epoch(2)).expect("a snapshot");
    chain.swap(Epoch(2)).expect("it can be opened");
    assert!(chain.snapshot(Epoch(3)).expect("a snapshot").1);
    assert!(!chain.snapshot(Epoch(4)).expect("a snapshot").1);
}

#[test]
fn a_component_that_cant_be_opened_ends_the_task_with_its_error() {
    let (notes, board) = (Notes::default(), SwapBoard::default());
    let mut chain = chain(&notes, &board);
    board.post(order(&notes, true));
    chain.snapshot(Epoch(2)).expect("a snapshot");
    let error = chain.swap(Epoch(2)).expect_err("it panics");
    assert!(matches!(error, TaskError::Operator(_)), "{error}");
    assert_eq!(board.figures(), SwapFigures::default());
}
