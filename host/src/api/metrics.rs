//! The metrics of one job over HTTP, for Prometheus: what `run` serves beside its job.
//!
//! Invariant: a request changes nothing, its body is never read, and a client that is slow or silent holds up no other one.

use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;

use crate::api::guard::check_size;
use crate::api::limits::Patience;
use crate::api::listener::{BoundedListener, Turn};
use crate::telemetry;

/// Where the metrics are.
pub const METRICS_PATH: &str = "/metrics";

/// Answers with what `text` gives at that moment, until it is dropped.
pub async fn serve_metrics(listener: TcpListener, text: impl Fn() -> String + Clone + Send + Sync + 'static) {
    let patience = Patience::default();
    let handler = move |ConnectInfo(turn): ConnectInfo<Turn>, request: Request| {
        let response = answer(request, &text);
        turn.end(patience.head);
        std::future::ready(response)
    };
    let router = Router::new().fallback(handler);
    let service = router.into_make_service_with_connect_info::<Turn>();
    // It has no end of its own, and tells no errors.
    let _ = axum::serve(BoundedListener::new(listener, patience), service).await;
}

fn answer(request: Request, text: &impl Fn() -> String) -> Response {
    let (parts, _unread) = request.into_parts();
    if let Err(refusal) = check_size(&parts) {
        return refusal.into_response();
    }
    match (&parts.method, parts.uri.path()) {
        (&Method::GET | &Method::HEAD, METRICS_PATH) => {
            ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], text()).into_response()
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, format!("the metrics are at {METRICS_PATH}\n")).into_response()
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::api::limits::{HEADER_BYTES_MAX, HEADERS_MAX};

    async fn serve() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(serve_metrics(listener, || "records 7\n".to_owned()));
        address
    }

    /// Sends a head and no body; gives all that comes until the other end closes.
    async fn ask(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("{head}\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn the_metrics_can_be_read_and_there_is_nothing_else() {
        let address = serve().await;
        let got = ask(address, "GET /metrics?x=1 HTTP/1.1").await;
        assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\nrecords 7\n"), "{got}");
        assert!(got.contains(telemetry::CONTENT_TYPE), "{got}");
        let head = ask(address, "HEAD /metrics HTTP/1.1").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        let elsewhere = ask(address, "GET / HTTP/1.1").await;
        assert!(elsewhere.starts_with("HTTP/1.1 404") && elsewhere.contains(METRICS_PATH), "{elsewhere}");
        let other = ask(address, "DELETE /metrics HTTP/1.1").await;
        assert!(other.starts_with("HTTP/1.1 405") && other.contains("GET, HEAD"), "{other}");
    }

    #[tokio::test]
    async fn a_body_is_neither_waited_for_nor_believed() {
        let address = serve().await;
        for (method, status) in [("GET", "HTTP/1.1 200"), ("POST", "HTTP/1.1 405")] {
            for length in ["Content-Length: 99999999999999", "Transfer-Encoding: chunked"] {
                let got = ask(address, &format!("{method} /metrics HTTP/1.1\r\n{length}")).await;
                assert!(got.starts_with(status), "{method} with {length}: {got}");
            }
        }
    }

    #[tokio::test]
    async fn too_many_headers_or_too_long_ones_are_refused() {
        let address = serve().await;
        let many = "\r\nX: y".repeat(HEADERS_MAX);
        let long = format!("\r\nX: {}", "y".repeat(HEADER_BYTES_MAX));
        for headers in [many, long] {
            let got = ask(address, &format!("GET /metrics HTTP/1.1{headers}")).await;
            assert!(got.starts_with("HTTP/1.1 431"), "{got}");
        }
    }
}
