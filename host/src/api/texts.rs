//! What is no resource of its own: whether the daemon lives, its metrics, and the document of all requests.
//!
//! Invariant: none of these changes anything.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::api::refusal::Refusal;
use crate::api::{Api, to_its_end};
use crate::telemetry;

pub const OPENAPI: &str = include_str!("openapi.json");

pub async fn health() -> impl IntoResponse {
    Json(serde_json::json!({ "status": "ok" }))
}

pub async fn metrics(State(api): State<Arc<Api>>) -> Result<impl IntoResponse, Refusal> {
    let text = to_its_end(async move { Ok(api.daemon.metrics()) }).await?;
    Ok(([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], text))
}

pub async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], OPENAPI)
}
