//! Resources and prompts of servers.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::ResourceSubscription;
use tracing::Span;

use super::limits::LimitTarget;
use super::rules::Rules;
use super::{Inner, dispatch};
use crate::audit::{AuditKind, AuditRecord};
use crate::call::{CallError, RequestContext};
use crate::caller::Caller;

/// Handle for the resources and prompts of servers.
#[derive(Clone, Copy, Debug)]
pub struct Resources<'a>(&'a Inner);

impl<'a> Resources<'a> {
    pub(super) fn new(engine: &'a Inner) -> Self {
        Self(engine)
    }

    /// Returns the servers whose resources and prompts are visible to a request.
    pub fn servers(self, caller: &Caller, filters: &Filters) -> Result<Vec<ServerName>, CallError> {
        self.0.rules.load().servers_with_resources(caller, filters)
    }

    /// Sends a request other than a tool call to a server, for example to read a resource. Dropping
    /// the future cancels it.
    pub async fn send_request(
        self,
        caller: &Caller,
        request: &RequestContext,
        server: &ServerName,
        upstream: UpstreamRequest,
    ) -> Result<Box<RawValue>, CallError> {
        let audit = &self.0.deps.audit;
        let record = request_record(caller, request, server, &upstream);
        let mut attempt = audit.begin(Box::new(record), Span::none()).await?;
        let answer = async {
            let rules = self.0.rules.load_full();
            check_key_rate(&rules, caller)?;
            rules.check_resource_access(caller, &request.filters, server)?;
            attempt.open().await?;
            self.0
                .send_request(&rules, caller, request, server, upstream)
                .await
        };
        let answer = answer.await;
        let size = answer.as_ref().map_or(0, |result| result.get().len());
        attempt.close_request(&answer, size).await;
        answer
    }

    /// Subscribes `handler` to changes of a resource until the returned subscription is dropped.
    pub async fn subscribe(
        self,
        caller: &Caller,
        filters: &Filters,
        server: &ServerName,
        uri: &str,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<ResourceSubscription, CallError> {
        let rules = self.0.rules.load_full();
        check_key_rate(&rules, caller)?;
        rules.check_resource_access(caller, filters, server)?;
        let timeout = rules.server_timeout(server);
        let registry = &self.0.deps.registry;
        dispatch::subscribe_resource(registry, server, uri, handler, timeout).await
    }
}

/// Returns the record of a request other than a tool call.
fn request_record(
    caller: &Caller,
    request: &RequestContext,
    server: &ServerName,
    upstream: &UpstreamRequest,
) -> AuditRecord {
    let kind = match upstream.method {
        "prompts/get" => AuditKind::Prompt,
        "completion/complete" => AuditKind::Completion,
        _ => AuditKind::Resource,
    };
    let name = upstream.name.as_deref().unwrap_or(upstream.method);
    let record = AuditRecord::event(kind, name, "open");
    AuditRecord {
        request_id: request.id.clone().unwrap_or(record.request_id),
        parent_id: request.parent.clone(),
        run_id: request.run.clone(),
        caller: caller.key().map(|key| key.to_string()),
        origin: caller.origin.as_str().to_owned(),
        server: Some(server.to_string()),
        ..record
    }
}

fn check_key_rate(rules: &Rules, caller: &Caller) -> Result<(), CallError> {
    match caller.key() {
        Some(key) => rules.limits.check_rate(&LimitTarget::Key(Arc::clone(key))),
        None => Ok(()),
    }
}
