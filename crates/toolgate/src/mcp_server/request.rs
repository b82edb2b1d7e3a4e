//! One request of a client: its caller, era and session, and the dispatch by method.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_contain};
use toolgate_mcp::client_handler::{ClientHandler, LogLevel, ModernClient};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_PARAMS, Object, RESOURCE_NOT_FOUND, RpcError, RpcResult,
};
use toolgate_mcp::task::TaskUse;
use toolgate_mcp::transport::RequestError;

use super::Server;
use super::client_capabilities::ClientCapabilities;
use super::client_requests::MessageSender;
use super::connection::Connection;
use super::endpoint::McpEndpoint;
use super::era_adapter::adapt_result;
use super::list_changes::ListChanges;
use super::meta::{ModernMeta, RequestMeta};
use super::method::{INITIALIZE, LISTEN, Method};
use super::notifier::RequestNotifier;
use super::questions::{Asking, AskingNotifier, modern_session};
use super::session::Session;
use crate::call::{CallError, RequestContext};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::store::Store;

/// Answers one request of a client.
#[derive(Debug)]
pub(super) struct RequestHandler {
    pub(super) server: Server,
    pub(super) endpoint: McpEndpoint,
    pub(super) caller: Caller,
    pub(super) era: Era,
    pub(super) context: Arc<RequestContext>,
    /// The session, if the client uses the legacy era.
    pub(super) session: Option<Arc<Session>>,
    /// A modern client's responses to an earlier input request.
    pub(super) input: Option<ClientInput>,
    /// How a modern client can be asked by legacy servers.
    pub(super) asking: Option<Asking>,
    /// The client's progress token.
    pub(super) progress_token: Option<Box<RawValue>>,
    /// Whether a modern client declares the extension for tasks.
    pub(super) declares_tasks: bool,
}

/// A modern client's responses to an earlier input request, with the state that it was sent.
#[derive(Debug)]
pub(super) struct ClientInput {
    pub(super) responses: Option<Box<RawValue>>,
    pub(super) state: Option<Box<RawValue>>,
}

impl RequestHandler {
    /// Creates the handler of a modern request. Notifications that precede the response are sent
    /// through `sender`.
    pub(super) fn modern(
        connection: &Connection,
        context: RequestContext,
        meta: ModernMeta,
        input: Option<ClientInput>,
        sender: MessageSender,
    ) -> Self {
        let ModernMeta {
            capabilities,
            log_level,
            shared,
        } = meta;
        let notifier = RequestNotifier {
            sender,
            progress_token: shared.progress_token,
            client_requests: None,
            min_log_level: log_level,
        };
        let capabilities = ClientCapabilities::parse(capabilities.get(), Era::Modern);
        // At the endpoint of a single server, its own refusal tells the client what it needs.
        let tasks = if connection.endpoint.single_server().is_some() {
            TaskUse::ReportMissing
        } else {
            TaskUse::WhereRequired
        };
        let (asking, notifier): (_, Arc<dyn ClientHandler>) =
            match Asking::new(&capabilities, notifier) {
                Ok(asking) => {
                    let notifier = Arc::<AskingNotifier>::clone(&asking.notifier);
                    (Some(asking), notifier)
                }
                Err(notifier) => (None, Arc::new(notifier)),
            };
        let session = modern_session(&connection.caller, &capabilities);
        let mut context = context;
        context.filters.client = capabilities.profile;
        let client = ModernClient {
            has_state: input.as_ref().is_some_and(|input| input.state.is_some()),
            capabilities: capabilities.declared,
            input: input
                .as_ref()
                .map_or_else(Object::new, ClientInput::to_object),
        };
        let context = RequestContext {
            meta: shared.forwarded,
            trace: shared.trace,
            client_handler: Some(notifier),
            modern_client: Some(Arc::new(client)),
            session,
            log_level,
            tasks,
            ..context
        };
        Self {
            era: Era::Modern,
            session: None,
            input,
            asking,
            declares_tasks: capabilities.declares_tasks,
            ..Self::new(connection, context)
        }
    }

