//! Where a broker listens.
//!
//! Invariant: an address has a host that isn't empty and a port that isn't 0.

use std::fmt;

/// The port that Kafka takes by default.
const PORT: u16 = 9092;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl Address {
    /// Reads `HOST`, `HOST:PORT` or `[IPv6]:PORT`, with or without `PROTOCOL://` before it, as librdkafka takes them.
    pub fn parse(text: &str) -> Option<Address> {
        let text = text.trim();
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                (host, after.strip_prefix(':').or(after.is_empty().then_some("")))
            }
            None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port? {
            "" => PORT,
            digits => digits.parse().ok()?,
        };
        (!host.is_empty() && port != 0).then(|| Address { host: host.to_owned(), port })
    }

    /// As [`Address::parse`], of several with commas between.
    pub fn parse_all(text: &str) -> Option<Vec<Address>> {
        let addresses = text.split(',').map(Address::parse).collect::<Option<Vec<_>>>()?;
        (!addresses.is_empty()).then_some(addresses)
    }

    /// One that a broker has told.
    pub(super) fn told(host: &str, port: i32) -> Option<Address> {
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then(|| Address { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_are_read_as_librdkafka_reads_them() {
        for (text, read) in [
            ("localhost:9093", "localhost:9093"),
            ("kafka", "kafka:9092"),
            ("SASL_SSL://kafka.example:1", "kafka.example:1"),
            ("[::1]:9092", "[::1]:9092"),
            ("[::1]", "[::1]:9092"),
            (" a:1 ", "a:1"),
        ] {
            assert_eq!(Address::parse(text).expect(text).to_string(), read, "{text}");
        }
        for text in ["", ":9092", "a:0", "a:70000", "a:b", "[::1", "[::1]x"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
        assert_eq!(Address::parse_all("a:1,b").map(|all| all.len()), Some(2));
        assert_eq!(Address::parse_all("a:1,,b"), None);
    }
}
