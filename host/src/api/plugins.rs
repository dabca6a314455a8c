//! Plugins over HTTP: upload, list, show, remove.
//!
//! Invariant: an upload is never in memory as a whole.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderName, StatusCode};
use serde::Serialize;

use crate::api::body::Chunks;
use crate::api::refusal::Refusal;
use crate::api::{Api, to_its_end};
use crate::serve::{PluginInfo, Uploaded};

#[derive(Serialize)]
pub struct PluginList {
    plugins: Vec<PluginInfo>,
}

pub async fn list(State(api): State<Arc<Api>>) -> Result<Json<PluginList>, Refusal> {
    let plugins = to_its_end(async move { Ok(api.daemon.plugins()) }).await?;
    Ok(Json(PluginList { plugins }))
}

/// 201 if the plugin is new, 200 if it was there already.
pub async fn upload(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<PluginInfo>), Refusal> {
    let mut chunks = Chunks::of(request, api.patience, api.plugin_bytes_max)?;
    let mut upload = api.daemon.begin_upload().await?;
    // If the client goes away here, dropping the upload removes what has come.
    while let Some(bytes) = chunks.next().await? {
        upload.write(&bytes).await?;
    }
    let Uploaded { plugin, is_new } = to_its_end(upload.finish()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(LOCATION, format!("/v1/plugins/{}", plugin.hash))], Json(plugin)))
}

pub async fn show(
    State(api): State<Arc<Api>>,
    hash: Result<Path<String>, PathRejection>,
) -> Result<Json<PluginInfo>, Refusal> {
    let hash = in_path(hash)?;
    Ok(Json(to_its_end(async move { api.daemon.plugin(&hash) }).await?))
}

pub async fn remove(
    State(api): State<Arc<Api>>,
    hash: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let hash = in_path(hash)?;
    to_its_end(async move { api.daemon.remove_plugin(&hash).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What stands in the path for a name or several; whether there is such a thing, the daemon says.
pub fn in_path<T>(path: Result<Path<T>, PathRejection>) -> Result<T, Refusal> {
    path.map(|Path(names)| names).map_err(|rejection| {
        let refusal = Refusal::new(StatusCode::NOT_FOUND, "there is nothing at such a path").caused_by(&rejection);
        refusal.help("a path is UTF-8, with what has a meaning in it written as %XX")
    })
}
