//! Stands between clients and a broker, and lets a chosen request come to nothing: it is held up, lost, or never answered.
//!
//! The broker tells its clients its own address (in its answers to `Metadata` and `FindCoordinator`: the host, then its port);
//! the proxy puts its own port in place of that one, so that clients stay with the proxy.
//!
//! Invariant: what isn't armed passes unchanged but for the port, in the order in which it came.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::patience::PATIENCE;

/// The request that commits or aborts a transaction (`EndTxn`).
pub const END_TXN: i16 = 26;

/// Answers with addresses are small; larger ones are records.
const ADDRESSES_MAX_BYTES: usize = 64 * 1024;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits in the proxy until [`Proxy::release`].
    Held,
    /// It never reaches the broker. If `cut`, the connection is closed, otherwise it falls silent.
    Lost { cut: bool },
    /// It reaches the broker, which answers; the answer is lost.
    Unanswered { cut: bool },
}

/// Listens on a port of its own for as long as it lives.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    broker: String,
    /// Host and port as in an answer, and the same with the proxy's port.
    theirs: Vec<u8>,
    ours: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    armed: Option<(i16, u32, Fate)>,
    /// How many requests have met their fate.
    met: u32,
    released: bool,
}

impl Proxy {
    /// A proxy in front of `broker` (`host:port`).
    ///
    /// # Panics
    /// If the address can't be read, or no port is free.
    pub fn start(broker: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (host, port) = broker.rsplit_once(':').expect("host:port");
        let port: u16 = port.parse().expect("a port");
        let with_port = |port: u16| [host.as_bytes(), &i32::from(port).to_be_bytes()].concat();
        let shared = Arc::new(Shared {
            broker: broker.to_owned(),
            theirs: with_port(port),
            ours: with_port(address.port()),
            state: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Proxy { address, shared }
    }

    /// What clients are to be given as their broker; the same host as the broker's own, so that answers keep their length.
    pub fn address(&self) -> String {
        let (host, _) = self.shared.broker.rsplit_once(':').expect("host:port");
        format!("{host}:{}", self.address.port())
    }

    /// The `nth` request of a kind from now on (1 is the next one) meets this fate.
    pub fn arm(&self, api_key: i16, nth: u32, fate: Fate) {
        *self.shared.state() = State { armed: Some((api_key, nth, fate)), ..State::default() };
    }

    /// Whether the armed request has met its fate: is held, was lost, or was answered in vain.
    pub fn has_met(&self) -> bool {
        self.shared.state().met > 0
    }

    /// Lets a held request go on to the broker, whoever sent it.
    pub fn release(&self) {
        self.shared.state().released = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.release();
        // Wakes the thread that accepts; if it has ended, there is nobody to wake.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The fate of a request, if it is the armed one.
    fn fate_of(&self, api_key: i16) -> Option<Fate> {
        let mut state = self.state();
        let (armed, nth, fate) = state.armed.as_mut().filter(|(armed, _, _)| *armed == api_key)?;
        debug_assert_eq!(*armed, api_key);
        *nth -= 1;
        let fate = *fate;
        if *nth > 0 {
            return None;
        }
        state.armed = None;
        Some(fate)
    }

    fn meet(&self) {
        self.state().met += 1;
    }

    fn wait_for_release(&self) {
        let released = self.changed.wait_timeout_while(self.state(), PATIENCE, |state| !state.released);
        drop(released);
    }
}

/// One client with its connection to the broker.
struct Pair {
    client: TcpStream,
    broker: TcpStream,
    /// Answers that are still to come before one that is to be lost, for each of those.
    unanswered: Mutex<VecDeque<(i32, bool)>>,
    silent: AtomicBool,
}

impl Pair {
    fn close(&self) {
        // Either may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.broker.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        // A broker that is down refuses; so does the proxy.
        let Ok(broker) = TcpStream::connect(&shared.broker) else { continue };
        let _ = client.set_nodelay(true).and(broker.set_nodelay(true));
        let pair = Pair { client, broker, unanswered: Mutex::default(), silent: AtomicBool::new(false) };
        let (requests, answers) = (Arc::new(pair), Arc::clone(shared));
        let pair = Arc::clone(&requests);
        thread::spawn(move || {
            // An error here is a connection that has ended, which is all there is to pass on.
            let _ = pass_answers(&pair, &answers);
            if !pair.silent.load(Ordering::SeqCst) {
                pair.close();
            }
        });
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = pass_requests(&requests, &shared);
            requests.close();
        });
    }
}

/// A frame with its length in front, as all requests and answers have.
fn read_frame(from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut from = from;
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let size = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
    let mut frame = vec![0; 4 + size];
    frame[..4].copy_from_slice(&length);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}

fn pass_requests(pair: &Pair, shared: &Shared) -> io::Result<()> {
    loop {
        let frame = read_frame(&pair.client)?;
        // Length, then the kind of the request, its version, and the number that the answer repeats.
        let header = frame.get(4..12).ok_or_else(|| io::Error::other("a request is longer"))?;
        let api_key = i16::from_be_bytes([header[0], header[1]]);
        let number = i32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        match shared.fate_of(api_key) {
            None => {}
            Some(Fate::Held) => {
                shared.meet();
                shared.wait_for_release();
            }
            Some(Fate::Lost { cut }) => {
                shared.meet();
                if cut {
                    return Ok(());
                }
                continue;
            }
            Some(Fate::Unanswered { cut }) => {
                pair.unanswered.lock().expect("no thread panics with it").push_back((number, cut));
            }
        }
        (&pair.broker).write_all(&frame)?;
    }
}

fn pass_answers(pair: &Pair, shared: &Shared) -> io::Result<()> {
    loop {
        let mut frame = read_frame(&pair.broker)?;
        let number = frame.get(4..8).map(|bytes| i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let lost = {
            let mut unanswered = pair.unanswered.lock().expect("no thread panics with it");
            unanswered.pop_front_if(|(lost, _)| Some(*lost) == number)
        };
        if let Some((_, cut)) = lost {
            shared.meet();
            if cut {
                return Ok(());
            }
            // Nothing on this connection is answered any more; requests go on.
            pair.silent.store(true, Ordering::SeqCst);
            continue;
        }
        if pair.silent.load(Ordering::SeqCst) {
            continue;
        }
        if frame.len() <= ADDRESSES_MAX_BYTES {
            put_port(&mut frame, &shared.theirs, &shared.ours);
        }
        (&pair.client).write_all(&frame)?;
    }
}

fn put_port(frame: &mut [u8], theirs: &[u8], ours: &[u8]) {
    let places = (0..frame.len().saturating_sub(theirs.len() - 1)).filter(|&at| frame[at..].starts_with(theirs));
    for at in places.collect::<Vec<_>>() {
        frame[at..at + ours.len()].copy_from_slice(ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of a kind with a number, and the answer to that number.
    fn request(api_key: i16, number: i32) -> Vec<u8> {
        [&8i32.to_be_bytes()[..], &api_key.to_be_bytes(), &[0, 0], &number.to_be_bytes()].concat()
    }

    /// A broker that answers each request with its number and, as an address, its own.
    fn broker() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                thread::spawn(move || {
                    while let Ok(frame) = read_frame(&client) {
                        let body = [&frame[8..12], b"127.0.0.1", &i32::from(address.port()).to_be_bytes()[..]].concat();
                        let length = i32::try_from(body.len()).expect("short").to_be_bytes();
                        (&client).write_all(&[&length[..], &body].concat()).expect("the proxy reads");
                    }
                });
            }
        });
        address.to_string()
    }

