//! One request about a resource or prompt: decides whether it may be sent, and sends it.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::Catalog;
use toolgate_core::hash::sha256_hex;
use toolgate_core::name::{ToolId, ToolName};
use toolgate_core::policy::{Decision, ServerItem, Verdict};
use toolgate_mcp::fair_queue::Slot;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::{LaneAccess, LaneNeed};
use tracing::Span;

use super::dispatch::{ResponseWait, TimeLimit, WantedLane};
use super::limits::LimitTarget;
use super::rules::{Rules, describe_item};
use super::{CallProgress, Inner, dispatch};
use crate::approval::{ApprovalOrigin, ApprovalRequest, Clearance, ToolFingerprint};
use crate::call::{Arguments, CallError, ClientSession, RequestContext};
use crate::caller::Caller;
use crate::trace;

/// A request about a resource or prompt, with the rules in force when it was made.
#[derive(Clone, Copy)]
pub(super) struct ItemRequest<'a> {
    pub(super) rules: &'a Rules,
    pub(super) caller: &'a Caller,
    pub(super) context: &'a RequestContext,
    pub(super) item: ServerItem<'a>,
    pub(super) method: &'static str,
    pub(super) params: &'a Object,
    pub(super) limit: TimeLimit,
}

/// Permission to send a request; holds the concurrency slot of the caller's key.
pub(super) struct ItemPermit {
    _slot: Option<Slot>,
}

impl ItemRequest<'_> {
    /// Returns the id under which approvals of the request are stored.
    pub(super) fn tool_id(&self) -> ToolId {
        ToolId {
            server: self.item.server().clone(),
            tool: ToolName::new(self.method),
        }
    }
}

/// Returns the definition of a resource or prompt in its server's list, if it has one there.
fn listed_definition<'a>(catalog: &'a Catalog, item: ServerItem<'_>) -> Option<&'a str> {
    let listing = catalog.listing(item.server())?;
    let (items, key) = match item {
        ServerItem::Resource { uri, .. } => (&listing.resources, uri),
        ServerItem::Prompt { name, .. } => (&listing.prompts, name),
    };
    let listed = items.iter().find(|listed| listed.key == key);
    listed.map(|listed| listed.definition.get())
}

