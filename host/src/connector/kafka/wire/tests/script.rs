//! A broker that gives prepared answers.
//!
//! Invariant: it ends with the test, which is told of all that was sent to it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::super::{Address, Security, Settings};

/// What to do after a request.
#[derive(Clone)]
pub enum Answer {
    /// The header with the request's number, then these bytes.
    Body(Vec<u8>),
    /// These bytes and nothing else, not even a length.
    Raw(Vec<u8>),
    /// Nothing, until the other side goes away.
    Silence,
}

/// Serves one connection, an answer for each request; then closes it. The handle gives the requests without their lengths.
pub fn broker(answers: Vec<Answer>) -> (Address, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let handle = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        serve(stream, answers)
    });
    (Address { host: "127.0.0.1".to_owned(), port }, handle)
}

/// As [`broker`], on a stream of any kind.
pub fn serve(mut stream: impl Read + Write, answers: Vec<Answer>) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for answer in answers {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            break;
        }
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).expect("a whole request");
        let number = request[4..8].to_vec();
        requests.push(request);
        let bytes = match answer {
            Answer::Body(body) => {
                let message = [number, body].concat();
                [&(message.len() as u32).to_be_bytes()[..], &message].concat()
            }
            Answer::Raw(bytes) => bytes,
            Answer::Silence => {
                let _ = stream.read(&mut [0]);
                break;
            }
        };
        // The client may have gone, as after a lie.
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
    }
    requests
}

/// An answer to ApiVersions: each request by its number, with its first and last version.
pub fn versions(known: &[(i16, i16, i16)]) -> Answer {
    let mut body = vec![0, 0, known.len() as u8 + 1];
    for (key, first, last) in known {
        body.extend([key.to_be_bytes(), first.to_be_bytes(), last.to_be_bytes()].concat());
        body.push(0);
    }
    body.extend([0, 0, 0, 0, 0]);
    Answer::Body(body)
}

pub fn settings(broker: &Address, security: Security) -> Settings {
    Settings { brokers: vec![broker.clone()], client_id: "me".to_owned(), security }
}
