//! The context of a call, passed to the in-process tool that handles it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;
use toolgate_core::caller::Caller;

use crate::client_handler::ClientHandler;
use crate::transport::OutgoingRequest;

/// The caller of a tool and the request that the call belongs to. Only in-process tools receive it.
#[derive(Clone, Debug)]
pub struct CallIdentity {
    /// The caller.
    pub caller: Caller,
    /// Id of the request, as in the audit trail.
    pub request_id: String,
}

/// The context of one call of an in-process tool. Clones share it.
#[derive(Clone, Debug)]
pub struct ToolContext {
    identity: Arc<CallIdentity>,
    handler: Option<Arc<dyn ClientHandler>>,
    cancellation: CancellationToken,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    /// Replaced by the client's own token.
    progress_token: u64,
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl CallIdentity {
    fn unknown() -> Self {
        Self {
            caller: Caller::library(),
            request_id: String::new(),
        }
    }
}

impl ToolContext {
    /// Creates a context outside a gateway, for tests of a tool.
    pub fn new(caller: Caller, request_id: &str) -> Self {
        let identity = CallIdentity {
            caller,
            request_id: request_id.to_owned(),
        };
        Self {
            identity: Arc::new(identity),
            handler: None,
            cancellation: CancellationToken::new(),
        }
    }

    pub(super) fn of_request(request: &OutgoingRequest) -> Self {
        let identity = request.identity.clone();
        Self {
            identity: identity.unwrap_or_else(|| Arc::new(CallIdentity::unknown())),
            handler: request.handler.clone(),
            cancellation: CancellationToken::new(),
        }
    }

    /// Returns the caller: its key, session and origin.
    pub fn caller(&self) -> &Caller {
        &self.identity.caller
    }

    /// Returns the id of the request, as in logs and the audit trail.
    pub fn request_id(&self) -> &str {
        &self.identity.request_id
    }

    /// Reports progress to the caller, which may or may not show it. `progress` must increase with
    /// every report of a call; `total` is its final value if that is known.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(handler) = &self.handler else {
            return;
        };
        let params = ProgressParams {
            progress_token: 0,
            progress,
            total,
            message,
        };
        // Infinite and undefined numbers have no JSON; reporting progress must not fail a call.
        if let Ok(params) = to_raw_value(&params) {
            handler.on_notification("notifications/progress", Some(&params));
        }
    }

    /// Returns the token that is cancelled when the call is cancelled or times out. The tool's own
    /// future is dropped then; the token is for work that the tool has spawned.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Waits until the call is cancelled.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }
}
