//! The write side of a Kafka sink, one subtask.
//!
//! Records go to librdkafka's queue as they come. What doesn't fit, or may not be sent yet, is kept, and the sink is busy until
//! it is sent; at a barrier the rest still belongs to the epoch, and the work that makes the epoch durable sends it.
//!
//! Invariant: no record is dropped or sent before one that came before it. None waits for anything but room, an acknowledgement,
//! or a decision.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backlog::{Backlog, Destination, Sent};
use super::delivery::{LedgerId, ledger_of};
use super::failure;
use super::line::Line;
use super::sent_turns::{Owed, SentTurns};
use super::vigil::Vigil;
use crate::connector::{ConnectorError, Prepare, SinkWriter};
use crate::crash;
use crate::element::Batch;
use crate::id::{Epoch, Name};
use crate::protocol::transactions::Turn;
use crate::telemetry::RecordsUndelivered;

/// When a busy sink is asked again: acknowledgements come within milliseconds.
const ASK_AGAIN: Duration = Duration::from_millis(1);
/// While an epoch is made durable, how often it is looked whether its transaction has become too old meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// One subtask.
pub struct KafkaSinkWriter {
    sending: Sending,
    /// Raised with the next call that can fail.
    failed: Option<ConnectorError>,
}

/// What a subtask has of an epoch.
struct Sending {
    /// The sink.
    name: Name,
    /// Among all subtasks that share the line.
    subtask: usize,
    line: Arc<Line>,
    turn: Turn,
    destination: Destination,
    backlog: Backlog,
    /// Whether anything of the turn was sent.
    has_begun: bool,
    /// Those of this subtask.
    sent_turns: Arc<SentTurns>,
}

impl Sending {
    fn ledger(&self) -> LedgerId {
        ledger_of(self.subtask, self.turn)
    }

    /// Whether all of the turns before is sent.
    fn is_next(&self) -> bool {
        self.sent_turns.is_next(self.turn)
    }

    fn may_send(&self) -> bool {
        self.is_next() && self.line.would_allow(self.subtask, self.turn, !self.has_begun)
    }

    /// Sends what is left and then `batch`, as far as that goes; keeps the rest.
    fn send(&mut self, batch: Option<&Batch>) -> Result<(), ConnectorError> {
        let ledger = self.ledger();
        let allowed =
            if self.is_next() { self.line.allow(&self.name, self.subtask, self.turn, !self.has_begun)? } else { None };
        let Some(producer) = allowed else {
            batch.into_iter().for_each(|batch| self.backlog.push(batch));
            return Ok(());
        };
        self.has_begun = true;
        let ledgers = self.line.ledgers();
        let drained = self.backlog.drain(producer, ledgers, ledger, &mut self.destination);
        let sent = match (drained, batch) {
            (Ok(Sent::All), Some(batch)) => self.backlog.send(producer, ledgers, ledger, &mut self.destination, batch),
            (Ok(Sent::Full), Some(batch)) => {
                self.backlog.push(batch);
                Ok(Sent::Full)
            }
            (outcome, _) => outcome,
        };
        match sent {
            Ok(Sent::All | Sent::Full) => Ok(()),
            Err(record) => Err(self.line.not_taken(&self.name, &self.destination.topic, &record, self.turn)),
        }
    }

    /// Sends what is left of an epoch that is over, and waits until the brokers have all of it.
    fn finish(mut self) -> Result<(), ConnectorError> {
        let ledgers = Arc::clone(self.line.ledgers());
        let ledger = self.ledger();
        let mut vigil = Vigil::begin(ledgers.done_count(ledger), Instant::now());
        loop {
            self.go_on()?;
            self.sent_turns.check(&self.name)?;
            if !self.backlog.is_empty() {
                self.send(None)?;
            }
            if self.is_next() {
                if self.backlog.is_empty() {
                    break;
                }
                // Who has its turn before this one looks for it.
                self.look(&mut vigil)?;
            }
            ledgers.rest(ASK_AGAIN);
        }
        self.sent_turns.sent(self.turn);
        while !ledgers.is_even(ledger) {
            self.go_on()?;
            self.look(&mut vigil)?;
            ledgers.wait_even(ledger, LOOK);
        }
        // A record that failed is done with, too.
        self.go_on()?;
        self.line.acknowledged(self.subtask, self.turn, || self.go_on())?;
        let records = ledgers.take_undelivered(ledger);
        if records > 0 {
            let reason = ledgers.first_undelivered().map(|first| first.code.to_string()).unwrap_or_default();
            RecordsUndelivered { sink: self.name, records, reason }.emit();
        }
        Ok(())
    }

    /// Looks for what keeps the brokers from acknowledging.
    fn look(&self, vigil: &mut Vigil) -> Result<(), ConnectorError> {
        let whose = (self.subtask, self.turn);
        self.line.look(&self.name, &self.destination.topic, whose, self.has_begun, vigil)
    }

    fn go_on(&self) -> Result<(), ConnectorError> {
        self.line.check(&self.name)?;
        if self.line.ledgers().is_closed() {
            return Err(failure::over(&self.name));
        }
        Ok(())
    }
}

