//! The transactions of an exactly-once job: whether brokers let them live as long as they must.

use std::time::Duration;

use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::wanted::{WantedSink, WantedTransaction};
use crate::units::duration::format as text_of;

/// `sink`: one of those that share the transaction; they agree on all of it.
pub(in super::super) fn transaction(sink: &WantedSink, of: &WantedTransaction, facts: &Facts) -> Vec<Finding> {
    let about = sink.about();
    let key = format!("transaction_timeout of [sink.{}]", sink.name);
    let mut said = limit(&about, &key, of.timeout, facts);
    for (id, allowed) in &facts.ids {
        if let (true, Err(error)) = (of.ids.contains(id), allowed) {
            let prefix = id.split('/').next().unwrap_or(id);
            let text = format!("this user can't use the transactional id '{id}': {error}");
            let help = format!(
                "kafka-acls.sh --add --transactional-id {prefix}/ --resource-pattern-type prefixed --operation Write \
                 --operation Describe --allow-principal User:…"
            );
            said.push(Finding::error(&about, text, help));
        }
    }
    said
}

/// The brokers' own limit.
fn limit(about: &str, key: &str, timeout: Duration, facts: &Facts) -> Vec<Finding> {
    let limits = facts.brokers.iter().filter_map(|(node, read)| {
        let limit = read.as_ref().ok()?.number("transaction.max.timeout.ms")?;
        Some((Duration::from_millis(u64::try_from(limit).ok()?), *node))
    });
    let Some((limit, node)) = limits.min() else { return Vec::new() };
    let (shown, most) = (text_of(timeout), text_of(limit));
    if timeout > limit {
        let text = format!(
            "transaction_timeout is {shown}, and broker {node} allows at most {most} (transaction.max.timeout.ms)"
        );
        let help = format!("set {key} to {most} or less, or raise the setting of the brokers");
        return vec![Finding::error(about, text, help)];
    }
    vec![Finding::note(about, format!("transactions of at most {shown}; the brokers allow {most}"))]
}
