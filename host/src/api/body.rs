//! Reads what a client sends: JSON as a type, or the bytes of a plugin one after the other.
//!
//! Invariant: a body is read only as far as its limit and only for as long as [`Patience`] says.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::limits::{JSON_BODY_BYTES_MAX, Patience};
use crate::api::refusal::{Refusal, quoted};
use crate::units;

const JSON: &str = "application/json";
const PLUGIN_KINDS: [&str; 2] = ["application/octet-stream", "application/wasm"];

/// Reads a body that must be there.
///
/// # Errors
/// What the client is told.
pub async fn json<T: DeserializeOwned>(request: Request, patience: Patience) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    check_kind(&parts.headers, &[JSON])?;
    let bytes = whole(body, patience).await?;
    parse(&bytes)
}

/// Reads a body that a client may leave out.
///
/// # Errors
/// What the client is told.
pub async fn json_or_default<T: DeserializeOwned + Default>(
    request: Request,
    patience: Patience,
) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    let bytes = whole(body, patience).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    check_kind(&parts.headers, &[JSON])?;
    parse(&bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let unfit = || {
        let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "the body isn't what this request takes");
        refusal.help("the schema of each body stands in /openapi.json")
    };
    // Fields in a list, without their names, would do for the types here; they don't for the document.
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let parsed = if is_object { serde_json::from_slice(bytes).map_err(Some) } else { Err(None) };
    // Asked by itself: some values of another type are told as bad syntax.
    parsed.map_err(|unfitting| match (serde_json::from_slice(bytes), unfitting) {
        (Ok(IgnoredAny), Some(error)) => unfit().caused_by(&error),
        (Ok(IgnoredAny), None) => unfit(),
        (Err(error), _) => {
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, "the body isn't JSON");
            refusal.caused_by(&error).help("send one JSON value in UTF-8")
        }
    })
}

/// Refuses a body of another media type; parameters such as a charset are let pass.
fn check_kind(headers: &HeaderMap, kinds: &[&str]) -> Result<(), Refusal> {
    let given = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let essence = given.as_deref().and_then(|kind| kind.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| kinds.iter().any(|kind| kind.eq_ignore_ascii_case(essence))) {
        return Ok(());
    }
    let error = match &given {
        Some(given) => format!("the body is of the type {}", quoted(given)),
        None => "the body has no type".to_owned(),
    };
    let help = format!("send the header 'Content-Type: {}' with it", kinds[0]);
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error).help(help))
}

async fn whole(body: Body, patience: Patience) -> Result<Bytes, Refusal> {
    let read = timeout(patience.json_body, Limited::new(body, JSON_BODY_BYTES_MAX).collect());
    match read.await.map_err(|_| too_slow(patience.json_body))? {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(JSON_BODY_BYTES_MAX as u64)),
        Err(error) => Err(broken_off(&*error)),
    }
}

/// The bytes of an upload.
pub struct Chunks {
    body: Body,
    due: Instant,
    patience: Patience,
}

impl Chunks {
    /// # Errors
    /// What the client is told, if it sends no plugin, or says that it is larger than the limit.
    pub fn of(request: Request, patience: Patience, bytes_max: u64) -> Result<Chunks, Refusal> {
        let (parts, body) = request.into_parts();
        check_kind(&parts.headers, &PLUGIN_KINDS)?;
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|bytes| bytes > bytes_max) {
            return Err(too_large(bytes_max));
        }
        Ok(Chunks { body, due: Instant::now() + patience.upload, patience })
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// What the client is told, if it hears it: the upload broke off, or takes too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let within = self.due.min(Instant::now() + self.patience.upload_pause);
            let frame = timeout_at(within, self.body.frame()).await;
            match frame.map_err(|_| too_slow(self.patience.upload_pause))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken_off(&error)),
                // What isn't data are trailers, which mean nothing here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_) => continue,
                },
            }
        }
    }
}

fn too_large(bytes_max: u64) -> Refusal {
    let error = format!("the body has more than {}", units::size::format(bytes_max));
    let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error);
    refusal.help("send less; the limit of plugins is set by lockgate serve --plugin-max")
}

fn too_slow(within: Duration) -> Refusal {
    let error = format!("the body, or more of it, didn't come within {} s", within.as_secs_f64());
    Refusal::new(StatusCode::REQUEST_TIMEOUT, error).help("send it in one go, or over a faster connection")
}

