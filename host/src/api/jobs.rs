//! Jobs over HTTP: submit, list, show, stop, restart, delete, upgrade an operator.
//!
//! Invariant: how long a stop or an upgrade takes is the job's own affair, by its checkpoint timeout and the probation; it isn't cut
//! short here.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderName, StatusCode};
use serde::{Deserialize, Serialize};

use crate::api::plugins::in_path;
use crate::api::refusal::Refusal;
use crate::api::{Api, body, to_its_end};
use crate::serve::{JobInfo, StopMode, Submission, UpgradeInfo, UpgradeSpec};

#[derive(Serialize)]
pub struct JobList {
    jobs: Vec<JobInfo>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopRequest {
    #[serde(default)]
    mode: StopMode,
}

/// A changed job file, if there is one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartRequest {
    #[serde(default)]
    job_toml: Option<String>,
    #[serde(default)]
    base_dir: Option<PathBuf>,
}

impl RestartRequest {
    fn changed(self) -> Result<Option<Submission>, Refusal> {
        match self {
            RestartRequest { job_toml: Some(job_toml), base_dir } => Ok(Some(Submission { job_toml, base_dir })),
            RestartRequest { job_toml: None, base_dir: None } => Ok(None),
            RestartRequest { job_toml: None, base_dir: Some(_) } => {
                let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "there is a base_dir, and no job_toml");
                Err(refusal.help("send the changed job file as job_toml, or neither of the two"))
            }
        }
    }
}

pub async fn list(State(api): State<Arc<Api>>) -> Result<Json<JobList>, Refusal> {
    let jobs = to_its_end(async move { Ok(api.daemon.jobs()) }).await?;
    Ok(Json(JobList { jobs }))
}

pub async fn submit(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<JobInfo>), Refusal> {
    let submission = body::json::<Submission>(request, api.patience).await?;
    let job = to_its_end(async move { api.daemon.submit(submission).await }).await?;
    Ok((StatusCode::CREATED, [(LOCATION, format!("/v1/jobs/{}", job.name))], Json(job)))
}

pub async fn show(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
) -> Result<Json<JobInfo>, Refusal> {
    let job = in_path(job)?;
    Ok(Json(to_its_end(async move { api.daemon.job(&job) }).await?))
}

pub async fn delete(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let job = in_path(job)?;
    to_its_end(async move { api.daemon.delete(&job).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn stop(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<JobInfo>, Refusal> {
    let job = in_path(job)?;
    let StopRequest { mode } = body::json_or_default(request, api.patience).await?;
    Ok(Json(to_its_end(async move { api.daemon.stop(&job, mode).await }).await?))
}

pub async fn restart(
    State(api): State<Arc<Api>>,
    job: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<JobInfo>, Refusal> {
    let job = in_path(job)?;
    let changed = body::json_or_default::<RestartRequest>(request, api.patience).await?.changed()?;
    Ok(Json(to_its_end(async move { api.daemon.restart(&job, changed).await }).await?))
}

pub async fn upgrade(
    State(api): State<Arc<Api>>,
    names: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Json<UpgradeInfo>, Refusal> {
    let (job, operator) = in_path(names)?;
    let wish = body::json::<UpgradeSpec>(request, api.patience).await?;
    Ok(Json(to_its_end(async move { api.daemon.upgrade(&job, &operator, wish).await }).await?))
}
