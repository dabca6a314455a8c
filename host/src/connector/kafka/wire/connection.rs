//! A connection to one broker: made, logged in, and asked one thing after another.
//!
//! Invariant: after an error the connection isn't used again, since nobody knows whose answer would come next.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use kafka_protocol::{ResponseError, error::ParseResponseErrorCode};

use super::call::Call;
use super::guarded::Guarded;
use super::stream::{Stream, Timed};
use super::{Address, Settings, WireError, frame, login, protocol, tls};

/// From the first byte of a request to the last of its answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);

pub(super) struct Connection {
    broker: Address,
    client_id: StrBytes,
    stream: Stream,
    /// What the broker speaks: first and last version by the number of the request.
    versions: BTreeMap<i16, (i16, i16)>,
    last_id: i32,
    limit: Duration,
}

impl Connection {
    /// # Errors
    /// If the broker can't be reached, isn't trusted, or doesn't let us in.
    pub fn open(broker: &Address, settings: &Settings) -> Result<Connection, WireError> {
        Connection::open_within(broker, settings, ANSWER_MAX)
    }

    /// As [`open`](Self::open), with this limit for each step.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_within(broker: &Address, settings: &Settings, limit: Duration) -> Result<Connection, WireError> {
        let greeted = Connection::greet(broker, settings, limit);
        let mut connection = greeted.map_err(|error| protocol::explained(error, broker, settings, limit))?;
        if let Some(as_whom) = &settings.security.login {
            login::log_in(&mut connection, as_whom)?;
        }
        Ok(connection)
    }

    /// Makes a connection that isn't logged in yet.
    ///
    /// # Errors
    /// If the broker can't be reached, isn't trusted, or doesn't answer.
    pub(super) fn greet(broker: &Address, settings: &Settings, limit: Duration) -> Result<Connection, WireError> {
        let timed = Timed::connect(broker, limit)
            .map_err(|source| WireError::Unreachable { broker: broker.clone(), source })?;
        let stream = match &settings.security.tls {
            None => Stream::Plain(timed),
            Some(files) => Stream::Tls(tls::wrap(broker, files, timed)?),
        };
        let client_id = StrBytes::from_string(settings.client_id.clone());
        let versions = BTreeMap::new();
        let mut connection = Connection { broker: broker.clone(), client_id, stream, versions, last_id: 0, limit };
        connection.learn_versions()?;
        Ok(connection)
    }

    pub fn broker(&self) -> &Address {
        &self.broker
    }

    pub fn knows<C: Call>(&self) -> bool {
        self.version_of::<C>().is_some()
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If there is none in time, or none that can be read.
    pub fn call<C: Call>(&mut self, request: &C) -> Result<C::Answer, WireError> {
        let too_old = || WireError::TooOld { broker: self.broker.clone(), request: C::NAME, since: C::SINCE };
        let version = self.version_of::<C>().ok_or_else(too_old)?;
        self.call_in::<C>(request, version)
    }

    /// The newest that both speak.
    fn version_of<C: Call>(&self) -> Option<i16> {
        let (first, last) = self.versions.get(&(C::KEY as i16))?;
        let version = C::VERSIONS.1.min(*last);
        (version >= C::VERSIONS.0.max(*first)).then_some(version)
    }

    fn call_in<C: Call>(&mut self, request: &C, version: i16) -> Result<C::Answer, WireError> {
        let answer = self.send::<C>(request, version)?;
        self.read::<C>(answer, version)
    }

    fn send<C: Call>(&mut self, request: &C, version: i16) -> Result<Bytes, WireError> {
        let mut body = BytesMut::new();
        let encoded = request.encode(&mut body, version);
        encoded.map_err(|error| self.garbled(C::NAME, format!("the request can't be written: {error}")))?;
        self.exchange((C::KEY as i16, C::NAME), version, C::header_version(version), &body)
    }

    fn read<C: Call>(&self, answer: Bytes, version: i16) -> Result<C::Answer, WireError> {
        let mut answer = Guarded::new(answer);
        let header = ResponseHeader::decode(&mut answer, C::Answer::header_version(version));
        let header = header.map_err(|error| self.garbled(C::NAME, error.to_string()))?;
        self.expect_id(C::NAME, header.correlation_id)?;
        C::Answer::decode(&mut answer, version).map_err(|error| self.garbled(C::NAME, error.to_string()))
    }

    /// Sends one message with its header, and gives the bytes that come back, header included.
    pub(super) fn exchange(
        &mut self,
        (key, name): (i16, &'static str),
        version: i16,
        header_version: i16,
        body: &[u8],
    ) -> Result<Bytes, WireError> {
        self.last_id = self.last_id.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.last_id)
            .with_client_id(Some(self.client_id.clone()));
        let mut message = BytesMut::new();
        let encoded = header.encode(&mut message, header_version);
        encoded.map_err(|error| self.garbled(name, format!("the request can't be written: {error}")))?;
        message.extend_from_slice(body);
        self.stream.limit(self.limit);
        let answer = frame::write(&mut self.stream, &message).and_then(|()| frame::read(&mut self.stream));
        answer.map_err(|source| self.broken(name, source))
    }

    pub(super) fn expect_id(&self, name: &'static str, id: i32) -> Result<(), WireError> {
        match id == self.last_id {
            true => Ok(()),
            false => Err(self.garbled(name, format!("it answers request {id}, and the request was {}", self.last_id))),
        }
    }

    fn learn_versions(&mut self) -> Result<(), WireError> {
        let software = StrBytes::from_static_str(env!("CARGO_PKG_VERSION"));
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("lockgate"))
            .with_client_software_version(software);
        let version = ApiVersionsRequest::VERSIONS.1;
        let answer = self.send::<ApiVersionsRequest>(&request, version)?;
        // A broker that is too old says so in its oldest version, which can't be read as this one. The code is after the number.
        if answer.get(4..6) == Some(&ResponseError::UnsupportedVersion.code().to_be_bytes()) {
            let (request, since) = (ApiVersionsRequest::NAME, ApiVersionsRequest::SINCE);
            return Err(WireError::TooOld { broker: self.broker.clone(), request, since });
        }
        let answer = self.read::<ApiVersionsRequest>(answer, version)?;
        self.refuse::<ApiVersionsRequest>("this connection", answer.error_code)?;
        self.versions = answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(())
    }

    /// Makes an error of an error code.
    pub fn refuse<C: Call>(&self, what: &str, code: i16) -> Result<(), WireError> {
        let refused =
            |error| WireError::Refused { broker: self.broker.clone(), request: C::NAME, what: what.to_owned(), error };
        code.err().map_or(Ok(()), |error| Err(refused(error)))
    }

    /// An answer without what was asked for.
    pub fn says_nothing<C: Call>(&self, of: &str) -> WireError {
        self.garbled(C::NAME, format!("it says nothing of '{of}'"))
    }

    pub(super) fn garbled(&self, request: &'static str, problem: String) -> WireError {
        WireError::Garbled { broker: self.broker.clone(), request, problem }
    }

    fn broken(&self, request: &'static str, source: io::Error) -> WireError {
        let broker = self.broker.clone();
        match source.kind() {
            io::ErrorKind::TimedOut => WireError::TooSlow { broker, request, limit: self.limit },
            io::ErrorKind::InvalidData => WireError::Garbled { broker, request, problem: source.to_string() },
            _ => WireError::Broken { broker, request, source },
        }
    }
}
