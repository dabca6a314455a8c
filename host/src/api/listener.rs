//! Accepts connections, so many at once, and closes those whose client keeps it waiting.
//!
//! A connection waits for its client while it wants the head of a request and while the client doesn't take an answer. In between, the
//! daemon works, and what limits a body is known to its reader.
//!
//! Invariant: a client that sends a request byte by byte, or reads none of its answer, holds a connection no longer than
//! [`Patience`] says.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::api::limits::Patience;

/// How long to wait after the system couldn't accept a connection, as when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub struct BoundedListener {
    inner: TcpListener,
    places: Arc<Semaphore>,
    patience: Patience,
}

impl BoundedListener {
    pub fn new(inner: TcpListener, patience: Patience) -> BoundedListener {
        BoundedListener { inner, places: Arc::new(Semaphore::new(patience.connections_max)), patience }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
        loop {
            match self.inner.accept().await {
                Ok((stream, address)) => return (Connection::new(stream, place, self.patience), address),
                // The client has gone again, or the system is short of something; others are still to be served.
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// Whose turn it is on a connection. Requests carry it as their connection's info.
#[derive(Clone, Debug)]
pub struct Turn(Arc<Mutex<Whose>>);

#[derive(Clone, Copy, Debug)]
enum Whose {
    /// The client's, to send the head of a request until then.
    Client { until: Instant },
    /// The daemon's, to read the rest and to answer.
    Daemon,
}

impl Turn {
    fn new(within: Duration) -> Turn {
        Turn(Arc::new(Mutex::new(Whose::Client { until: Instant::now() + within })))
    }

    /// A head is in: the daemon's turn.
    pub fn begin(&self) {
        self.set(Whose::Daemon);
    }

    /// There is an answer: the client's turn again.
    pub fn end(&self, within: Duration) {
        self.set(Whose::Client { until: Instant::now() + within });
    }

    /// The client takes its answer, so what it sends next may come later.
    fn prolong(&self, within: Duration) {
        if let Whose::Client { until } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            *until = Instant::now() + within;
        }
    }

    fn set(&self, whose: Whose) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = whose;
    }

    fn get(&self) -> Whose {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Turn {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Turn {
        stream.io().turn.clone()
    }
}

pub struct Connection {
    stream: TcpStream,
    turn: Turn,
    head_due: Pin<Box<Sleep>>,
    /// When a client that takes no bytes is given up; none while it takes some.
    write_due: Option<Pin<Box<Sleep>>>,
    patience: Patience,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit, patience: Patience) -> Connection {
        let head_due = Box::pin(tokio::time::sleep(patience.head));
        Connection { stream, turn: Turn::new(patience.head), head_due, write_due: None, patience, _place: place }
    }

    /// Ready when the client has kept a head waiting for too long.
    fn poll_head_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // While it has bytes to take, it can't be expected to send any.
        if self.write_due.is_some() {
            return Poll::Pending;
        }
        let Whose::Client { until } = self.turn.get() else { return Poll::Pending };
        if self.head_due.deadline() != until {
            self.head_due.as_mut().reset(until);
        }
        self.head_due.as_mut().poll(cx)
    }

    /// Hands on what a write came to; ends one that has been pending for too long.
    fn unless_stuck<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_due = None;
            self.turn.prolong(self.patience.head);
            return written;
        }
        let within = self.patience.write;
        let due = self.write_due.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(due.as_mut().poll(cx));
        Poll::Ready(Err(too_slow("the client doesn't take its answer")))
    }
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Asked first: a client that always has one more byte is slow as well.
        if self.poll_head_due(cx).is_ready() {
            return Poll::Ready(Err(too_slow("the client doesn't finish its request")));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stuck(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.unless_stuck(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_stuck(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::{ConnectInfo, Request};
    use axum::middleware::{Next, from_fn};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    fn patience() -> Patience {
        Patience { head: SHORT, write: SHORT, connections_max: 1, ..Patience::default() }
    }

    /// More than the buffers of both ends hold.
    const LARGE_BYTES: usize = 64 << 20;

    /// A server that answers with one byte, or with very many.
    async fn serve() -> SocketAddr {
        let inner = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = inner.local_addr().expect("bound");
        let turns = |ConnectInfo(turn): ConnectInfo<Turn>, request: Request, next: Next| async move {
            turn.begin();
            let answer = next.run(request).await;
            turn.end(SHORT);
            answer
        };
        let large = get(|| async { vec![b'x'; LARGE_BYTES] });
        let router = Router::new().route("/", get(|| async { "x" })).route("/large", large).layer(from_fn(turns));
        let service = router.into_make_service_with_connect_info::<Turn>();
        tokio::spawn(async move { axum::serve(BoundedListener::new(inner, patience()), service).await });
        address
    }

    /// All that comes until the other end closes, however it does.
    async fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        all
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_its_head_is_closed_and_the_next_one_is_served() {
        let address = serve().await;
        let mut slow = TcpStream::connect(address).await.expect("a connection");
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x").await.expect("sent");
        // There is one place, so this one is answered only when the slow one has lost it.
        let mut next = TcpStream::connect(address).await.expect("a connection");
        next.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
        let answer = read_to_close(&mut next).await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        assert!(!read_to_close(&mut slow).await.starts_with(b"HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn a_connection_that_stays_idle_behind_its_answer_is_closed() {
        let address = serve().await;
        let mut idle = TcpStream::connect(address).await.expect("a connection");
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        assert!(read_to_close(&mut idle).await.starts_with(b"HTTP/1.1 200"), "it is answered, and closed later");
    }

    #[tokio::test]
    async fn a_client_that_takes_no_answer_loses_its_connection() {
        let address = serve().await;
        let mut deaf = TcpStream::connect(address).await.expect("a connection");
        deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        let mut next = TcpStream::connect(address).await.expect("a connection");
        next.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
        let answer = read_to_close(&mut next).await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "the place of the deaf one is free again");
        assert!(read_to_close(&mut deaf).await.len() < LARGE_BYTES);
    }
}
