//! The one door: every tool call, whoever makes it, goes through [`Engine::call`].
//!
//! What is not in the caller's scope does not exist: it is answered like a name that nobody has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::catalog::{Catalog, Entry, Resolution};
use toolgate_core::config::{Link, Server, ServerLists, ToolManager};
use toolgate_core::name::ServerName;
use toolgate_core::pattern::spelled;
use toolgate_core::policy::{Decision, Policy, Verdict};
use toolgate_mcp::lane::ToolCall as LaneCall;
use toolgate_mcp::registry::{Away, Registry};
use toolgate_mcp::{LaneId, LaneKey};

use crate::call::{CallError, Outcome, ToolCall};
use crate::caller::Caller;
use crate::metrics::Metrics;
use crate::result::ToolResult;

/// Names that are near enough to be suggested.
const SIMILAR: f64 = 0.82;
const SUGGESTIONS: usize = 3;

/// Never passed on, whatever a server's config says: they are between the caller and the gateway.
const OWN_HEADERS: [&str; 14] = [
    "authorization",
    "cookie",
    "host",
    "connection",
    "content-length",
    "content-type",
    "accept",
    "accept-encoding",
    "transfer-encoding",
    "te",
    "upgrade",
    "x-api-key",
    "x-bf-vk",
    "mcp-session-id",
];

/// Decides about calls and dispatches them.
#[derive(Debug)]
pub struct Engine {
    registry: Arc<Registry>,
    rules: Rules,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What the configuration says about tools, ready for use.
#[derive(Debug)]
struct Rules {
    servers: HashMap<ServerName, Server>,
    policy: Policy,
    lists: ServerLists,
    manager: ToolManager,
}

impl Engine {
    pub(crate) fn new(config: &Config, registry: Arc<Registry>, metrics: Arc<Metrics>) -> Self {
        let servers = config.servers.iter();
        let rules = Rules {
            servers: servers
                .map(|server| (server.name.clone(), server.clone()))
                .collect(),
            policy: config.policy(),
            lists: config.security.clone(),
            manager: config.tool_manager.clone(),
        };
        Self {
            registry,
            rules,
            metrics,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// The tools that a caller may use, and the verdict on each.
    pub fn scope<'c>(&self, _caller: &Caller, catalog: &'c Catalog) -> Vec<(&'c Entry, Decision)> {
        let entries = catalog.tools().iter();
        entries
            .filter_map(|entry| Some((entry, self.rules.decide(entry)?)))
            .collect()
    }

    /// Runs a call. Dropping the future cancels it.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        let catalog = self.registry.catalog();
        let (entry, decision) = self.resolve(&catalog, &call.name).inspect_err(|error| {
            self.metrics.count("", error.code());
        })?;
        let server = entry.tool.id.server.clone();
        let outcome = match decision.verdict {
            Verdict::Allow | Verdict::Manual => self.dispatch(entry, call).await,
            Verdict::Ask | Verdict::Deny => Err(CallError::NobodyToAsk {
                alias: entry.alias.to_string(),
                because: decision.because,
            }),
        };
        let (word, failed) = match &outcome {
            Ok(outcome) if outcome.result.is_error() => ("tool_error", true),
            Ok(_) => ("ok", false),
            Err(error) => (error.code(), true),
        };
        self.metrics.count(server.as_str(), word);
        tracing::debug!(tool = %entry.tool.id, origin = caller.origin.as_str(), outcome = word, failed, "tool call");
        outcome
    }

    /// Waits for the calls under way; those that last longer are cancelled.
    pub(crate) async fn drain(&self, within: Duration) {
        self.tasks.close();
        if tokio::time::timeout(within, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                calls = self.tasks.len(),
                "cancelling calls that are still under way"
            );
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }

    fn resolve<'c>(
        &self,
        catalog: &'c Catalog,
        name: &str,
    ) -> Result<(&'c Entry, Decision), CallError> {
        let visible = |entry: &Entry| self.rules.decide(entry).is_some();
        let unknown = || CallError::Unknown {
            name: name.to_owned(),
            nearest: self.nearest(catalog, name),
        };
        match catalog.resolve(name, visible) {
            Resolution::Found(entry) => self
                .rules
                .decide(entry)
                .map(|decision| (entry, decision))
                .ok_or_else(unknown),
            Resolution::Unknown => Err(self.awaited(name).unwrap_or_else(unknown)),
            Resolution::Ambiguous(entries) => Err(CallError::Ambiguous {
                name: name.to_owned(),
                aliases: entries
                    .iter()
                    .map(|entry| entry.alias.to_string())
                    .collect(),
            }),
        }
    }

