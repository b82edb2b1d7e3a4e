//! `GET /api/events`: what happens, as it happens, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolgate::Event;

use super::approvals::ApprovalView;
use super::audit::RecordView;
use crate::http::App;

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A server in a new state.
#[derive(Debug, Serialize)]
struct ServerView {
    server: String,
    state: &'static str,
    reason: Option<String>,
}

/// Events `server`, `approval` and `call`, each with the object as the API shows it. `missed` says
/// how many were too many for a slow reader.
#[utoipa::path(get, path = "/api/events", tag = "api",
    responses((status = 200, description = "an event stream", content_type = "text/event-stream", body = String)))]
pub(crate) async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    let heard = (app.gateway().events(), app.stopping());
    let stream = stream::unfold(heard, |(mut events, stopping)| async move {
        let event = next(&mut events, &stopping).await?;
        Some((Ok(event), (events, stopping)))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// The next event; none once the gateway is about to end.
async fn next(events: &mut Receiver<Event>, stopping: &CancellationToken) -> Option<SseEvent> {
    let heard = tokio::select! {
        heard = events.recv() => heard,
        () = stopping.cancelled() => return None,
    };
    match heard {
        Ok(event) => Some(written(&event)),
        Err(RecvError::Lagged(missed)) => {
            Some(SseEvent::default().event("missed").data(missed.to_string()))
        }
        Err(RecvError::Closed) => None,
    }
}

fn written(event: &Event) -> SseEvent {
    let json = match event {
        Event::Server(server) => serde_json::to_string(&ServerView {
            server: server.server.clone(),
            state: server.state.as_str(),
            reason: server.reason.clone(),
        }),
        Event::Approval(approval) => serde_json::to_string(&ApprovalView::new(approval)),
        Event::Call(record) => serde_json::to_string(&RecordView::new((**record).clone())),
    };
    SseEvent::default()
        .event(event.kind())
        .data(json.unwrap_or_default())
}
