//! What the verbs say, and how they end.

use super::abort::verdict;
use super::report::{Aborted, AbortedId, Hanging, Listing, OpenTransaction, Outcome, age};
use crate::cli::Exit;
use crate::connector::kafka::wire::Transaction;

fn told(id: &str, state: &str) -> Transaction {
    Transaction {
        transactional_id: id.to_owned(),
        coordinator: 2,
        state: state.to_owned(),
        timeout_ms: 300_000,
        started_ms: Some(1_000_000),
        producer_id: 17,
        producer_epoch: 4,
        partitions: vec![("marker".to_owned(), vec![0]), ("out".to_owned(), vec![0, 3])],
    }
}

fn listing(transactions: Vec<OpenTransaction>, hanging: Option<Vec<Hanging>>) -> Listing {
    let (cluster, broker, prefix) = ("C1".to_owned(), "k:9092".to_owned(), "copy/".to_owned());
    Listing { cluster, broker, prefix, known: 2, transactions, hanging }
}

#[test]
fn a_list_shows_what_holds_readers_back_and_for_how_long() {
    let open =
        [("copy/0/A", "Ongoing", 1_192_000), ("copy/0/B", "PrepareCommit", 1_330_001), ("x", "Ongoing", 1_330_001)];
    let open = open.map(|(id, state, now)| OpenTransaction::new(told(id, state), now));
    let expected = "\
3 open transactions of 'copy/' on cluster C1 (k:9092); 2 ids are known
  copy/0/A  open for 3 min 12 s (timeout 5 min), producer 17 epoch 4, coordinator 2
    on marker/0, out/0, out/3
  copy/0/B  being committed, for 5 min 30 s (timeout 5 min), producer 17 epoch 4, coordinator 2
    on marker/0, out/0, out/3
  x  open for 5 min 30 s (timeout 5 min, overdue), producer 17 epoch 4, coordinator 2
    on marker/0, out/0, out/3
";
    assert_eq!(listing(open.into(), None).to_string(), expected);
}

#[test]
fn an_empty_list_says_so() {
    let expected = "\
no open transaction of 'copy/' on cluster C1 (k:9092); 2 ids are known
none hangs: each that is open on a partition is known to its coordinator
";
    assert_eq!(listing(Vec::new(), Some(Vec::new())).to_string(), expected);
}

#[test]
fn what_hangs_comes_with_the_command_that_ends_it() {
    let hung = Hanging { topic: "out".to_owned(), partition: 3, producer_id: 9, producer_epoch: 1, start_offset: 40 };
    let said = listing(Vec::new(), Some(vec![hung])).to_string();
    let command = "kafka-transactions.sh --bootstrap-server k:9092 abort --topic out --partition 3 --start-offset 40";
    assert!(said.contains(command), "{said}");
}

#[test]
fn a_list_as_json_has_the_same_facts() {
    let open = OpenTransaction::new(told("copy/0/A", "Ongoing"), 1_000_500);
    let json: serde_json::Value = serde_json::from_str(&listing(vec![open], None).json()).expect("JSON");
    let expected = serde_json::json!({
        "cluster": "C1", "broker": "k:9092", "prefix": "copy/", "known": 2,
        "transactions": [{
            "transactional_id": "copy/0/A", "state": "Ongoing", "open_ms": 500, "timeout_ms": 300_000, "producer_id": 17,
            "producer_epoch": 4, "coordinator": 2, "partitions": ["marker/0", "out/0", "out/3"],
        }],
    });
    assert_eq!(json, expected);
}

#[test]
fn ages_are_short() {
    let ages = [0, 999, 1_000, 59_999, 60_000, 61_000, 3_600_000, 90_061_000].map(age);
    assert_eq!(ages, ["0 ms", "999 ms", "1 s", "59 s", "1 min", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
}

fn aborted(outcomes: Vec<Outcome>) -> Aborted {
    let ids = outcomes.into_iter().map(|outcome| AbortedId { transactional_id: "a/0/A".to_owned(), outcome });
    Aborted { cluster: "C1".to_owned(), ids: ids.collect() }
}

#[test]
fn an_abort_says_what_it_did_to_each_id() {
    let all = aborted(vec![
        Outcome::Aborted { open_ms: Some(5_000), partitions: vec!["out/0".to_owned()] },
        Outcome::NothingOpen,
        Outcome::Ending { state: "PrepareCommit".to_owned() },
        Outcome::Unknown,
        Outcome::Failed { problem: "no".to_owned(), help: "ask".to_owned() },
    ]);
    let expected = "\
a/0/A: aborted after 5 s, on out/0; its producer is shut out
a/0/A: nothing is open; it was left alone
a/0/A: it is being committed already; it was left alone
a/0/A: cluster C1 knows no such id
a/0/A: not aborted: no
";
    assert_eq!(all.to_string(), expected);
    assert_eq!(aborted(Vec::new()).to_string(), "nothing is open on cluster C1; nothing was done\n");
}

#[test]
fn the_exit_code_says_whether_something_was_done() {
    let done = || Outcome::Aborted { open_ms: None, partitions: Vec::new() };
    let failed = || Outcome::Failed { problem: "no".to_owned(), help: "ask".to_owned() };
    let exit = |outcomes| verdict(&aborted(outcomes)).err().map(|error| error.exit());
    assert_eq!(exit(vec![]), None);
    assert_eq!(exit(vec![done(), Outcome::NothingOpen]), None);
    assert_eq!(exit(vec![done(), Outcome::Unknown]), Some(Exit::Failed));
    assert_eq!(exit(vec![Outcome::Unknown]), Some(Exit::Unusable));
    assert_eq!(exit(vec![Outcome::Unknown, failed()]), Some(Exit::Failed));
}