    /// Creates the handler of a legacy request. Notifications that precede the response are sent
    /// through `sender`.
    pub(super) fn legacy(
        connection: &Connection,
        context: RequestContext,
        session: &Arc<Session>,
        meta: RequestMeta,
        sender: MessageSender,
    ) -> Self {
        let client = &session.client;
        let notifier = RequestNotifier {
            sender,
            progress_token: meta.progress_token.clone(),
            client_requests: Some(client.client_requests()),
            // A client that has not set a level gets all messages.
            min_log_level: Some(client.log_level().unwrap_or(LogLevel::Debug)),
        };
        let mut context = context;
        context.filters.client = client.profile().cloned();
        let context = RequestContext {
            meta: meta.forwarded,
            trace: meta.trace,
            client_handler: Some(Arc::new(notifier)),
            session: client.client_session(),
            log_level: client.log_level(),
            ..context
        };
        Self {
            session: Some(Arc::clone(session)),
            progress_token: meta.progress_token,
            ..Self::new(connection, context)
        }
    }

    fn new(connection: &Connection, context: RequestContext) -> Self {
        Self {
            server: connection.server.clone(),
            endpoint: connection.endpoint.clone(),
            caller: connection.caller.clone(),
            era: Era::Legacy,
            context: Arc::new(context),
            session: None,
            input: None,
            asking: None,
            progress_token: None,
            declares_tasks: false,
        }
    }

    /// Returns a handler for what follows from the request, which has no input of its own.
    pub(super) fn for_task(&self) -> Self {
        Self {
            server: self.server.clone(),
            endpoint: self.endpoint.clone(),
            caller: self.caller.clone(),
            era: self.era,
            context: Arc::clone(&self.context),
            session: self.session.clone(),
            input: None,
            asking: None,
            progress_token: None,
            declares_tasks: false,
        }
    }

    /// Answers the request, in the client's era. Everything but tool calls is boxed, to keep their
    /// future small.
    pub(super) async fn answer(&self, method: Method) -> RpcResult {
        let caching = method.caching();
        if method.is_list() {
            Box::pin(self.learn_lists()).await;
        }
        let result = match method {
            Method::CallTool(params) => {
                if self.may_learn_tool(&params.name) {
                    Box::pin(self.learn_lists()).await;
                }
                self.call_tool(params).await
            }
            Method::ListTools { cursor } => {
                // Pages are cached in their final form.
                return self.list_tools(cursor.as_deref()).map(|page| page.to_raw());
            }
            Method::Ping => Ok(jsonrpc::empty_object()),
            Method::Discover => Ok(self.endpoint.discover_result(self.gateway(), &self.caller)),
            Method::SetLogLevel(level) => Ok(self.set_log_level(level)),
            Method::ListResources { cursor } => self.list_resources(cursor.as_deref()),
            Method::ListTemplates { cursor } => self.list_templates(cursor.as_deref()),
            Method::ListPrompts { cursor } => self.list_prompts(cursor.as_deref()),
            Method::ReadResource { uri } => Box::pin(self.read_resource(&uri)).await,
            Method::GetPrompt(params) => Box::pin(self.get_prompt(params)).await,
            Method::Complete(params) => Box::pin(self.complete(params)).await,
            Method::Subscribe { uri } => Box::pin(self.subscribe(uri)).await,
            Method::Unsubscribe { uri } => self.unsubscribe(&uri),
            Method::GetTask { id } => Box::pin(self.get_task(&id)).await,
            Method::UpdateTask(params) => {
                Box::pin(self.update_task(&params.task_id, &params.input_responses)).await
            }
            Method::CancelTask { id } => Box::pin(self.cancel_task(&id)).await,
            Method::ListTasks { cursor } => Box::pin(self.list_tasks(cursor.as_deref())).await,
            Method::TaskResult { id } => Box::pin(self.task_result(&id)).await,
            // The connection handles both, except in a batch, where neither is allowed.
            Method::Initialize(_) => Err(RpcError::method_not_found(INITIALIZE)),
            Method::Listen(_) => Err(RpcError::method_not_found(LISTEN)),
        };
        match (result, self.era) {
            (Ok(result), era) => Ok(adapt_result(result, era, caching)),
            (Err(error), Era::Modern) if error.code == RESOURCE_NOT_FOUND => Err(RpcError {
                code: INVALID_PARAMS,
                ..error
            }),
            (Err(error), _) => Err(error),
        }
    }

