//! The verifier's process: a request as a line of JSON, maybe with bytes after it, and an answer alike.
//!
//! Invariant: one answer for each request, in order; the process ends with this.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::prepare::python;
use crate::binary::repository;

pub(super) struct Pipe {
    process: Child,
    answers: BufReader<ChildStdout>,
    messages: File,
}

impl Pipe {
    /// A verifier of the cluster at `host:port`, to which it connects at each request.
    pub fn open(address: &str) -> Pipe {
        let messages = tempfile::tempfile().expect("a temporary file");
        let mut command = Command::new(python());
        // It writes no compiled code beside its source.
        command.arg("-B").arg(repository().join("tests/kafka/client.py")).arg(address);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(messages.try_clone().expect("a second handle"));
        let mut process = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        Pipe { process, answers, messages }
    }

    /// What the verifier says, and the bytes that came with it; or its error.
    ///
    /// # Panics
    /// If it dies.
    pub fn ask(&mut self, mut request: Value, data: &[u8]) -> Result<(Value, Vec<u8>), String> {
        request["bytes"] = json!(data.len());
        self.exchange(&request, data).unwrap_or_else(|error| {
            panic!("the verifier died at {request}: {error}; its messages:\n{}", self.messages());
        })
    }

    fn exchange(&mut self, request: &Value, data: &[u8]) -> std::io::Result<Result<(Value, Vec<u8>), String>> {
        let input = self.process.stdin.as_mut().expect("it is piped");
        writeln!(input, "{request}")?;
        input.write_all(data)?;
        input.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let mut answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer["error"].as_str() {
            return Ok(Err(error.to_owned()));
        }
        let length = answer["bytes"].as_u64().expect("each answer says how many bytes follow");
        let mut bytes = vec![0; usize::try_from(length).expect("it fits into memory")];
        self.answers.read_exact(&mut bytes)?;
        Ok(Ok((answer["ok"].take(), bytes)))
    }

    fn messages(&mut self) -> String {
        let mut text = String::new();
        // The messages only explain; without them, the panic still says what happened.
        let _ = self.messages.seek(SeekFrom::Start(0)).and_then(|_| self.messages.read_to_string(&mut text));
        text
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
