//! Checkpoints over HTTP, and those among them that a user keeps.
//!
//! Invariant: a savepoint is a checkpoint of the list whose `kept` is true.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderName, StatusCode};
use serde::Serialize;
use tokio::time::timeout;

use crate::api::limits::READ_WITHIN;
use crate::api::plugins::in_path;
use crate::api::refusal::{Refusal, quoted};
use crate::api::{Api, to_its_end};
use crate::id::Epoch;
use crate::serve::CheckpointInfo;

#[derive(Serialize)]
pub struct CheckpointList {
    checkpoints: Vec<CheckpointInfo>,
}

#[derive(Serialize)]
pub struct SavepointList {
    savepoints: Vec<CheckpointInfo>,
}

pub async fn checkpoints(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
) -> Result<Json<CheckpointList>, Refusal> {
    Ok(Json(CheckpointList { checkpoints: all_of(api, in_path(job)?).await? }))
}

pub async fn list(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
) -> Result<Json<SavepointList>, Refusal> {
    let mut savepoints = all_of(api, in_path(job)?).await?;
    savepoints.retain(|checkpoint| checkpoint.kept);
    Ok(Json(SavepointList { savepoints }))
}

pub async fn take(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<CheckpointInfo>), Refusal> {
    let job = in_path(job)?;
    let of_job = job.clone();
    let savepoint = to_its_end(async move { api.daemon.savepoint(&of_job).await }).await?;
    let place = format!("/v1/jobs/{job}/savepoints/{}", savepoint.epoch);
    Ok((StatusCode::CREATED, [(LOCATION, place)], Json(savepoint)))
}

pub async fn show(
    State(api): State<Arc<Api>>,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<CheckpointInfo>, Refusal> {
    let (job, epoch) = in_path(names)?;
    let wanted = parse(&epoch).ok_or_else(|| no_savepoint(&job, &epoch))?;
    let mut all = all_of(api, job.clone()).await?.into_iter();
    let found = all.find(|checkpoint| checkpoint.kept && checkpoint.epoch == wanted);
    found.map(Json).ok_or_else(|| no_savepoint(&job, &epoch))
}

pub async fn delete(
    State(api): State<Arc<Api>>,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let (job, epoch) = in_path(names)?;
    let Epoch(wanted) = parse(&epoch).ok_or_else(|| no_savepoint(&job, &epoch))?;
    to_its_end(async move { api.daemon.delete_savepoint(&job, wanted).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn all_of(api: Arc<Api>, job: String) -> Result<Vec<CheckpointInfo>, Refusal> {
    let read = to_its_end(async move { api.daemon.checkpoints(&job).await });
    timeout(READ_WITHIN, read).await.unwrap_or_else(|_| {
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the checkpoint store doesn't answer");
        Err(refusal.help("look whether its disk works, then ask again"))
    })
}

/// Digits only: `+1` and ` 1` are other paths.
fn parse(epoch: &str) -> Option<Epoch> {
    let digits = epoch.bytes().all(|byte| byte.is_ascii_digit());
    epoch.parse().ok().filter(|_| digits).map(Epoch)
}

fn no_savepoint(job: &str, epoch: &str) -> Refusal {
    let error = format!("the job {} has no savepoint {}", quoted(job), quoted(epoch));
    Refusal::new(StatusCode::NOT_FOUND, error).help("list its savepoints to see which there are")
}
