//! Resources and prompts of servers. Requests about them pass the same gates as tool calls: scope,
//! rules, approvals, limits and budgets, with one record each.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use toolgate_core::hash::sha256_hex;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::policy::{Decision, ServerItem, Verdict};
use toolgate_core::scope::{AccessView, Filters};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::ResourceSubscription;
use tracing::Span;

use super::limits::LimitTarget;
use super::rules::{Rules, describe_item};
use super::{Inner, dispatch};
use crate::approval::{Approval, ApprovalOrigin, ApprovalRequest, Clearance, ToolFingerprint};
use crate::audit::{AuditKind, AuditRecord};
use crate::call::{Arguments, CallError, RequestContext};
use crate::caller::Caller;

/// Handle for the resources and prompts of servers.
#[derive(Clone, Copy, Debug)]
pub struct Resources<'a>(&'a Inner);

/// A request about a resource or prompt, with the rules in force when it was made.
#[derive(Clone, Copy)]
pub(super) struct ItemRequest<'a> {
    pub(super) rules: &'a Rules,
    pub(super) caller: &'a Caller,
    pub(super) context: &'a RequestContext,
    pub(super) item: ServerItem<'a>,
    pub(super) method: &'static str,
    pub(super) params: &'a Object,
}

/// Permission to send a request; holds the concurrency slot of the caller's key.
pub(super) struct ItemPermit {
    _slot: Option<OwnedSemaphorePermit>,
    /// The approval that the request uses up.
    ticket: Option<Box<Approval>>,
}

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
        let audit = &self.0.deps.audit;
        let record = request_record(caller, context, item, upstream.method);
        let mut attempt = audit.begin(Box::new(record), Span::none()).await?;
        let rules = self.0.rules.load_full();
        let params = upstream.params.clone();
        let request = ItemRequest {
            rules: &rules,
            caller,
            context,
            item,
            method: upstream.method,
            params: &params,
        };
        let answer = async {
            check_key_rate(&rules, caller)?;
            let permit = self.0.authorize_item(&request, &mut attempt.record).await?;
            attempt.open().await?;
            self.0
                .send_item_request(&request, permit, upstream, &mut attempt.record)
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
        context: &RequestContext,
        server: &ServerName,
        uri: &str,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<ResourceSubscription, CallError> {
        let rules = self.0.rules.load_full();
        let item = ServerItem::Resource { server, uri };
        let method = "resources/subscribe";
        let record = request_record(caller, context, item, method);
        let audit = &self.0.deps.audit;
        let mut attempt = audit.begin(Box::new(record), Span::none()).await?;
        let request = ItemRequest {
            rules: &rules,
            caller,
            context,
            item,
            method,
            params: &Object::new().text("uri", uri),
        };
        let answer = async {
            check_key_rate(&rules, caller)?;
            let _permit = self.0.authorize_item(&request, &mut attempt.record).await?;
            attempt.open().await?;
            let timeout = rules.server_timeout(server);
            let registry = &self.0.deps.registry;
            dispatch::subscribe_resource(registry, server, uri, handler, timeout).await
        };
        let answer = answer.await;
        attempt.close_request(&answer, 0).await;
        answer
    }
}

impl Inner {
    /// Decides whether a request about a resource or prompt may be sent, and charges it.
    pub(super) async fn authorize_item(
        &self,
        request: &ItemRequest<'_>,
        record: &mut AuditRecord,
    ) -> Result<ItemPermit, CallError> {
        let ItemRequest {
            rules,
            caller,
            context,
            item,
            ..
        } = *request;
        let decision = rules.judge_item(caller, &context.filters, item)?;
        record.verdict = Some(decision.verdict.as_str().to_owned());
        record.rule = Some(decision.decided_by.to_string());
        if decision.verdict == Verdict::Manual && caller.origin.is_unattended() {
            return Err(CallError::ManualOnly(describe_item(item)));
        }
        let server = LimitTarget::Server(item.server().clone());
        rules.limits.check_rate(&server)?;
        let slot = match caller.key() {
            Some(key) => {
                let key = LimitTarget::Key(Arc::clone(key));
                let timeout = rules.server_timeout(item.server());
                rules.limits.acquire_slot(&key, timeout).await?
            }
            None => None,
        };
        let ticket = if decision.verdict == Verdict::Ask {
            Box::pin(self.obtain_item_approval(request, &decision, record)).await?
        } else {
            None
        };
        let charged = self.charge_price(rules, caller, 0, record).await;
        if let (Err(_), Some(ticket)) = (&charged, &ticket) {
            self.deps.approvals.release_ticket((**ticket).clone()).await;
        }
        charged?;
        Ok(ItemPermit {
            _slot: slot,
            ticket,
        })
    }