    fn set_log_level(&self, level: LogLevel) -> Box<RawValue> {
        if let Some(session) = &self.session {
            session.client.set_log_level(self.gateway(), level);
        }
        jsonrpc::empty_object()
    }

    pub(super) fn gateway(&self) -> &Gateway {
        self.server.gateway()
    }

    /// Returns the changes, from now on, of the lists that the request can see.
    pub(super) fn list_changes(&self) -> ListChanges {
        let filters = self.context.filters.clone();
        ListChanges::new(self.gateway().clone(), self.caller.clone(), filters)
    }

    /// Returns the request without the client's input, which answers the gateway and not a server.
    pub(super) fn context_without_input(&self) -> Arc<RequestContext> {
        let client = self.context.modern_client.as_ref();
        let client = client.map(|client| {
            Arc::new(ModernClient {
                capabilities: Arc::clone(&client.capabilities),
                input: Object::new(),
                has_state: false,
            })
        });
        Arc::new(RequestContext {
            modern_client: client,
            ..(*self.context).clone()
        })
    }
}

impl ClientInput {
    const RESPONSES: &str = "inputResponses";
    const STATE: &str = "requestState";
    /// Prefix of the gateway's own states; the states of servers are forwarded to them.
    pub(super) const STATE_PREFIX: &str = "toolgate.";

    /// Extracts the input from a request's parameters; `None` if there is none.
    pub(super) fn parse(params: Option<&RawValue>) -> Option<Self> {
        let params = params?.get();
        // Most requests have no input, which a text search shows faster than a parser.
        if !may_contain(params, Self::RESPONSES) && !may_contain(params, Self::STATE) {
            return None;
        }
        let members = Members::parse(params)?;
        let member = |name| members.get(name).map(ToOwned::to_owned);
        let input = Self {
            responses: member(Self::RESPONSES),
            state: member(Self::STATE),
        };
        (input.responses.is_some() || input.state.is_some()).then_some(input)
    }

    /// Unseals the state; `None` if this gateway did not seal it. A state with the prefix that cannot be
    /// unsealed may belong to an upstream Toolgate.
    pub(super) fn unseal(&self, store: &Store) -> Option<String> {
        let state: Cow<'_, str> = serde_json::from_str(self.state.as_deref()?.get()).ok()?;
        store.unseal(state.strip_prefix(Self::STATE_PREFIX)?)
    }

    /// Returns the input as the members that a server receives.
    fn to_object(&self) -> Object {
        let members = [
            (Self::RESPONSES, &self.responses),
            (Self::STATE, &self.state),
        ];
        members
            .into_iter()
            .fold(Object::new(), |object, (name, value)| match value {
                Some(value) => object.raw(name, value.get()),
                None => object,
            })
    }
}

/// Converts the error of a request other than a tool call.
pub(super) fn to_rpc_error(error: &CallError) -> RpcError {
    match server_rpc_error(error) {
        Some(error) => error.clone(),
        None => RpcError::new(INTERNAL_ERROR, error.to_string()),
    }
}

/// Returns the JSON-RPC error sent by the upstream server, if that is the cause.
pub(super) fn server_rpc_error(error: &CallError) -> Option<&RpcError> {
    match error {
        CallError::Server {
            cause: RequestError::Rpc(error),
            ..
        }
        | CallError::Server {
            cause: RequestError::Status {
                rpc: Some(error), ..
            },
            ..
        } => Some(error),
        _ => None,
    }
}
