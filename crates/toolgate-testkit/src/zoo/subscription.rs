//! Subscriptions: log levels and resources of legacy clients, listen streams of modern clients.

use super::change::ListenFilter;
use super::peers::is_log_level;
use super::rpc::{INVALID_PARAMS, RpcParams, ZooError};
use super::server::{CallOutcome, ZooCall};

impl ZooCall<'_> {
    /// Stores a legacy client's log level or resource subscription.
    pub(crate) fn update_client_settings(&self) -> Result<String, ZooError> {
        let RpcParams { level, uri, .. } = &self.request.params;
        let (peers, scope) = (&self.server.peers, &self.origin.scope);
        let uri = uri.as_deref().unwrap_or_default();
        match (self.request.method.as_str(), level.as_deref()) {
            ("resources/subscribe", _) => peers.subscribe(scope, uri),
            ("resources/unsubscribe", _) => peers.unsubscribe(scope, uri),
            (_, Some(level)) if is_log_level(level) => peers.set_log_level(scope, level),
            _ if self.server.fixtures.is_none() => {}
            (_, level) => {
                let message = format!("unknown log level {level:?}");
                return Err(ZooError::new(INVALID_PARAMS, message));
            }
        }
        Ok("{}".to_owned())
    }

    /// Acknowledges the supported changes and announces them until the request is cancelled.
    pub(crate) async fn listen(&self) -> CallOutcome {
        let requested = self.request.params.notifications.as_ref();
        let requested: ListenFilter = match requested.map(|raw| serde_json::from_str(raw.get())) {
            None => ListenFilter::default(),
            Some(Ok(filter)) => filter,
            Some(Err(error)) => {
                return CallOutcome::Error(ZooError::new(INVALID_PARAMS, error.to_string()));
            }
        };
        let filter = match self.server.fixtures {
            Some(_) => requested,
            None => requested.into_tools_only(),
        };
        let includes_tools = filter.tools_list_changed;
        let meta = format!(
            r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#,
            self.request.id
        );
        let params = format!("{{{meta}}}");
        let outbox = self.outbox.clone();
        let _guard = self.server.peers.listen(filter, meta, outbox);
        if includes_tools {
            self.server.send_list_changed_storm(&params, self.outbox);
        }
        self.wait_for_cancellation().await;
        CallOutcome::Nothing
    }
}
