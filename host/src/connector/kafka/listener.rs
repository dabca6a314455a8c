//! What a client says by itself: log lines, errors that concern no request, statistics.
//!
//! Invariant: an error that goes on is logged once a minute, not each time; it is kept for those who find out what failed by it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::is_silence;
use crate::id::Name;

/// The same error is logged again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Listens to one client of a source or sink. It can be the client's context, or part of one.
pub struct Listener {
    name: Name,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    last_error: Option<(Code, String)>,
    logged: Option<(Code, Instant)>,
    statistics: Option<Vec<u8>>,
    losses: u64,
}

impl Listener {
    pub fn new(name: &Name) -> Listener {
        Listener { name: name.clone(), heard: Mutex::default() }
    }

    /// Why the client last couldn't do its work, in librdkafka's words. A cause is kept over its consequence, that no broker
    /// can be reached.
    pub fn last_error(&self) -> Option<(Code, String)> {
        self.heard().last_error.clone()
    }

    /// How often a broker was away or didn't answer, by now.
    pub fn losses(&self) -> u64 {
        self.heard().losses
    }

    /// What was heard before no longer counts: the client has got through.
    pub fn forget_error(&self) {
        let mut heard = self.heard();
        (heard.last_error, heard.logged) = (None, None);
    }

    /// The newest statistics that nobody has taken yet, as JSON. There are none unless `statistics.interval.ms` is set.
    pub fn take_statistics(&self) -> Option<Vec<u8>> {
        self.heard().statistics.take()
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an error, and tells whether it is to be logged.
    fn keep(&self, code: Code, reason: &str, now: Instant) -> bool {
        let mut heard = self.heard();
        heard.losses += u64::from(is_silence(code));
        if code != Code::AllBrokersDown || heard.last_error.is_none() {
            heard.last_error = Some((code, reason.to_owned()));
        }
        let is_old = |(known, logged): (Code, Instant)| known == code && now.duration_since(logged) < AGAIN_AFTER;
        let is_news = !heard.logged.is_some_and(is_old) && code != Code::AllBrokersDown;
        if is_news {
            heard.logged = Some((code, now));
        }
        is_news
    }
}

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let name = &self.name;
        match level {
            // What has ended a producer comes as the error of a call, with what to do about it.
            _ if matches!(facility, "FATAL" | "TXNERR") => {
                tracing::debug!(%name, facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(%name, facility, "librdkafka: {message}");
            }
            // Those of connections come as errors too, where they are told once.
            RDKafkaLogLevel::Error if matches!(facility, "FAIL" | "ERROR") => {
                tracing::debug!(%name, facility, "librdkafka: {message}");
            }
            // Settings of the other kind of client, in a file that both kinds share.
            RDKafkaLogLevel::Warning if facility == "CONFWARN" => {
                tracing::debug!(%name, facility, "librdkafka: {message}");
            }
            // It waits for the transaction of a process before it to be ended, and asks again by itself.
            RDKafkaLogLevel::Warning if facility == "GETPID" => {
                tracing::debug!(%name, facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
                tracing::warn!(%name, facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::debug!(%name, facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Debug => tracing::trace!(%name, facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        if code == Code::PartitionEOF {
            return;
        }
        let is_told_by_a_call = matches!(code, Code::InvalidTransactionTimeout);
        if self.keep(code, reason, Instant::now()) && !is_told_by_a_call {
            tracing::warn!(name = %self.name, "Kafka: {reason}");
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.heard().statistics = Some(statistics.to_owned());
    }
}

impl ConsumerContext for Listener {}

impl ProducerContext for Listener {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &rdkafka::producer::DeliveryResult<'_>, (): ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Listener {
        Listener::new(&Name::new("orders").expect("a name"))
    }

    #[test]
    fn an_error_that_goes_on_is_news_once_a_minute() {
        let (listener, start) = (listener(), Instant::now());
        let keep = |code, after_s| listener.keep(code, "words", start + Duration::from_secs(after_s));
        assert!(keep(Code::BrokerTransportFailure, 0));
        assert!(!keep(Code::BrokerTransportFailure, 59));
        assert!(!keep(Code::AllBrokersDown, 59));
        assert!(keep(Code::BrokerTransportFailure, 60));
        assert!(keep(Code::Authentication, 61));
        listener.forget_error();
        assert!(keep(Code::Authentication, 62));
    }

    #[test]
    fn each_time_that_brokers_are_away_counts_and_other_errors_do_not() {
        let listener = listener();
        for code in [Code::BrokerTransportFailure, Code::Authentication, Code::AllBrokersDown, Code::AllBrokersDown] {
            listener.error(KafkaError::Global(code), "words");
        }
        listener.forget_error();
        assert_eq!(listener.losses(), 3);
    }

    #[test]
    fn a_cause_is_kept_over_its_consequence() {
        let listener = listener();
        listener.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        listener.error(KafkaError::Global(Code::Authentication), "wrong password");
        listener.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(listener.last_error(), Some((Code::Authentication, "wrong password".to_owned())));
    }
}
