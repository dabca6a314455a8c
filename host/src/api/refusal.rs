//! What a client gets instead of what it asked for: a status, and the same JSON for all of them.
//!
//! Invariant: every answer with an error status has this form, `{"error", "causes", "help"}`, whoever found the error; but what isn't
//! HTTP at all is answered by the library that reads it. JSON escapes control characters, so no text can fake a header or a line.

use std::error::Error;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::serve::{ErrorKind, ServeError};
use crate::telemetry::printable;

/// What of a text from outside is repeated.
const QUOTED_BYTES_MAX: usize = 200;

/// Why a request isn't answered as it wished.
#[derive(Clone, Debug)]
pub struct Refusal {
    status: StatusCode,
    content: Content,
}

#[derive(Clone, Debug, Serialize)]
struct Content {
    /// What, with the name of the thing.
    error: String,
    /// Why, from the outermost cause to the innermost.
    causes: Vec<String>,
    /// What to do.
    help: Option<String>,
}

impl Refusal {
    pub fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { status, content: Content { error: error.into(), causes: Vec::new(), help: None } }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Refusal {
        self.content.help = Some(help.into());
        self
    }

    #[must_use]
    pub fn caused_by(mut self, cause: &dyn Error) -> Refusal {
        let mut cause = Some(cause);
        while let Some(error) = cause {
            self.content.causes.push(error.to_string());
            cause = error.source();
        }
        self
    }

    /// For answers that a library has made with no more than a status.
    pub fn of_status(status: StatusCode) -> Refusal {
        let reason = status.canonical_reason().unwrap_or("refused").to_lowercase();
        let refusal = Refusal::new(status, format!("this request can't be answered: {reason}"));
        refusal.help("the requests that there are stand in /openapi.json")
    }

    #[cfg(test)]
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// A text from outside as it may stand in an error.
pub fn quoted(text: &str) -> String {
    format!("'{}'", printable(text, QUOTED_BYTES_MAX))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.content)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lockgate\""));
        }
        response
    }
}

impl From<ServeError> for Refusal {
    fn from(error: ServeError) -> Refusal {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Busy => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut refusal = Refusal::new(status, error.to_string());
        refusal.content.causes = error.causes();
        match error.help() {
            Some(help) => refusal.help(help),
            None => refusal,
        }
    }
}

/// An answer with an error status that isn't in our form yet, put into it. Its other headers stay: `Allow` is one.
pub fn in_our_form(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json");
    if !is_error || is_json {
        return response;
    }
    let mut ours = Refusal::of_status(status).into_response();
    for (name, value) in response.headers() {
        if !ours.headers().contains_key(name) && name != axum::http::header::CONTENT_LENGTH {
            ours.headers_mut().append(name.clone(), value.clone());
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn what_a_library_refuses_is_said_in_the_same_form_as_what_we_refuse() {
        let theirs = (StatusCode::METHOD_NOT_ALLOWED, [("allow", "GET")], "no").into_response();
        let ours = in_our_form(theirs);
        assert_eq!(ours.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(ours.headers()["allow"], "GET");
        assert_eq!(ours.headers()[CONTENT_TYPE], "application/json");
        let body = ours.into_body().collect().await.expect("a body").to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["error"], "this request can't be answered: method not allowed");
        assert!(body["help"].is_string() && body["causes"].is_array(), "{body}");
        assert_eq!(in_our_form("fine".into_response()).headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
    }

    #[test]
    fn a_text_from_outside_is_cut_and_breaks_no_line() {
        assert_eq!(quoted("a\r\nb"), "'a\\r\\nb'");
        assert!(quoted(&"x".repeat(5_000)).len() < 300);
    }
}
