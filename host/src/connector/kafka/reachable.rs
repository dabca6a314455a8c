//! Whether anybody listens where brokers are said to be: a cluster that is slow is told from one that isn't there.
//!
//! Invariant: nothing is sent.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::wire::Address;

/// For a connection to one address.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// `brokers`: `host:port`, several with commas.
pub fn anybody_listens(brokers: &str) -> bool {
    let listens = |Address { host, port }: &Address| {
        let addresses = (host.as_str(), *port).to_socket_addrs();
        addresses.is_ok_and(|mut all| all.any(|address| TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok()))
    };
    Address::parse_all(brokers).is_some_and(|all| all.iter().any(listens))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_and_says_nothing_is_there_and_a_free_port_is_not() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let [silent_at, free_at] = [&silent, &free].map(|listener| listener.local_addr().expect("bound").to_string());
        drop(free);
        assert!(anybody_listens(&silent_at) && anybody_listens(&format!("{free_at}, {silent_at}")));
        assert!(!anybody_listens(&free_at) && !anybody_listens("no-such-host.invalid:9092"));
    }
}
