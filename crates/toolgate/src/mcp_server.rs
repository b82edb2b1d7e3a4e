//! Serving MCP: the gateway as an MCP server for clients of both eras.
//!
//! A [`Server`] holds what outlives a message: sessions of legacy clients and cached lists. A
//! [`Connection`] takes one message and yields the [`Reply`] to it. It detects the era, opens
//! sessions, runs batches, handles cancellation and subscriptions, and asks clients for approvals.
//! Transports only move messages. Everything goes through the [`Gateway`], so clients only see what
//! the caller may use.

mod approval;
mod batch;
mod client_capabilities;
mod client_requests;
mod connection;
mod endpoint;
mod era_adapter;
mod event_stream;
mod event_streams;
mod learnt_lists;
mod legacy_client;
mod list_changes;
mod listen;
mod message;
mod message_queue;
mod meta;
mod method;
mod names;
mod notifier;
mod page;
mod questions;
mod reply;
mod request;
mod resource_subscriptions;
mod resources;
mod session;
mod sessions;
mod shared_logs;
mod tasks;
mod tool_pages;
mod tools;

use std::sync::Arc;

pub use connection::{Connection, Delivery};
pub use endpoint::McpEndpoint;
use event_stream::EventId;
pub use event_stream::StreamEvent;
use event_streams::Resumption;
use futures_util::stream::{Stream, StreamExt as _};
use http::HeaderMap;
use questions::HeldRequests;
pub use reply::{Reply, ReplyBody, SingleReply};
use serde_json::value::RawValue;
use session::Session;
use sessions::Sessions;
pub use sessions::{LAST_EVENT_ID_HEADER, SESSION_ID_HEADER, SessionError, StreamError};
use tasks::Tasks;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tool_pages::ToolPageCache;
use toolgate_mcp::jsonrpc::{self, Object};

use crate::caller::{CallOrigin, Caller};
use crate::gateway::Gateway;
use crate::held_bytes::Hold;

/// Serves MCP clients. Clones share it.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    sessions: Sessions,
    tool_pages: ToolPageCache,
    held: HeldRequests,
    tasks: Tasks,
    stopping: CancellationToken,
    /// Requests that outlive the connections of their clients.
    requests: TaskTracker,
    /// Ends them.
    finishing: CancellationToken,
}

impl Server {
    /// Creates a server for a gateway.
    pub fn new(gateway: Gateway) -> Self {
        Self(Arc::new(Inner {
            sessions: Sessions::new(gateway.clone()),
            tool_pages: ToolPageCache::new(),
            held: HeldRequests::default(),
            stopping: CancellationToken::new(),
            tasks: Tasks::new(gateway.clone()),
            requests: TaskTracker::new(),
            finishing: CancellationToken::new(),
            gateway,
        }))
    }

    /// Connects a caller to an endpoint; `None` if it does not exist for the caller.
    pub fn connect(&self, endpoint: McpEndpoint, caller: Caller) -> Option<Connection> {
        if !endpoint.exists_for(self.gateway(), &caller) {
            return None;
        }
        let caller = caller.with_origin(CallOrigin::Mcp);
        Some(Connection::new(self.clone(), endpoint, caller))
    }

    /// Streams the messages to a legacy client that belong to none of its requests, or continues the
    /// stream of which the client received the event that the headers name. The headers also name the
    /// session.
    pub fn session_messages(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<impl Stream<Item = StreamEvent> + Send + use<>, StreamError> {
        let session = self.sessions().find(headers, caller)?;
        let after = match headers.get(LAST_EVENT_ID_HEADER) {
            Some(id) => {
                let id = id.to_str().ok().and_then(EventId::parse);
                Some(id.ok_or(StreamError::UnknownEvent)?)
            }
            None => None,
        };
        let messages = session.messages(self.gateway(), after);
        let messages = messages.ok_or(StreamError::UnknownEvent)?;
        Ok(messages.take_until(self.stopping().cancelled_owned()))
    }

    /// Ends the session that the headers name.
    pub fn end_session(&self, caller: &Caller, headers: &HeaderMap) -> Result<(), SessionError> {
        let session = self.sessions().find(headers, caller)?;
        self.sessions().end(&session);
        Ok(())
    }

    /// Ends idle sessions, sessions whose key was removed, and tasks whose time is over, until `stop` is
    /// cancelled.
    pub async fn run_sweeper(&self, stop: CancellationToken) {
        tokio::join!(
            self.sessions().run_sweeper(stop.clone()),
            self.tasks().run_sweeper(stop),
        );
    }

    /// Ends all streams, and all requests that wait for a client. Other requests continue.
    pub fn stop(&self) {
        self.0.stopping.cancel();
        self.sessions().cancel_client_requests();
        self.held().stop();
    }

    /// Cancels requests that have outlived the connections of their clients, and waits for them.
    pub async fn finish(&self) {
        self.0.finishing.cancel();
        self.0.requests.close();
        self.0.requests.wait().await;
        self.held().finish().await;
        self.tasks().finish().await;
    }

    /// Returns what a request of a session needs to outlive its client's connection.
    fn resumption(&self, session: &Session) -> Resumption {
        Resumption {
            streams: Arc::clone(&session.streams),
            announces_ids: session.client.expects_announced_ids(),
            tasks: self.0.requests.clone(),
            memory: self.memory_of(&session.owner.caller),
            stop: self.0.finishing.clone(),
        }
    }

    /// Returns a hold on memory for a caller.
    fn memory_of(&self, caller: &Caller) -> Hold {
        self.gateway().held_bytes().hold(caller.share_owner())
    }

    fn gateway(&self) -> &Gateway {
        &self.0.gateway
    }

    fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    fn held(&self) -> &HeldRequests {
        &self.0.held
    }

    fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    fn tool_pages(&self) -> &ToolPageCache {
        &self.0.tool_pages
    }

    /// Returns a token that is cancelled when streams have to end.
    fn stopping(&self) -> CancellationToken {
        self.0.stopping.clone()
    }
}

fn to_raw(object: &Object) -> Box<RawValue> {
    RawValue::from_string(object.to_string()).unwrap_or_else(|_| jsonrpc::empty_object())
}

#[cfg(test)]
mod tests;
