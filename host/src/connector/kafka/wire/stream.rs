//! A TCP connection, with or without TLS, on which nothing takes longer than it may.
//!
//! Invariant: every read and write ends by the deadline, however slowly the other side drips.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use openssl::ssl::SslStream;

use super::Address;

/// How long each address of a name may take to accept.
const CONNECT_MAX: Duration = Duration::from_secs(5);

pub(super) enum Stream {
    Plain(Timed),
    Tls(SslStream<Timed>),
}

impl Stream {
    /// From now on everything ends within `limit`.
    pub fn limit(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        match self {
            Stream::Plain(timed) => timed.until = until,
            Stream::Tls(tls) => tls.get_mut().until = until,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(timed) => timed.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(timed) => timed.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(timed) => timed.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// A socket with a deadline, below TLS, so that the handshake has one too.
#[derive(Debug)]
pub(super) struct Timed {
    tcp: TcpStream,
    until: Instant,
}

impl Timed {
    /// Connects to the first address of the broker that accepts.
    ///
    /// # Errors
    /// That of the last address.
    pub fn connect(broker: &Address, limit: Duration) -> io::Result<Timed> {
        let until = Instant::now() + limit;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (broker.host.as_str(), broker.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(until)?.min(CONNECT_MAX)) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(Timed { tcp, until });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The time that is left, more than none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket says that its time is over by another name than we do.
fn over(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(left(self.until)?))?;
        self.tcp.read(buffer).map_err(over)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(left(self.until)?))?;
        self.tcp.write(bytes).map_err(over)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}