impl Inner {
    /// Decides whether a request about a resource or prompt may be sent, and charges it.
    pub(super) async fn authorize_item(
        &self,
        request: &ItemRequest<'_>,
        progress: &mut CallProgress,
    ) -> Result<ItemPermit, CallError> {
        let ItemRequest {
            rules,
            caller,
            item,
            ..
        } = *request;
        let decision = rules.judge_item(caller, &request.context.filters, item)?;
        let record = &mut progress.attempt.record;
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
                let deadline = request.limit.deadline;
                rules.limits.acquire_slot(&key, &None, deadline).await?
            }
            None => None,
        };
        if decision.verdict == Verdict::Ask {
            Box::pin(self.obtain_item_approval(request, &decision, progress)).await?;
        }
        self.charge_price(rules, caller, 0, progress).await?;
        Ok(ItemPermit { _slot: slot })
    }

    /// Opens the record of a permitted request and waits for a lane to its server. Afterwards, the
    /// request counts as sent.
    pub(super) async fn prepare_to_send(
        &self,
        request: &ItemRequest<'_>,
        session: Option<&ClientSession>,
        progress: &mut CallProgress,
    ) -> Result<LaneAccess, CallError> {
        progress.attempt.open().await?;
        let server = request.item.server();
        let registry = &self.deps.registry;
        let owner = request.caller.share_owner().cloned();
        let wanted = WantedLane {
            server,
            session,
            need: self.lane_need(request),
            reconnect_wait: request.rules.reconnect_wait(server),
        };
        let access = dispatch::acquire_lane(registry, wanted, &owner, request.limit).await?;
        progress.mark_sent(&request.tool_id());
        Ok(access)
    }

    /// Returns whether the server lists the item only for clients like this one.
    fn lane_need(&self, request: &ItemRequest<'_>) -> LaneNeed {
        let common = self.deps.registry.catalog();
        let seen = common.for_client(request.context.filters.client.as_ref());
        let seen = listed_definition(&seen, request.item);
        let common = listed_definition(&common, request.item);
        if seen.is_none() || seen == common {
            LaneNeed::Optional
        } else {
            LaneNeed::Required
        }
    }

    /// Sends a permitted request to its server.
    pub(super) async fn send_item_request(
        &self,
        request: &ItemRequest<'_>,
        _permit: ItemPermit,
        upstream: UpstreamRequest,
        progress: &mut CallProgress,
    ) -> Result<Box<RawValue>, CallError> {
        let ItemRequest { rules, context, .. } = *request;
        let server = request.item.server();
        let session = context.session.as_ref();
        let session = session.filter(|_| rules.has_session_lanes(server));
        let access = self.prepare_to_send(request, session, progress).await?;
        let trace = trace::outgoing_context(&*self.deps.tracer, &Span::current(), context);
        let mut headers = rules.forwarded_headers(server, &context.headers);
        trace.insert_into_headers(&mut headers);
        let upstream = UpstreamRequest {
            headers,
            meta: trace.append_to_meta(context.meta.clone()),
            handler: context.client_handler.clone(),
            modern_client: context.modern_client.clone(),
            log_level: context.log_level,
            ..upstream
        };
        let wait = ResponseWait::new(context, &access, request.limit);
        let answer = dispatch::send_request(access, session, upstream, wait).await;
        if answer.as_ref().is_err_and(CallError::is_not_sent) {
            progress.mark_unsent(&request.tool_id());
        }
        Ok(self.sanitize_raw(answer?, rules))
    }

    /// Claims an approval or requests one. Only reads can be approved: nobody can decide about the
    /// completions or updates that follow from one request.
    async fn obtain_item_approval(
        &self,
        request: &ItemRequest<'_>,
        decision: &Decision,
        progress: &mut CallProgress,
    ) -> Result<(), CallError> {
        if !matches!(request.method, "resources/read" | "prompts/get") {
            return Err(CallError::Denied {
                alias: describe_item(request.item),
                because: decision.decided_by.to_string(),
                reason: format!("`{}` cannot be approved", request.method),
                approval: None,
            });
        }
        let record = &mut progress.attempt.record;
        let approval = self.item_approval_request(request, decision, &record.request_id)?;
        let expiry = request.rules.approvals.expiry;
        let cleared = self.deps.approvals.obtain_clearance(approval, expiry).await;
        record.approval = match &cleared {
            Ok(Clearance::Ticket(ticket)) => Some(ticket.approval().id.clone()),
            Ok(Clearance::Granted { approval }) => Some(approval.clone()),
            Err(error) => error
                .required_approval()
                .map(|required| required.id.to_owned()),
        };
        if let Clearance::Ticket(ticket) = cleared? {
            progress.add_ticket(ticket);
        }
        Ok(())
    }

    fn item_approval_request(
        &self,
        request: &ItemRequest<'_>,
        decision: &Decision,
        request_id: &str,
    ) -> Result<ApprovalRequest, CallError> {
        let ItemRequest {
            rules,
            caller,
            item,
            ..
        } = *request;
        let arguments = Arguments::parse(&request.params.to_string())?;
        let approvers = rules.approvers(caller, item.server(), decision);
        Ok(ApprovalRequest {
            tool: request.tool_id(),
            alias: describe_item(item),
            digest: arguments.digest(),
            arguments: arguments.raw().to_owned(),
            fingerprint: self.item_fingerprint(request),
            rule: decision.decided_by.to_string(),
            from: ApprovalOrigin {
                caller: caller.key().map(|key| key.to_string()),
                session: caller.session().map(ToOwned::to_owned),
                origin: caller.origin.as_str().to_owned(),
                request_id: request_id.to_owned(),
                run_id: request.context.run.clone(),
            },
            // Clients are asked about tool calls only.
            approvers: approvers.without_client(),
            client_can_approve: false,
            conversation: None,
        })
    }

    /// Returns the fingerprint with which approvals are bound to one resource or prompt.
    fn item_fingerprint(&self, request: &ItemRequest<'_>) -> ToolFingerprint {
        let ItemRequest { rules, item, .. } = *request;
        let client = request.context.filters.client.as_ref();
        let server_rules = rules.servers.get(item.server());
        let definition = match item {
            ServerItem::Resource { uri, .. } => format!("resource {}", sha256_hex(uri)),
            ServerItem::Prompt { server, name } => {
                let catalog = self.deps.registry.catalog().for_client(client);
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
