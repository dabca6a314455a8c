//! Who may ask: the bearer token, and the checks that keep web pages of others from asking in a user's name.
//!
//! A page that a user visits can send requests to this machine, and by DNS rebinding even read the answers. So a daemon on a loopback
//! address answers only to the names of this machine, and nobody answers a page that it hasn't served itself.
//!
//! Invariant: the token is compared by its digest, in a time that doesn't depend on where the two differ; it never gets into an answer
//! or a log.

use std::fmt;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use sha2::{Digest, Sha256};

use crate::api::limits::{HEADER_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX};
use crate::api::refusal::{Refusal, quoted};

/// What may be asked without a token: it says nothing.
pub const OPEN_PATH: &str = "/healthz";
/// Shorter tokens can be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_CHARS_MAX: usize = 1_024;

/// The secret that clients must name.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    digest: [u8; 32],
}

/// A text that is no token.
#[derive(Debug, thiserror::Error)]
#[error("a token is {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} visible ASCII characters without blanks; this one {wrong}")]
pub struct BadToken {
    wrong: &'static str,
}

impl Token {
    /// # Errors
    /// If it is too short to be a secret, or no header could hold it.
    pub fn new(text: &str) -> Result<Token, BadToken> {
        let wrong = match text.len() {
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => "has others",
            0..TOKEN_CHARS_MIN => "is shorter",
            TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX => return Ok(Token { digest: digest(text.as_bytes()) }),
            _ => "is longer",
        };
        Err(BadToken { wrong })
    }

    fn is(&self, given: &[u8]) -> bool {
        let differing = self.digest.iter().zip(digest(given)).fold(0, |bits, (ours, theirs)| bits | (ours ^ theirs));
        differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Decides who is answered.
#[derive(Clone, Debug)]
pub struct Guard {
    pub token: Option<Token>,
    /// Whether the daemon listens on a loopback address.
    pub loopback: bool,
}

impl Guard {
    /// # Errors
    /// What the client is told.
    pub fn check(&self, request: &Parts) -> Result<(), Refusal> {
        check_size(request)?;
        let host = one(&request.headers, &HOST)?.ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, "the request has no Host header").help("HTTP/1.1 asks for one")
        })?;
        // A request may name its target in full; then that is the host.
        let host = request.uri.authority().map_or(host, |authority| authority.as_str());
        if self.loopback && !is_this_machine(host) {
            let refusal =
                Refusal::new(StatusCode::FORBIDDEN, format!("this daemon doesn't answer to {}", quoted(host)));
            return Err(
                refusal.help("ask it as 127.0.0.1 or localhost; a proxy has to set the Host header to one of them")
            );
        }
        if let Some(origin) = one(&request.headers, &ORIGIN)?
            && !is_of_host(origin, host)
        {
            let refusal = Refusal::new(StatusCode::FORBIDDEN, format!("pages of {} may not ask here", quoted(origin)));
            return Err(refusal.help("ask from a program, or from a page of this daemon"));
        }
        match &self.token {
            Some(token) if request.uri.path() != OPEN_PATH => check_token(token, &request.headers),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether its head is no larger than a client's may be.
///
/// # Errors
/// What the client is told.
pub fn check_size(request: &Parts) -> Result<(), Refusal> {
    let target_bytes = request.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target_bytes > TARGET_BYTES_MAX {
        let refusal = Refusal::new(StatusCode::URI_TOO_LONG, "the request's path and query are too long");
        return Err(refusal.help(format!("{TARGET_BYTES_MAX} bytes are the most")));
    }
    let header_bytes = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if request.headers.len() > HEADERS_MAX || header_bytes > HEADER_BYTES_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let refusal = Refusal::new(status, "the request has too many headers, or too long ones");
        return Err(refusal.help(format!("{HEADERS_MAX} headers and {HEADER_BYTES_MAX} bytes are the most")));
    }
    Ok(())
}

/// The value of a header that may be there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let bad = |what: &str| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the header {name} {what}")).help("send it once, in plain ASCII")
    };
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(bad("is there twice"));
    }
    value.map(|value| value.to_str().map_err(|_| bad("isn't text"))).transpose()
}

