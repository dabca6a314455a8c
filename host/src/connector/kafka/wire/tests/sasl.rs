//! Logging in, with a broker that follows a script.

use super::super::connection::Connection;
use super::super::{Login, Mechanism, Secret, Security, WireError};
use super::script::{Answer, broker, settings, versions};

fn login(mechanism: Mechanism) -> Security {
    let login = Login { mechanism, user: "ann".to_owned(), password: Secret::new("hidden") };
    Security { tls: None, login: Some(login) }
}

fn log_in(mechanism: Mechanism, answers: Vec<Answer>) -> (Result<(), WireError>, Vec<Vec<u8>>) {
    let (address, broker) = broker([versions(&[(36, 0, 2)])].into_iter().chain(answers).collect());
    let outcome = Connection::open(&address, &settings(&address, login(mechanism))).map(|_| ());
    (outcome, broker.join().expect("a broker"))
}

fn hands() -> Answer {
    Answer::Body([&[0, 0, 0, 0, 0, 1, 0, 5][..], b"PLAIN"].concat())
}

/// Tags of the header, the code, no words, bytes, session lifetime, tags.
fn authenticated(code: i16, bytes: &[u8]) -> Answer {
    let length = [bytes.len() as u8 + 1];
    Answer::Body([&[0][..], &code.to_be_bytes(), &[0], &length, bytes, &[0; 8], &[0]].concat())
}

#[test]
fn plain_sends_user_and_password_once() {
    let (outcome, requests) = log_in(Mechanism::Plain, vec![hands(), authenticated(0, b"")]);
    outcome.expect("let in");
    let [_, handshake, authenticate] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(*handshake, [&[0, 17, 0, 1, 0, 0, 0, 2, 0, 2, b'm', b'e', 0, 5][..], b"PLAIN"].concat());
    assert_eq!(authenticate[13..], [&[12][..], b"\0ann\0hidden", &[0]].concat());
}

#[test]
fn a_refusal_names_user_and_mechanism_and_not_the_password() {
    let (outcome, _) = log_in(Mechanism::Plain, vec![hands(), authenticated(58, b"")]);
    let said = outcome.expect_err("refused").to_string();
    assert!(said.contains("'ann'") && said.contains("PLAIN") && !said.contains("hidden"), "{said}");
    let offers = Answer::Body([&[0, 33, 0, 0, 0, 1, 0, 5][..], b"PLAIN"].concat());
    let (outcome, requests) = log_in(Mechanism::ScramSha256, vec![offers]);
    let said = outcome.expect_err("refused").to_string();
    assert!(said.contains("SCRAM-SHA-256") && said.contains("it offers PLAIN"), "{said}");
    assert_eq!(requests.len(), 2, "nothing is sent after that");
}

#[test]
fn a_listener_without_logins_is_told_as_one() {
    let (outcome, _) = log_in(Mechanism::Plain, vec![Answer::Body(vec![0, 34, 0, 0, 0, 0])]);
    let error = outcome.expect_err("refused");
    assert!(error.is_of_protocol() && error.help().contains("security.protocol"), "{error}");
}

#[test]
fn scram_shows_the_password_to_nobody_and_believes_nobody_without_proof() {
    let (outcome, requests) = log_in(Mechanism::ScramSha256, vec![hands(), authenticated(0, b"r=other,s=AAAA,i=4096")]);
    assert!(outcome.expect_err("a lie").to_string().contains("nonce"));
    assert!(requests.iter().all(|request| !request.windows(6).any(|part| part == b"hidden")), "{requests:?}");
}

#[test]
fn a_handshake_that_is_cut_off_anywhere_is_an_error() {
    let whole = [&[0, 0, 0, 0, 0, 1, 0, 5][..], b"PLAIN"].concat();
    for length in 0..whole.len() {
        let (outcome, _) = log_in(Mechanism::Plain, vec![Answer::Body(whole[..length].to_vec())]);
        assert!(matches!(outcome, Err(WireError::Garbled { .. })), "{length}: {outcome:?}");
    }
    let (outcome, _) = log_in(Mechanism::Plain, vec![Answer::Body(vec![0, 0, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff])]);
    assert!(matches!(outcome, Err(WireError::Garbled { .. })), "{outcome:?}");
}
