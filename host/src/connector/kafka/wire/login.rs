//! Logging in to a broker by SASL.
//!
//! Invariant: a password leaves this process only by PLAIN, for which the user has asked.

use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::SaslAuthenticateRequest;
use openssl::base64::encode_block;
use openssl::hash::MessageDigest;

use super::WireError;
use super::connection::Connection;
use super::scram::Scram;
use super::security::{Login, Mechanism};

const HANDSHAKE: (i16, &str) = (17, "SaslHandshake");
/// The mechanisms that a broker offers, if it refuses ours.
const OFFERED_MAX: usize = 20;

/// # Errors
/// If the broker refuses the mechanism or the user, or can't prove who it is.
pub(super) fn log_in(connection: &mut Connection, login: &Login) -> Result<(), WireError> {
    shake_hands(connection, login)?;
    let digest = match login.mechanism {
        Mechanism::Plain => {
            // RFC 4616.
            let message = [&b"\0"[..], login.user.as_bytes(), b"\0", login.password.bytes()].concat();
            return authenticate(connection, login, message).map(|_| ());
        }
        Mechanism::ScramSha256 => MessageDigest::sha256(),
        Mechanism::ScramSha512 => MessageDigest::sha512(),
    };
    let mut random = [0; 24];
    openssl::rand::rand_bytes(&mut random).map_err(|error| refused(connection, login, error.to_string()))?;
    let scram = Scram::new(digest, &login.user, login.password.bytes(), &encode_block(&random));
    let server_first = authenticate(connection, login, scram.first().into_bytes())?;
    let (last, expected) = scram.last(&server_first).map_err(|problem| refused(connection, login, problem))?;
    let server_last = authenticate(connection, login, last.into_bytes())?;
    expected.check(&server_last).map_err(|problem| refused(connection, login, problem))
}

/// This request has no flexible version, so its answer is read by hand.
fn shake_hands(connection: &mut Connection, login: &Login) -> Result<(), WireError> {
    let name = login.mechanism.name();
    let length = i16::try_from(name.len()).expect("a short name");
    let body = [&length.to_be_bytes()[..], name.as_bytes()].concat();
    let mut answer = connection.exchange(HANDSHAKE, 1, 1, &body)?;
    let cut = |_| "it is cut off".to_owned();
    let read = |answer: &mut Bytes| -> Result<(i32, i16, Vec<String>), String> {
        let (id, code) = (answer.try_get_i32().map_err(cut)?, answer.try_get_i16().map_err(cut)?);
        let mut offered = Vec::new();
        for _ in 0..answer.try_get_i32().map_err(cut)?.clamp(0, OFFERED_MAX as i32) {
            let length = usize::try_from(answer.try_get_i16().map_err(cut)?).map_err(|_| "a name has no length")?;
            if length > answer.remaining() {
                return Err("it is cut off".to_owned());
            }
            offered.push(String::from_utf8_lossy(&answer.split_to(length)).into_owned());
        }
        Ok((id, code, offered))
    };
    let (id, code, offered) = read(&mut answer).map_err(|problem| connection.garbled(HANDSHAKE.1, problem))?;
    connection.expect_id(HANDSHAKE.1, id)?;
    match code.err() {
        None => Ok(()),
        // What a listener without logins says to it.
        Some(ResponseError::IllegalSaslState) => Err(WireError::NoLogin { broker: connection.broker().clone() }),
        Some(_) if !offered.is_empty() => Err(refused(connection, login, format!("it offers {}", offered.join(", ")))),
        Some(error) => Err(refused(connection, login, error.to_string())),
    }
}

/// Sends one message, and gives the broker's as text.
fn authenticate(connection: &mut Connection, login: &Login, message: Vec<u8>) -> Result<String, WireError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    let answer = connection.call(&request)?;
    if let Some(error) = answer.error_code.err() {
        let said = answer.error_message.map(|said| said.to_string()).filter(|said| !said.is_empty());
        return Err(refused(connection, login, said.unwrap_or_else(|| error.to_string())));
    }
    Ok(String::from_utf8_lossy(&answer.auth_bytes).into_owned())
}

fn refused(connection: &Connection, login: &Login, problem: String) -> WireError {
    let (broker, user, mechanism) = (connection.broker().clone(), login.user.clone(), login.mechanism.name());
    WireError::Login { broker, user, mechanism, problem }
}