fn check_token(token: &Token, headers: &HeaderMap) -> Result<(), Refusal> {
    let refused = |what: &str| {
        let help =
            "send the header 'Authorization: Bearer TOKEN'; for lockgate, set LOCKGATE_TOKEN or give --token-file";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, what).help(help))
    };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return refused("this daemon asks for a token");
    };
    let (scheme, given) = value.as_bytes().split_at(value.len().min("Bearer ".len()));
    if scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(given) {
        return Ok(());
    }
    refused("that is not the token of this daemon")
}

/// Whether `HOST` or `HOST:PORT` names this machine whatever the resolver says.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a page of that origin comes from the host that is asked.
fn is_of_host(origin: &str, host: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        origin.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && origin[scheme.len()..].eq_ignore_ascii_case(host)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn guard(token: bool, loopback: bool) -> Guard {
        Guard { token: token.then(|| Token::new(SECRET).expect("a token")), loopback }
    }

    #[track_caller]
    fn status(guard: &Guard, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        guard.check(&parts).map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
    }

    #[test]
    fn on_loopback_only_the_names_of_this_machine_are_answered() {
        let guard = guard(false, true);
        let hosts = ["localhost", "LocalHost:8420", "127.0.0.1:1", "127.0.0.2", "[::1]:8420", "[::1]"];
        for host in hosts {
            assert_eq!(status(&guard, "/", &[("host", host)]), 200, "{host}");
        }
        let others = [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8420",
            "10.0.0.1",
            "",
            "::1",
            "localhost:x",
        ];
        for host in others {
            assert_eq!(status(&guard, "/", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&guard, "http://evil.example/", &[("host", "localhost")]), 403);
        assert_eq!(status(&guard, "/", &[]), 400);
        assert_eq!(status(&guard, "/", &[("host", "localhost"), ("host", "evil.example")]), 400);
    }

    #[test]
    fn a_page_of_somebody_else_is_not_answered() {
        for guard in [guard(false, true), guard(false, false)] {
            let from = |origin| status(&guard, "/", &[("host", "127.0.0.1:8420"), ("origin", origin)]);
            assert_eq!(from("http://127.0.0.1:8420"), 200);
            for other in ["http://evil.example", "http://127.0.0.1:9999", "null", "", "file://", "é"] {
                assert_ne!(from(other), 200, "{other}");
            }
        }
    }

    #[test]
    fn with_a_token_nothing_is_answered_without_it_but_whether_the_daemon_lives() {
        let guard = guard(true, false);
        let with = |target, value| status(&guard, target, &[("host", "any.example"), ("authorization", value)]);
        let (right, lower_case, longer) =
            (format!("Bearer {SECRET}"), format!("bearer {SECRET}"), format!("Bearer {SECRET}0"));
        assert_eq!(with("/v1/jobs", &right), 200);
        assert_eq!(with("/v1/jobs", &lower_case), 200);
        for wrong in ["Bearer", "Bearer ", "Bearer 0123456789abcdee", "Basic 0123456789abcdef", SECRET, &longer, ""] {
            assert_eq!(with("/v1/jobs", wrong), 401, "{wrong}");
        }
        assert_eq!(status(&guard, "/", &[("host", "any.example")]), 401);
        assert_eq!(status(&guard, OPEN_PATH, &[("host", "any.example")]), 200);
        assert_eq!(status(&guard, "/healthz/", &[("host", "any.example")]), 401);
    }

    #[test]
    fn headers_and_targets_have_limits() {
        let guard = guard(false, true);
        let long = "x".repeat(HEADER_BYTES_MAX);
        assert_eq!(status(&guard, "/", &[("host", "localhost"), ("x-long", &long)]), 431);
        let many = [[("x-many", "1")].repeat(HEADERS_MAX), vec![("host", "localhost")]].concat();
        assert_eq!(status(&guard, "/", &many), 431);
        assert_eq!(status(&guard, &format!("/{}", "x".repeat(TARGET_BYTES_MAX)), &[("host", "localhost")]), 414);
    }

    #[test]
    fn a_token_is_long_enough_visible_and_never_shown() {
        for bad in ["", "short", "0123456789 abcdef", "0123456789abcdé__", "0123456789abcdef\n"] {
            Token::new(bad).expect_err(bad);
        }
        let token = Token::new(SECRET).expect("a token");
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
