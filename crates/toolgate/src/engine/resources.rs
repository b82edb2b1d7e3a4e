//! Resources and prompts of servers. Requests about them pass the same gates as tool calls: scope,
//! rules, approvals, limits and budgets, with one record each.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use toolgate_core::name::ServerName;
use toolgate_core::policy::ServerItem;
use toolgate_core::scope::{AccessView, Filters};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::fair_queue::{QueueLimits, Slot};
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::{MAX_SUBSCRIBED_RESOURCES, ResourceSubscription};
use tracing::Span;

use super::dispatch::TimeLimit;
use super::item_request::ItemRequest;
use super::limits::LimitTarget;
use super::rules::Rules;
use super::{CallProgress, Inner, dispatch};
use crate::audit::{AuditKind, AuditRecord};
use crate::call::{CallError, LimitReached, RequestContext};
use crate::caller::Caller;
use crate::metrics::Bound;

/// Maximum size of the URI of a subscription, which is kept with it.
const MAX_SUBSCRIBED_URI_BYTES: usize = 8 * 1024;
/// Time after which a refused subscription is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Subscriptions of all callers and of each key.
pub(super) const SUBSCRIPTIONS: QueueLimits = QueueLimits::shared(MAX_SUBSCRIBED_RESOURCES, 0);

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

    /// Returns whether a resource or prompt is visible to a request.
    pub fn can_see(self, caller: &Caller, filters: &Filters, item: ServerItem<'_>) -> bool {
        let judged = self.0.rules.load().judge_item(caller, filters, item);
        judged.is_ok()
    }

    /// Passes what a request can see of the servers to a function.
    pub(crate) fn with_access<T>(
        self,
        caller: &Caller,
        filters: &Filters,
        read: impl FnOnce(&AccessView<'_>) -> T,
    ) -> Result<T, CallError> {
        let rules = self.0.rules.load();
        let view = rules.access.view(rules.principal(caller)?, filters);
        Ok(read(&view))
    }

    /// Sends a request about a resource or prompt to its server, for example to read it. Dropping
    /// the future cancels it.
    pub async fn send_request(
        self,
        caller: &Caller,
        context: &RequestContext,
        item: ServerItem<'_>,
        upstream: UpstreamRequest,
    ) -> Result<Box<RawValue>, CallError> {
        let mut progress = self.begin(caller, context, item, upstream.method).await?;
        let rules = self.0.rules.load_full();
        let request = ItemRequest {
            rules: &rules,
            caller,
            context,
            item,
            method: upstream.method,
            params: &upstream.params.clone(),
            limit: TimeLimit::start(rules.server_timeout(item.server())),
        };
        let answer = async {
            check_key_rate(&rules, caller)?;
            let permit = self.0.authorize_item(&request, &mut progress).await?;
            self.0
                .send_item_request(&request, permit, upstream, &mut progress)
                .await
        };
        let answer = answer.await;
        let attempt = progress.settle(Some(&answer)).await;
        let size = answer.as_ref().map_or(0, |result| result.get().len());
        attempt.close_request(&answer, size).await;
        answer
    }

    /// Subscribes `handler` to changes of a resource until the returned subscription is dropped.
    pub async fn subscribe(
        self,
        caller: &Caller,
        context: &RequestContext,
        server: &ServerName,
        uri: &str,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<ResourceSubscription, CallError> {
        let item = ServerItem::Resource { server, uri };
        let method = "resources/subscribe";
        let mut progress = self.begin(caller, context, item, method).await?;
        let rules = self.0.rules.load_full();
        let request = ItemRequest {
            rules: &rules,
            caller,
            context,
            item,
            method,
            params: &Object::new().text("uri", uri),
            limit: TimeLimit::start(rules.server_timeout(server)),
        };
        let answer = async {
            check_key_rate(&rules, caller)?;
            let _permit = self.0.authorize_item(&request, &mut progress).await?;
            let slot = self.0.acquire_subscription(caller, uri)?;
            let access = self
                .0
                .prepare_to_send(&request, None, &mut progress)
                .await?;
            let registry = &self.0.deps.registry;
            let limit = request.limit;
            let answer =
                dispatch::subscribe_resource(registry, &access.lane, uri, handler, limit).await;
            // A limit is checked before anything is sent.
            let is_unsent = |error: &CallError| {
                error.is_not_sent() || matches!(error, CallError::Limited { .. })
            };
            if answer.as_ref().is_err_and(is_unsent) {
                progress.mark_unsent(&request.tool_id());
            }
            answer.map(|subscription| subscription.with_slot(slot))
        };
        let answer = answer.await;
        let attempt = progress.settle(Some(&answer)).await;
        attempt.close_request(&answer, 0).await;
        answer
    }

    /// Starts the attempt of a request.
    async fn begin(
        self,
        caller: &Caller,
        context: &RequestContext,
        item: ServerItem<'_>,
        method: &str,
    ) -> Result<CallProgress, CallError> {
        let record = request_record(caller, context, item, method);
        let audit = &self.0.deps.audit;
        let attempt = audit.begin(Box::new(record), Span::none()).await?;
        Ok(CallProgress::new(attempt))
    }
}

/// Returns the record of a request other than a tool call.
fn request_record(
    caller: &Caller,
    request: &RequestContext,
    item: ServerItem<'_>,
    method: &str,
) -> AuditRecord {
    let kind = match method {
        "prompts/get" => AuditKind::Prompt,
        "completion/complete" => AuditKind::Completion,
        _ => AuditKind::Resource,
    };
    let name = match item {
        ServerItem::Resource { uri, .. } => uri,
        ServerItem::Prompt { name, .. } => name,
    };
    let record = AuditRecord::event(kind, name, "open");
    AuditRecord {
        request_id: request.id.clone().unwrap_or(record.request_id),
        parent_id: request.parent.clone(),
        run_id: request.run.clone(),
        caller: caller.key().map(|key| key.to_string()),
        origin: caller.origin.as_str().to_owned(),
        server: Some(item.server().to_string()),
        ..record
    }
}

fn check_key_rate(rules: &Rules, caller: &Caller) -> Result<(), CallError> {
    match caller.key() {
        Some(key) => {
            rules.key_entry(caller)?;
            rules.limits.check_rate(&LimitTarget::Key(Arc::clone(key)))
        }
        None => Ok(()),
    }
}

impl Inner {
    /// Takes a slot for a subscription of the caller.
    fn acquire_subscription(&self, caller: &Caller, uri: &str) -> Result<Slot, CallError> {
        if uri.len() > MAX_SUBSCRIBED_URI_BYTES {
            return Err(CallError::UriTooLong(MAX_SUBSCRIBED_URI_BYTES));
        }
        let slot = self
            .subscriptions
            .try_acquire(&caller.share_owner().cloned());
        slot.ok_or_else(|| {
            let max = match caller.share_owner() {
                Some(_) => SUBSCRIPTIONS.slots_per_owner,
                None => SUBSCRIPTIONS.slots,
            };
            let owner = caller.share_owner().map(|owner| &**owner);
            self.deps
                .metrics
                .report_bound(Bound::Subscriptions, owner.unwrap_or(""));
            CallError::Limited {
                limit: LimitReached::share(owner, Bound::Subscriptions, max),
                retry_after: Some(RETRY_AFTER),
            }
        })
    }
}
