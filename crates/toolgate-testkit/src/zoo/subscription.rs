//! What a client wants to hear of from now on: logs and resources in the legacy era, changes on
//! a stream of their own in the modern one.

use super::change::Filter;
use super::peers::is_level;
use super::rpc::{INVALID_PARAMS, Params, RpcError};
use super::server::{Call, Outcome};

impl Call<'_> {
    /// Keeps in mind what a legacy client wants to hear of from now on.
    pub(crate) fn remember(&self) -> Result<String, RpcError> {
        let Params { level, uri, .. } = &self.request.params;
        let (peers, scope) = (&self.server.peers, &self.origin.scope);
        let uri = uri.as_deref().unwrap_or_default();
        match (self.request.method.as_str(), level.as_deref()) {
            ("resources/subscribe", _) => peers.subscribe(scope, uri),
            ("resources/unsubscribe", _) => peers.unsubscribe(scope, uri),
            (_, Some(level)) if is_level(level) => peers.set_level(scope, level),
            _ if self.server.fixtures.is_none() => {}
            (_, level) => {
                let message = format!("unknown log level {level:?}");
                return Err(RpcError::new(INVALID_PARAMS, message));
            }
        }
        Ok("{}".to_owned())
    }

    /// Acknowledges the changes that there may be, and stays to announce them until cancelled.
    pub(crate) async fn listen(&self) -> Outcome {
        let wanted = self.request.params.notifications.as_ref();
        let wanted: Filter = wanted
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let honoured = match self.server.fixtures {
            Some(_) => wanted,
            None => wanted.only_tools(),
        };
        let tools = honoured.tools_list_changed;
        let meta = format!(
            r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#,
            self.request.id
        );
        let storm = format!("{{{meta}}}");
        let outbox = self.outbox.clone();
        let _listening = self.server.peers.listen(honoured, meta, outbox);
        if tools {
            self.server.storm(&storm, self.outbox);
        }
        self.cancelled().await;
        Outcome::Nothing
    }
}
