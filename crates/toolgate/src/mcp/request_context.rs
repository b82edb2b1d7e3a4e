//! The context of one request from an MCP client: caller, era and client.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_contain};
use toolgate_mcp::client_handler::{LogLevel, ModernClient};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::serve::{MessageSender, ModernRequest, RequestMeta};

use super::legacy_client::LegacyClient;
use super::request_notifier::RequestNotifier;
use crate::call::RequestContext;
use crate::caller::Caller;

/// The caller, era and client of a request.
#[derive(Clone, Debug)]
pub struct McpRequestContext {
    pub(super) caller: Caller,
    pub era: Era,
    pub(super) request: Arc<RequestContext>,
    /// The client, if it uses the legacy era.
    pub(super) client: Option<Arc<LegacyClient>>,
}

impl McpRequestContext {
    /// Creates the context of a modern request. Notifications that precede the response are sent
    /// through `sender`.
    pub fn modern(
        caller: Caller,
        request: RequestContext,
        ModernRequest {
            capabilities,
            log_level,
            meta,
        }: ModernRequest,
        params: Option<&RawValue>,
        sender: MessageSender,
    ) -> Self {
        let notifier = RequestNotifier {
            sender,
            progress_token: meta.progress_token,
            client_requests: None,
            min_log_level: log_level,
        };
        let client = ModernClient {
            capabilities: capabilities.get().into(),
            input: input_members(params),
        };
        Self {
            caller,
            era: Era::Modern,
            request: Arc::new(RequestContext {
                meta: meta.forwarded,
                trace: meta.trace,
                client_handler: Some(Arc::new(notifier)),
                modern_client: Some(Arc::new(client)),
                log_level,
                ..request
            }),
            client: None,
        }
    }

    /// Creates the context of a legacy request. Notifications that precede the response are sent
    /// through `sender`.
    pub fn legacy(
        caller: Caller,
        request: RequestContext,
        client: &Arc<LegacyClient>,
        meta: RequestMeta,
        sender: MessageSender,
    ) -> Self {
        let notifier = RequestNotifier {
            sender,
            progress_token: meta.progress_token,
            client_requests: Some(client.client_requests()),
            // A client that has not set a level gets all messages.
            min_log_level: Some(client.log_level().unwrap_or(LogLevel::Debug)),
        };
        Self {
            caller,
            era: Era::Legacy,
            request: Arc::new(RequestContext {
                meta: meta.forwarded,
                trace: meta.trace,
                client_handler: Some(Arc::new(notifier)),
                session: client.client_session(),
                log_level: client.log_level(),
                ..request
            }),
            client: Some(Arc::clone(client)),
        }
    }

    /// Returns the request without the client's input, which answers the gateway and not a server.
    pub(super) fn without_input(&self) -> Arc<RequestContext> {
        let client = self.request.modern_client.as_ref();
        let client = client.map(|client| {
            Arc::new(ModernClient {
                capabilities: Arc::clone(&client.capabilities),
                input: Object::new(),
            })
        });
        Arc::new(RequestContext {
            modern_client: client,
            ..(*self.request).clone()
        })
    }
}

/// Extracts a modern client's responses to an earlier input request, and the server's state.
fn input_members(params: Option<&RawValue>) -> Object {
    let names = ["inputResponses", "requestState"];
    let params = params.map(RawValue::get);
    let params = params.filter(|params| names.iter().any(|name| may_contain(params, name)));
    let members = params.and_then(Members::parse).unwrap_or_default();
    names
        .into_iter()
        .fold(Object::new(), |input, name| match members.get(name) {
            Some(value) => input.raw(name, value.get()),
            None => input,
        })
}