    fn ask(proxy: &Proxy, requests: &[Vec<u8>]) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).expect("the proxy listens");
        (&stream).write_all(&requests.concat()).expect("the proxy reads");
        stream
    }

    fn answer(number: i32, port: u16) -> Vec<u8> {
        let body = [&number.to_be_bytes()[..], b"127.0.0.1", &i32::from(port).to_be_bytes()].concat();
        [&i32::try_from(body.len()).expect("short").to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn what_is_not_armed_passes_with_the_proxys_port_for_the_brokers() {
        let proxy = Proxy::start(&broker());
        let stream = ask(&proxy, &[request(3, 1), request(END_TXN, 2)]);
        assert_eq!(read_frame(&stream).expect("an answer"), answer(1, proxy.address.port()));
        assert_eq!(read_frame(&stream).expect("an answer"), answer(2, proxy.address.port()));
        assert!(!proxy.has_met());
    }

    #[test]
    fn the_nth_request_of_a_kind_meets_its_fate_and_no_other_one() {
        for fate in [Fate::Lost { cut: true }, Fate::Unanswered { cut: true }] {
            let proxy = Proxy::start(&broker());
            proxy.arm(END_TXN, 2, fate);
            let stream = ask(&proxy, &[request(END_TXN, 1)]);
            assert_eq!(read_frame(&stream).expect("an answer"), answer(1, proxy.address.port()));
            (&stream).write_all(&[request(3, 2), request(END_TXN, 3)].concat()).expect("the proxy reads");
            let after = std::iter::from_fn(|| read_frame(&stream).ok()).collect::<Vec<_>>();
            assert!(after.len() <= 1, "{fate:?}: the armed request isn't answered: {after:?}");
            assert!(proxy.has_met());
        }
    }

    #[test]
    fn a_held_request_goes_on_when_it_is_released() {
        let proxy = Proxy::start(&broker());
        proxy.arm(END_TXN, 1, Fate::Held);
        let stream = ask(&proxy, &[request(END_TXN, 7)]);
        crate::wait_until("the request is held", || proxy.has_met());
        proxy.release();
        assert_eq!(read_frame(&stream).expect("an answer"), answer(7, proxy.address.port()));
    }

    #[test]
    fn a_silent_connection_stays_open_and_answers_nothing() {
        let proxy = Proxy::start(&broker());
        proxy.arm(END_TXN, 1, Fate::Unanswered { cut: false });
        let stream = ask(&proxy, &[request(END_TXN, 1), request(3, 2)]);
        crate::wait_until("the answer is lost", || proxy.has_met());
        stream.set_nonblocking(true).expect("a socket");
        let nothing = (&stream).read(&mut [0; 1]).expect_err("no answer");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