impl KafkaSinkWriter {
    /// `subtask`: among all that share the line.
    pub fn new(name: &Name, subtask: usize, line: &Arc<Line>, destination: Destination) -> KafkaSinkWriter {
        let sending = Sending {
            name: name.clone(),
            subtask,
            line: Arc::clone(line),
            turn: Turn(0),
            destination,
            backlog: Backlog::default(),
            has_begun: false,
            sent_turns: Arc::default(),
        };
        KafkaSinkWriter { sending, failed: None }
    }

    fn raise(&mut self) -> Result<(), ConnectorError> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl SinkWriter for KafkaSinkWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.raise()?;
        self.sending.send(Some(batch))
    }

    fn busy_for(&mut self) -> Duration {
        if self.failed.is_none() && !self.sending.backlog.is_empty() {
            self.failed = self.sending.send(None).err();
        }
        let sending = &self.sending;
        // A failure is told by the next write, which therefore must come.
        let has_failed = self.failed.is_some() || sending.line.ledgers().failure().is_some();
        if has_failed || (sending.backlog.is_empty() && sending.may_send()) { Duration::ZERO } else { ASK_AGAIN }
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare, ConnectorError> {
        self.raise()?;
        let sending = &mut self.sending;
        sending.line.check(&sending.name)?;
        let has_rest = !sending.backlog.is_empty();
        // Before anything of the turn is sent the ledger is that of a turn before.
        let owes = has_rest || (sending.has_begun && !sending.line.ledgers().is_even(sending.ledger()));
        sending.line.cut(sending.subtask, epoch, sending.turn, owes);
        if !has_rest && sending.is_next() {
            sending.sent_turns.sent(sending.turn);
        }
        let over = Sending {
            name: sending.name.clone(),
            subtask: sending.subtask,
            line: Arc::clone(&sending.line),
            turn: sending.turn,
            destination: sending.destination.clone(),
            backlog: mem::take(&mut sending.backlog),
            has_begun: mem::replace(&mut sending.has_begun, false),
            sent_turns: Arc::clone(&sending.sent_turns),
        };
        let owed = Owed::new(&sending.sent_turns, sending.turn);
        sending.turn = sending.turn.next();
        Ok(Box::new(move || {
            crash::point("kafka.flush.before");
            owed.done_by(|| over.finish())?;
            crash::point("kafka.flush.after");
            Ok(Vec::new())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::kafka::{Cluster, Listener};
    use crate::connector::kafka_sink::client::{self, Purpose};
    use crate::connector::kafka_sink::delivery::{Deliveries, Ledgers};
    use crate::connector::kafka_sink::line::Direct;
    use crate::connector::kafka_sink::options::Partition;
    use crate::element::Row;

    /// Of a sink that reaches no broker.
    fn writer() -> KafkaSinkWriter {
        let name = Name::new("out").expect("a name");
        let cluster =
            Cluster { brokers: "127.0.0.1:1".to_owned(), properties: Default::default(), properties_file: None };
        let config = client::config(&cluster, &name, Purpose::Idempotent, 4 << 20).expect("a configuration");
        let ledgers = Arc::new(Ledgers::new(1, false));
        let deliveries = Deliveries { ledgers: Arc::clone(&ledgers), listener: Listener::new(&name) };
        let producer = client::open(&config, deliveries, &name).expect("it connects later");
        let line = Line::Direct(Box::new(Direct {
            name: name.clone(),
            brokers: cluster.brokers,
            producer,
            ledgers,
            same_topics: None,
        }));
        let destination = Destination { topic: "out".to_owned(), partition: Partition::Key, partitions: 1, next: 0 };
        KafkaSinkWriter::new(&name, 0, &Arc::new(line), destination)
    }

    #[test]
    fn epochs_without_records_are_prepared_at_once_in_whatever_order() {
        let mut writer = writer();
        let prepares = (1..=4).map(|epoch| writer.prepare(Epoch(epoch)).expect("a cut")).collect::<Vec<_>>();
        for prepare in prepares.into_iter().rev() {
            assert_eq!(prepare().expect("nothing to wait for"), Vec::<u8>::new());
        }
        assert_eq!(writer.busy_for(), Duration::ZERO);
    }

    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.push(Row { key: None, value: Some(b"v"), timestamp: 0 });
        batch
    }

    /// Each of these would wait for minutes otherwise: no broker will ever acknowledge anything.
    #[test]
    fn an_epoch_behind_one_that_is_given_up_is_given_up_as_well() {
        let mut writer = writer();
        let first = writer.prepare(Epoch(1)).expect("a cut");
        // As when the first turn still has records that don't fit.
        writer.sending.backlog.push(&batch());
        writer.sending.turn = Turn(2);
        let third = writer.prepare(Epoch(3)).expect("a cut");
        let fourth = writer.prepare(Epoch(4)).expect("a cut");
        first().expect("nothing to wait for");
        drop(third);
        let error = fourth().expect_err("the third is never sent");
        assert!(error.to_string().contains("an epoch before this one was given up"), "{error}");
    }

    #[test]
    fn what_waits_for_brokers_ends_with_the_attempt() {
        let mut writer = writer();
        writer.write(&batch()).expect("librdkafka takes it");
        let prepare = writer.prepare(Epoch(1)).expect("a cut");
        let ledgers = Arc::clone(writer.sending.line.ledgers());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(prepare);
            ledgers.close();
            let error = waiting.join().expect("no panic").expect_err("nobody has acknowledged it");
            assert!(error.to_string().contains("the attempt is over"), "{error}");
        });
    }
}
