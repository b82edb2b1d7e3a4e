//! `/api/problems`: what needs an administrator's attention although the gateway goes on serving.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::App;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemList {
    problems: Vec<ConfigurationProblem>,
}

/// A problem of the configuration as a whole; those of a server's definitions are in its own entry.
#[derive(Debug, Serialize, ToSchema)]
struct ConfigurationProblem {
    /// What is wrong, and what to do about it.
    message: String,
}

/// List the problems of the configuration, such as a changed project file that is not trusted.
#[utoipa::path(get, path = "/api/problems", tag = "api", responses((status = 200, body = ProblemList)))]
pub(crate) async fn list(State(app): State<App>) -> Json<ProblemList> {
    let snapshot = app.configuration().snapshot();
    let problems = snapshot
        .problems
        .iter()
        .map(|message| ConfigurationProblem {
            message: message.clone(),
        });
    Json(ProblemList {
        problems: problems.collect(),
    })
}
