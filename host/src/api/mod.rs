//! The daemon over HTTP: REST in JSON under `/v1`, metrics, a page for people, and the OpenAPI document of all of it. Beside it, the
//! metrics of a job that no daemon runs.
//!
//! Invariant: nothing is decided here but who may ask and in what form; the [`Daemon`] decides the rest. What a request has begun is
//! done to its end, also if the client goes away.

mod body;
mod error;
mod guard;
mod jobs;
mod limits;
mod listener;
mod metrics;
mod page;
mod plugins;
mod refusal;
mod routes;
mod savepoints;
#[cfg(test)]
mod tests;
mod texts;

use std::sync::Arc;

use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::guard::Guard;
use crate::api::limits::{DRAIN_WITHIN, Patience};
use crate::api::listener::{BoundedListener, Turn};
use crate::api::refusal::{Refusal, in_our_form};
use crate::serve::{Daemon, ServeError};

pub use error::ApiError;
pub use guard::{BadToken, TOKEN_CHARS_MIN, Token};
pub use metrics::{METRICS_PATH, serve_metrics};

/// What a page from here may do: show itself, and nothing else.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Who is answered, and what.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// What clients must name. None is enough only on a loopback address.
    pub token: Option<Token>,
    /// The largest plugin; the same as the daemon's.
    pub plugin_bytes_max: u64,
}

/// What the handlers share.
struct Api {
    daemon: Arc<Daemon>,
    guard: Guard,
    patience: Patience,
    plugin_bytes_max: u64,
}

/// Whether an API may be served there.
///
/// # Errors
/// If others could reach it and there is no token.
pub fn check(listener: &TcpListener, options: &ApiOptions) -> Result<(), ApiError> {
    let address = listener.local_addr().map_err(|source| ApiError::Socket { source })?;
    if options.token.is_none() && !address.ip().is_loopback() {
        return Err(ApiError::TokenWanted { address });
    }
    Ok(())
}

/// Answers until `stop` is done; then accepts nothing more, shuts the daemon down, and lets answers that are under way end.
///
/// # Errors
/// As [`check`].
pub async fn serve(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    options: ApiOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    check(&listener, &options)?;
    serve_patiently(daemon, listener, options, Patience::default(), stop).await
}

async fn serve_patiently(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    options: ApiOptions,
    patience: Patience,
    stop: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    let loopback = listener.local_addr().map_err(|source| ApiError::Socket { source })?.ip().is_loopback();
    let ApiOptions { token, plugin_bytes_max } = options;
    let api = Api { daemon: Arc::clone(&daemon), guard: Guard { token, loopback }, patience, plugin_bytes_max };
    let api = Arc::new(api);
    let router = routes::router().layer(from_fn_with_state(Arc::clone(&api), answer)).with_state(api);
    let service = router.into_make_service_with_connect_info::<Turn>();
    let (close, mut closing) = watch::channel(false);
    let closed = async move {
        // The sender is dropped only behind the server.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let server = axum::serve(BoundedListener::new(listener, patience), service).with_graceful_shutdown(closed);
    let server = tokio::spawn(server.into_future());
    stop.await;
    close.send_replace(true);
    daemon.shut_down().await;
    // What is still being answered then is cut off: the daemon has refused it, or it waits for its client.
    if timeout(DRAIN_WITHIN, server).await.is_err() {
        tracing::info!("some clients have not taken their answers");
    }
    Ok(())
}

/// What stands before and behind every handler.
async fn answer(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let turn = request.extensions().get::<ConnectInfo<Turn>>().map(|ConnectInfo(turn)| turn.clone());
    if let Some(turn) = &turn {
        turn.begin();
    }
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let mut response = match api.guard.check(&parts) {
        Ok(()) => in_our_form(next.run(Request::from_parts(parts, body)).await),
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    tracing::debug!(%method, path, status = response.status().as_u16(), "a request was answered");
    if let Some(turn) = &turn {
        turn.end(api.patience.head);
    }
    response
}

/// Does what a request asks for, to its end: a client that goes away, which drops its handler, interrupts nothing. A panic is told
/// like any other trouble of the daemon's.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServeError>> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(panicked) => {
            tracing::error!(error = %panicked, "a request has met a bug");
            let refusal = Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the daemon has met a bug of its own");
            Err(refusal.help("its log says which; please report it"))
        }
    }
}
