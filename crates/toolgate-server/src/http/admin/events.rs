//! `GET /api/events`: live server, approval and call events as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolgate::{GatewayEvent, GatewayEvents};

use super::approvals::ApprovalView;
use super::audit::RecordView;
use crate::http::App;

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A server's new state.
#[derive(Debug, Serialize)]
struct ServerStateView {
    server: String,
    state: &'static str,
    reason: Option<String>,
}

/// Stream events: `server`, `approval` and `call`, each with the object as the API returns it. `missed`
/// is the number of events dropped because the client read too slowly.
#[utoipa::path(get, path = "/api/events", tag = "api",
    responses((status = 200, description = "an event stream", content_type = "text/event-stream", body = String)))]
pub(crate) async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    let state = (app.gateway().events(), app.stopping());
    let stream = stream::unfold(state, |(mut events, stopping)| async move {
        let event = next_event(&mut events, &stopping).await?;
        Some((Ok(event), (events, stopping)))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Returns the next event, or `None` once the gateway shuts down.
async fn next_event(events: &mut GatewayEvents, stopping: &CancellationToken) -> Option<SseEvent> {
    let received = tokio::select! {
        received = events.recv() => received,
        () = stopping.cancelled() => return None,
    };
    match received {
        Ok(event) => Some(to_sse_event(&event)),
        Err(RecvError::Lagged(missed)) => {
            Some(SseEvent::default().event("missed").data(missed.to_string()))
        }
        Err(RecvError::Closed) => None,
    }
}

fn to_sse_event(event: &GatewayEvent) -> SseEvent {
    let json = match event {
        GatewayEvent::Server(server) => serde_json::to_string(&ServerStateView {
            server: server.server.clone(),
            state: server.state.as_str(),
            reason: server.reason.clone(),
        }),
        GatewayEvent::Approval(approval) => serde_json::to_string(&ApprovalView::new(approval)),
        GatewayEvent::Call(record) => serde_json::to_string(&RecordView::new((**record).clone())),
        _ => Ok("{}".to_owned()),
    };
    let json = json.unwrap_or_else(|error| {
        tracing::error!(event = event.kind(), %error, "failed to encode event");
        "{}".to_owned()
    });
    SseEvent::default().event(event.kind()).data(json)
}
