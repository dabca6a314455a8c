//! What can be asked: one table of methods and paths, from which the router is made.
//!
//! Invariant: the table is all that there is, and `openapi.json` describes each of its entries; a test compares the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::api::refusal::{Refusal, quoted};
use crate::api::{Api, guard, jobs, page, plugins, savepoints, texts};

pub struct Route {
    pub method: Method,
    /// As in OpenAPI, which is as in axum.
    pub path: &'static str,
    to: fn(MethodFilter) -> MethodRouter<Arc<Api>>,
}

const fn route(method: Method, path: &'static str, to: fn(MethodFilter) -> MethodRouter<Arc<Api>>) -> Route {
    Route { method, path, to }
}

pub const ROUTES: [Route; 20] = [
    route(Method::GET, "/", |method| on(method, page::show)),
    route(Method::GET, guard::OPEN_PATH, |method| on(method, texts::health)),
    route(Method::GET, "/metrics", |method| on(method, texts::metrics)),
    route(Method::GET, "/openapi.json", |method| on(method, texts::openapi)),
    route(Method::GET, "/v1/plugins", |method| on(method, plugins::list)),
    route(Method::POST, "/v1/plugins", |method| on(method, plugins::upload)),
    route(Method::GET, "/v1/plugins/{hash}", |method| on(method, plugins::show)),
    route(Method::DELETE, "/v1/plugins/{hash}", |method| on(method, plugins::remove)),
    route(Method::GET, "/v1/jobs", |method| on(method, jobs::list)),
    route(Method::POST, "/v1/jobs", |method| on(method, jobs::submit)),
    route(Method::GET, "/v1/jobs/{job}", |method| on(method, jobs::show)),
    route(Method::DELETE, "/v1/jobs/{job}", |method| on(method, jobs::delete)),
    route(Method::POST, "/v1/jobs/{job}/stop", |method| on(method, jobs::stop)),
    route(Method::POST, "/v1/jobs/{job}/restart", |method| on(method, jobs::restart)),
    route(Method::POST, "/v1/jobs/{job}/operators/{operator}/upgrade", |method| on(method, jobs::upgrade)),
    route(Method::GET, "/v1/jobs/{job}/checkpoints", |method| on(method, savepoints::checkpoints)),
    route(Method::GET, "/v1/jobs/{job}/savepoints", |method| on(method, savepoints::list)),
    route(Method::POST, "/v1/jobs/{job}/savepoints", |method| on(method, savepoints::take)),
    route(Method::GET, "/v1/jobs/{job}/savepoints/{epoch}", |method| on(method, savepoints::show)),
    route(Method::DELETE, "/v1/jobs/{job}/savepoints/{epoch}", |method| on(method, savepoints::delete)),
];

pub fn router() -> Router<Arc<Api>> {
    let mut by_path: BTreeMap<&str, MethodRouter<Arc<Api>>> = BTreeMap::new();
    for Route { method, path, to } in ROUTES {
        let filter = MethodFilter::try_from(method).expect("the table has known methods only");
        let others = by_path.remove(path).unwrap_or_default();
        by_path.insert(path, others.merge(to(filter)));
    }
    let router = by_path.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router.fallback(nothing_here)
}

async fn nothing_here(uri: Uri) -> Refusal {
    let refusal = Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", quoted(uri.path())));
    refusal.help("what can be asked stands in /openapi.json")
}