    /// Sends a permitted request to its server.
    pub(super) async fn send_item_request(
        &self,
        request: &ItemRequest<'_>,
        permit: ItemPermit,
        upstream: UpstreamRequest,
        record: &mut AuditRecord,
    ) -> Result<Box<RawValue>, CallError> {
        // The approval is used up before anything is sent: it must not be used twice.
        if let Some(ticket) = permit.ticket {
            self.deps.approvals.mark_done(*ticket).await;
        }
        let ItemRequest {
            rules,
            caller,
            context,
            item,
            ..
        } = *request;
        let answer = self
            .send_request(rules, context, item.server(), upstream)
            .await;
        if answer.as_ref().is_err_and(CallError::is_not_sent) {
            self.refund(caller, record);
        }
        Ok(self.sanitize_raw(answer?, rules))
    }

    /// Claims an approval or requests one. Only reads can be approved: nobody can decide about the
    /// completions or updates that follow from one request.
    async fn obtain_item_approval(
        &self,
        request: &ItemRequest<'_>,
        decision: &Decision,
        record: &mut AuditRecord,
    ) -> Result<Option<Box<Approval>>, CallError> {
        let (alias, because) = (describe_item(request.item), decision.decided_by.to_string());
        if !matches!(request.method, "resources/read" | "prompts/get") {
            return Err(CallError::Denied {
                alias,
                because,
                reason: format!("`{}` cannot be approved", request.method),
                approval: None,
            });
        }
        let arguments = Arguments::parse(&request.params.to_string())?;
        let ItemRequest {
            rules,
            caller,
            context,
            item,
            ..
        } = *request;
        let server = item.server();
        let approval = ApprovalRequest {
            tool: ToolId {
                server: server.clone(),
                tool: ToolName::new(request.method),
            },
            alias,
            digest: arguments.digest(),
            arguments: arguments.raw().to_owned(),
            fingerprint: self.item_fingerprint(rules, item),
            rule: because,
            from: ApprovalOrigin {
                caller: caller.key().map(|key| key.to_string()),
                session: caller.session().map(ToOwned::to_owned),
                origin: caller.origin.as_str().to_owned(),
                request_id: record.request_id.clone(),
                run_id: context.run.clone(),
            },
            // Clients are asked about tool calls only.
            approvers: rules.approvers(caller, server, decision).without_client(),
            client_can_approve: false,
            conversation: None,
        };
        let expiry = rules.approvals.expiry;
        let cleared = self.deps.approvals.obtain_clearance(approval, expiry).await;
        record.approval = match &cleared {
            Ok(Clearance::Ticket(ticket)) => Some(ticket.id.clone()),
            Ok(Clearance::Granted { approval }) => Some(approval.clone()),
            Err(error) => error
                .required_approval()
                .map(|required| required.id.to_owned()),
        };
        Ok(match cleared? {
            Clearance::Ticket(ticket) => Some(ticket),
            Clearance::Granted { .. } => None,
        })
    }

    /// Returns the fingerprint with which approvals are bound to one resource or prompt.
    fn item_fingerprint(&self, rules: &Rules, item: ServerItem<'_>) -> ToolFingerprint {
        let server_rules = rules.servers.get(item.server());
        let definition = match item {
            ServerItem::Resource { uri, .. } => format!("resource {}", sha256_hex(uri)),
            ServerItem::Prompt { server, name } => {
                let catalog = self.deps.registry.catalog();
                let mut prompts = catalog.listing(server).into_iter().flat_map(|l| &l.prompts);
                let prompt = prompts.find(|prompt| prompt.key == name);
                let definition = prompt.map_or("", |prompt| prompt.definition.get());
                format!("prompt {}", sha256_hex(format!("{name}\0{definition}")))
            }
        };
        ToolFingerprint {
            server: server_rules
                .map(|server_rules| server_rules.fingerprint.clone())
                .unwrap_or_default(),
            definition,
        }
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
