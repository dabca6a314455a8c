//! A Kafka broker of a test: one node, plain text, on the loopback interface, in a folder of its own.
//!
//! Invariant: the process and its folder are gone when the test, or the whole test program, has ended in whatever way.

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard};

use rustix::process::Signal;

use super::client::Client;
use super::process::Process;

pub struct Broker {
    address: String,
    /// `None`: it is another's.
    process: Option<Mutex<Process>>,
}

impl Broker {
    /// The broker that all tests of this program share: the one of `LOCKGATE_TEST_KAFKA` (`host:port`), else one that is started
    /// at the first call. For tests that neither stop it nor need special settings; names come from [`super::unique`].
    ///
    /// # Panics
    /// If it can't be started; ask [`super::kafka_missing`] first.
    pub fn shared() -> &'static Broker {
        static SHARED: LazyLock<Broker> = LazyLock::new(|| match std::env::var("LOCKGATE_TEST_KAFKA") {
            Ok(address) => Broker { address, process: None },
            Err(_) => Broker::start(),
        });
        &SHARED
    }

    /// A broker of this test's own, as of [`Broker::start_with`] without settings.
    ///
    /// # Panics
    /// If it can't be started; ask [`super::kafka_missing`] first.
    #[must_use]
    pub fn start() -> Broker {
        Broker::start_with(&[])
    }

    /// A broker of this test's own, with these broker settings (`server.properties`) besides or instead of the usual ones. `{port}`
    /// in a value stands for its port. Returns when it answers.
    ///
    /// # Panics
    /// If it can't be started; ask [`super::kafka_missing`] first.
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Broker {
        let (process, address) = Process::start(settings);
        Broker { address, process: Some(Mutex::new(process)) }
    }

    /// `127.0.0.1:PORT`. It stays the same across restarts.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A verifier that is connected to it.
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// SIGKILL, and waits until it is dead. What it had acknowledged is in its folder.
    ///
    /// # Panics
    /// If it is another's, as all that follow.
    pub fn kill(&self) {
        self.process().end(Signal::KILL);
    }

    /// SIGTERM, and waits for the orderly end.
    pub fn stop(&self) {
        self.process().end(Signal::TERM);
    }

    /// Starts it again, after [`kill`](Broker::kill) or [`stop`](Broker::stop), with the same data and port; returns when it
    /// answers. A running one is stopped first.
    pub fn restart(&self) {
        self.restart_with(&[]);
    }

    /// As [`restart`](Broker::restart), with these settings instead of those of the same names, also from then on.
    pub fn restart_with(&self, settings: &[(&str, &str)]) {
        self.process().restart_with(settings);
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn pause(&self) {
        self.process().signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Whether the process is there.
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// Where it has its data, its settings (`server.properties`) and its log.
    pub fn folder(&self) -> PathBuf {
        self.process().folder().to_owned()
    }

    /// What it has logged (warnings and errors), over all restarts.
    pub fn log(&self) -> String {
        self.process().log()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        let process = self.process.as_ref().expect("only a broker of the test's own is stopped or looked into");
        process.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