    /// A name that may well be a tool of a server that has not been up yet.
    fn awaited(&self, name: &str) -> Option<CallError> {
        let servers = self.rules.servers.values();
        let mut named = servers.filter(|server| {
            self.rules.is_open(server)
                && spelled(name, &server.name).any(|tool| server.lists.execute.contains(tool))
        });
        let server = named.next()?;
        let entry = self.registry.entry(&server.name)?;
        let status = entry.status();
        let away = Away {
            server: server.name.clone(),
            status,
        };
        (away.status.session.is_none()).then_some(CallError::Away(away))
    }

    fn nearest(&self, catalog: &Catalog, name: &str) -> Vec<String> {
        let visible = catalog
            .tools()
            .iter()
            .filter(|entry| self.rules.decide(entry).is_some());
        let mut scored: Vec<(f64, &Entry)> = visible
            .map(|entry| {
                let alias = strsim::jaro_winkler(name, &entry.alias);
                let bare = strsim::jaro_winkler(name, entry.tool.id.tool.as_str());
                (alias.max(bare), entry)
            })
            .filter(|(score, _)| *score >= SIMILAR)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored
            .iter()
            .take(SUGGESTIONS)
            .map(|(_, entry)| format!("`{}`", entry.alias))
            .collect()
    }

    /// Sends the call to its server, as a task that outlives nobody's interest in it.
    async fn dispatch(&self, entry: &Entry, call: ToolCall) -> Result<Outcome, CallError> {
        let tool = Arc::clone(&entry.tool);
        let id = tool.id.clone();
        let key = LaneKey {
            server: id.server.clone(),
            lane: LaneId::Shared,
        };
        let lane = self.registry.lane(&key).map_err(CallError::Away)?;
        let after = self.rules.timeout(&id.server);
        let headers = self.rules.forwarded(&id.server, &call.headers);
        let cancel = self.stop.child_token();
        let _guard = cancel.clone().drop_guard();
        let in_flight = self.metrics.enter(id.server.as_str());
        let metrics = Arc::clone(&self.metrics);
        let began = Instant::now();
        let task = self.tasks.spawn(async move {
            let _in_flight = in_flight;
            let sent = lane.call_tool(LaneCall {
                tool: &tool,
                arguments: call.arguments.raw(),
                headers,
            });
            let answer = tokio::select! {
                answer = tokio::time::timeout(after, sent) => answer,
                () = cancel.cancelled() => return Err(CallError::Cancelled),
            };
            metrics.took(tool.id.server.as_str(), began.elapsed());
            match answer {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(cause)) => Err(CallError::Server {
                    server: tool.id.server.clone(),
                    cause,
                }),
                Err(_) => Err(CallError::Timeout {
                    tool: tool.id.clone(),
                    after,
                }),
            }
        });
        let result = task.await.unwrap_or_else(|error| {
            Err(match error.is_panic() {
                true => CallError::Panicked(id.clone()),
                false => CallError::Cancelled,
            })
        })?;
        Ok(Outcome {
            tool: id,
            result: ToolResult::new(result),
            elapsed: began.elapsed(),
        })
    }
}

impl Rules {
    /// The verdict on a tool that is in scope; none for one that is not.
    fn decide(&self, entry: &Entry) -> Option<Decision> {
        let server = self.servers.get(&entry.tool.id.server)?;
        if !self.is_open(server) {
            return None;
        }
        let decision = self.policy.decide(entry, &server.lists)?;
        (decision.verdict != Verdict::Deny).then_some(decision)
    }

    /// Whether a server's tools exist for anyone.
    fn is_open(&self, server: &Server) -> bool {
        self.manager.enabled && server.enabled && self.lists.refuses(&server.name).is_none()
    }

    fn timeout(&self, server: &ServerName) -> Duration {
        let own = self.servers.get(server).and_then(|server| server.timeout);
        own.unwrap_or(self.manager.tool_execution_timeout)
    }

    /// The caller's headers that a server's config lets through.
    fn forwarded(&self, server: &ServerName, headers: &HeaderMap) -> HeaderMap {
        let Some(Link::Http(http)) = self.servers.get(server).map(|server| &server.link) else {
            return HeaderMap::new();
        };
        let wanted = |name: &HeaderName| {
            let listed = |allowed: &String| allowed == "*" || allowed == name.as_str();
            http.forwarded_headers.iter().any(listed) && !OWN_HEADERS.contains(&name.as_str())
        };
        let passed = headers.iter().filter(|(name, _)| wanted(name));
        passed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}