fn broken_off(error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "the body broke off").caused_by(error).help("send the request again")
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use proptest::prelude::*;
    use serde::Deserialize;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Wish {
        number: u64,
    }

    fn request(kind: Option<&str>, body: impl Into<Body>) -> Request {
        let request = Request::builder().uri("/");
        let request = match kind {
            Some(kind) => request.header(CONTENT_TYPE, kind),
            None => request,
        };
        request.body(body.into()).expect("a request")
    }

    async fn status(kind: Option<&str>, body: impl Into<Body>) -> u16 {
        let read = json::<Wish>(request(kind, body), Patience::default()).await;
        read.map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn json_of_another_type_form_or_size_is_refused_each_with_its_status() {
        assert_eq!(status(Some("application/json"), r#"{"number":1}"#).await, 200);
        assert_eq!(status(Some("Application/JSON; charset=utf-8"), r#"{"number":1}"#).await, 200);
        assert_eq!(status(Some("text/plain"), r#"{"number":1}"#).await, 415);
        assert_eq!(status(None, r#"{"number":1}"#).await, 415);
        for not_json in ["", "{", "nul", r#"{"number":1}}"#] {
            assert_eq!(status(Some(JSON), not_json).await, 400, "{not_json}");
        }
        assert_eq!(status(Some(JSON), b"\xff".to_vec()).await, 400);
        for other in ["{}", "[]", "[1]", "1", r#"{"number":-1}"#, r#"{"number":1,"more":2}"#, r#"{"number":"1"}"#] {
            assert_eq!(status(Some(JSON), other).await, 422, "{other}");
        }
        assert_eq!(status(Some(JSON), vec![b' '; JSON_BODY_BYTES_MAX + 1]).await, 413);
        assert_eq!(status(Some(JSON), "[".repeat(JSON_BODY_BYTES_MAX)).await, 400, "deep nesting is no overflow");
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_a_body_or_refused_as_no_json_or_as_another(
            any in prop::collection::vec(any::<u8>(), 0..60),
            changes in prop::collection::vec((0usize..100, any::<u8>()), 1..4),
        ) {
            use crate::serve::{Submission, UpgradeSpec};
            let mut upgrade = br#"{"plugin":"sha256:0","dry_run":true,"probation_ms":18446744073709551615}"#.to_vec();
            for (place, byte) in changes {
                let place = place % upgrade.len();
                upgrade[place] = byte;
            }
            let status = |refusal: Refusal| refusal.status();
            for refused in [
                parse::<UpgradeSpec>(&upgrade).map(drop).map_err(status),
                parse::<UpgradeSpec>(&any).map(drop).map_err(status),
                parse::<Submission>(&any).map(drop).map_err(status),
            ] {
                let expected = [Ok(()), Err(StatusCode::BAD_REQUEST), Err(StatusCode::UNPROCESSABLE_ENTITY)];
                prop_assert!(expected.contains(&refused), "{:?}", refused);
            }
        }
    }

    #[tokio::test]
    async fn a_body_may_be_left_out_where_it_says_nothing_new() {
        let read = json_or_default::<Wish>(request(None, Body::empty()), Patience::default()).await;
        assert_eq!(read.expect("the default"), Wish::default());
        let read = json_or_default::<Wish>(request(None, "{}"), Patience::default()).await;
        assert_eq!(read.expect_err("no type").status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_given_up() {
        let short = Duration::from_millis(20);
        let patience = Patience { json_body: short, upload_pause: short, ..Patience::default() };
        let of_json = move |request: Request| async move { json::<Wish>(request, patience).await.map(|_| "all") };
        let of_upload = move |request: Request| async move {
            let mut chunks = Chunks::of(request, patience, 10)?;
            while chunks.next().await?.is_some() {}
            Ok::<_, Refusal>("all")
        };
        let router = axum::Router::new().route("/json", post(of_json)).route("/upload", post(of_upload));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, router).await });
        for (path, kind, sent) in [("/json", JSON, "{"), ("/upload", PLUGIN_KINDS[0], "abc")] {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
            let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 10\r\n");
            stream.write_all(format!("{head}Connection: close\r\n\r\n{sent}").as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 408"), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn an_upload_that_says_that_it_is_too_large_is_refused_at_once() {
        let upload = |length: &str| {
            let request = Request::builder().header(CONTENT_TYPE, PLUGIN_KINDS[1]).header(CONTENT_LENGTH, length);
            Chunks::of(request.body(Body::from("abc")).expect("a request"), Patience::default(), 3)
        };
        assert!(upload("3").is_ok());
        assert_eq!(upload("4").err().expect("too large").status(), StatusCode::PAYLOAD_TOO_LARGE);
        let mut chunks = upload("3").expect("a plugin");
        assert_eq!(chunks.next().await.expect("data"), Some(Bytes::from("abc")));
        assert_eq!(chunks.next().await.expect("the end"), None);
    }
}
