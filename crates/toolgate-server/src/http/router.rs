//! All routes, grouped by who may call them, and the OpenAPI document generated from them.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tower::util::MapRequest;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::models::endpoints;
use super::{App, admin, auth, error, execute, health, mcp, models, request, results, sse, ui};

/// Maximum size of a request body.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// HTTP API of Toolgate, an MCP gateway.
#[derive(OpenApi)]
#[openapi(info(
    title = "Toolgate",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Document;

pub(crate) fn router(app: App) -> Router {
    let admin = admin_routes().layer(from_fn_with_state(app.clone(), auth::require_admin));
    let approvers =
        approver_routes().layer(from_fn_with_state(app.clone(), auth::require_approver));
    let runners = run_routes().layer(from_fn_with_state(app.clone(), auth::require_run_access));
    let callers = caller_routes().layer(from_fn_with_state(app.clone(), auth::require_caller));
    let (router, _) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(admin)
        .merge(approvers)
        .merge(runners)
        .merge(callers)
        .merge(probe_routes())
        .split_for_parts();
    router
        .merge(page_routes())
        .nest_service("/openai", provider_routes(&app, "openai"))
        .nest_service("/anthropic", provider_routes(&app, "anthropic"))
        .fallback(error::route_not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(app.clone(), request::request_layer))
        .with_state(app)
}

/// Routes that require the admin key, or a loopback connection if the admin key is off.
fn admin_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(admin::clients::list))
        .routes(routes!(admin::changes::add))
        .routes(routes!(admin::changes::test))
        .routes(routes!(
            admin::clients::get,
            admin::changes::patch,
            admin::changes::remove
        ))
        .routes(routes!(admin::changes::reconnect))
        .routes(routes!(admin::changes::import))
        .routes(routes!(
            admin::changes::tool_manager,
            admin::changes::set_tool_manager
        ))
        .routes(routes!(admin::tools::list))
        .routes(routes!(admin::explain::explain))
        .routes(routes!(admin::tools::versions))
        .routes(routes!(admin::definitions::list))
        .routes(routes!(admin::definitions::trust))
        .routes(routes!(
            admin::permissions::get,
            admin::permissions::put,
            admin::permissions::reset
        ))
        .routes(routes!(admin::permissions::revoke_grant))
        .routes(routes!(admin::keys::list, admin::keys::add))
        .routes(routes!(
            admin::keys::get,
            admin::keys::patch,
            admin::keys::remove
        ))
        .routes(routes!(admin::keys::rotate))
        .routes(routes!(
            admin::key_requirement::get,
            admin::key_requirement::put
        ))
        .routes(routes!(admin::roles::list))
        .routes(routes!(
            admin::roles::get,
            admin::roles::put,
            admin::roles::remove
        ))
        .routes(routes!(admin::virtual_servers::list))
        .routes(routes!(
            admin::virtual_servers::put,
            admin::virtual_servers::remove
        ))
        .routes(routes!(admin::providers::list))
        .routes(routes!(admin::providers::put, admin::providers::remove))
        .routes(routes!(admin::code::files))
        .routes(routes!(admin::code::run))
        .routes(routes!(admin::audit::list))
        .routes(routes!(admin::audit::status))
        .routes(routes!(admin::events::events))
        .routes(routes!(admin::stats::stats))
        .routes(routes!(admin::status::get))
        .routes(routes!(admin::problems::list))
        .routes(routes!(admin::openapi))
        .routes(routes!(health::metrics))
}

/// Routes that require the admin key or a caller key with the role `approver`.
fn approver_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(admin::approvals::list))
        .routes(routes!(admin::approvals::get, admin::approvals::decide))
}

/// Routes that require the admin key, or a caller key to access that caller's own runs.
fn run_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(admin::runs::list))
        .routes(routes!(admin::runs::get))
        .routes(routes!(admin::runs::cancel))
        .routes(routes!(admin::runs::resume))
}

/// Routes for callers: require a caller key, or a loopback connection while keys are not required.
fn caller_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(execute::execute))
        .merge(model_routes())
        .routes(routes!(results::read_result))
        .routes(routes!(mcp::post_all, mcp::listen, mcp::end_session))
        .routes(routes!(mcp::post_server))
        .route("/mcp/{server}", get(mcp::listen).delete(mcp::end_session))
        .routes(routes!(mcp::post_virtual))
        .route("/mcp/v/{name}", get(mcp::listen).delete(mcp::end_session))
        .routes(routes!(sse::open_all))
        .routes(routes!(sse::open_server))
        .routes(routes!(sse::post_message))
}

/// Routes of the model APIs.
fn model_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(models::chat))
        .routes(routes!(models::responses))
        .routes(routes!(models::input_tokens))
        .routes(routes!(models::stored::get, models::stored::delete))
        .routes(routes!(models::stored::cancel))
        .routes(routes!(models::stored::input_items))
        .routes(routes!(models::messages))
        .routes(routes!(models::count_tokens))
        .routes(routes!(models::list))
        .routes(routes!(models::get))
        .route("/v1/models/{id}/{*model}", get(models::get_qualified))
        .routes(routes!(endpoints::embeddings))
        .routes(routes!(endpoints::completions))
        .routes(routes!(endpoints::moderations))
        .routes(routes!(endpoints::rerank))
        .routes(routes!(endpoints::image_generations))
        .routes(routes!(endpoints::image_edits))
        .routes(routes!(endpoints::image_variations))
        .routes(routes!(endpoints::speech))
        .routes(routes!(endpoints::transcriptions))
        .routes(routes!(endpoints::translations))
}

/// Returns the model APIs for a base URL that names a provider, such as `/openai` or `/openai/v1`: models
/// whose names have no provider are that one's.
fn provider_routes(
    app: &App,
    provider: &'static str,
) -> MapRequest<Router, impl Fn(Request) -> Request + Clone + Send + Sync + 'static> {
    let (routes, _) = model_routes()
        .layer(from_fn_with_state(app.clone(), auth::require_caller))
        .split_for_parts();
    let routes = routes
        .fallback(error::route_not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .with_state(app.clone());
    MapRequest::new(routes, move |request| {
        models::with_provider(request, provider)
    })
}

/// Routes that need no authentication.
fn probe_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
}

/// The web page, which needs no authentication: it holds no data and fetches everything from the API.
fn page_routes() -> Router<App> {
    Router::new()
        .route("/", get(ui::index))
        .route("/favicon.svg", get(ui::favicon))
        .route("/assets/{name}", get(ui::asset))
}

/// Generates the OpenAPI document of all routes.
pub(crate) fn openapi() -> utoipa::openapi::OpenApi {
    OpenApiRouter::<App>::with_openapi(Document::openapi())
        .merge(admin_routes())
        .merge(approver_routes())
        .merge(run_routes())
        .merge(caller_routes())
        .merge(probe_routes())
        .into_openapi()
}
