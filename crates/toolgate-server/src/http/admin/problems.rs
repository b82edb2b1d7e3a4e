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

/// A problem of the configuration as a whole, or of definitions that an administrator should read. What
/// a server lists wrongly is in its own entry.
#[derive(Debug, Serialize, ToSchema)]
struct ConfigurationProblem {
    /// What is wrong, and what to do about it.
    message: String,
}

/// List the problems of the configuration, such as a changed project file that is not trusted, and of
/// definitions that changed or look suspicious.
#[utoipa::path(get, path = "/api/problems", tag = "api", responses((status = 200, body = ProblemList)))]
pub(crate) async fn list(State(app): State<App>) -> Json<ProblemList> {
    let snapshot = app.configuration().snapshot();
    let of_definitions = app.gateway().tools().definitions().problems();
    let of_definitions = of_definitions.into_iter();
    let of_definitions =
        of_definitions.map(|(server, problem)| format!("server `{server}`: {problem}"));
    let messages = snapshot.problems.iter().cloned().chain(of_definitions);
    let problems = messages.map(|message| ConfigurationProblem { message });
    Json(ProblemList {
        problems: problems.collect(),
    })
}
