//! The one door: every tool call, whoever makes it, goes through [`Engine::call`].
//!
//! What is not in the caller's scope does not exist: it is answered like a name that nobody has.

mod dispatch;
mod scope;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use dispatch::Dispatch;
use http::{HeaderMap, HeaderName};
use scope::{Found, Scope};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::catalog::{Catalog, Entry};
use toolgate_core::config::{Link, Server, ServerLists, ToolManager};
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::policy::{Decision, Policy, Verdict};
use toolgate_mcp::registry::Registry;
use toolgate_mcp::transport::RequestError;

use crate::call::{CallError, Outcome, ToolCall};
use crate::caller::Caller;
use crate::metrics::Metrics;
use crate::result::ToolResult;

/// Never passed on, whatever a server's config says: they are between the caller and the gateway.
const OWN_HEADERS: [&str; 20] = [
    "accept",
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "last-event-id",
    "origin",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-bf-vk",
    "x-goog-api-key",
    "x-real-ip",
];
const OWN_PREFIXES: [&str; 5] = ["mcp-", "proxy-", "x-forwarded-", "x-toolgate-", "x-bf-mcp-"];

/// Decides about calls and dispatches them.
#[derive(Debug)]
pub struct Engine {
    registry: Arc<Registry>,
    rules: ArcSwap<Rules>,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What the configuration says about tools, ready for use.
#[derive(Debug)]
struct Rules {
    servers: BTreeMap<ServerName, Server>,
    policy: Policy,
    lists: ServerLists,
    manager: ToolManager,
}

impl Engine {
    pub(crate) fn new(config: &Config, registry: Arc<Registry>, metrics: Arc<Metrics>) -> Self {
        Self {
            registry,
            rules: ArcSwap::from_pointee(Rules::new(config)),
            metrics,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Takes up a new configuration; calls under way are not touched.
    pub(crate) fn apply(&self, config: &Config) {
        self.rules.store(Arc::new(Rules::new(config)));
    }

    /// The tools that a caller may use, and the verdict on each.
    pub fn scope<'c>(&self, _caller: &Caller, catalog: &'c Catalog) -> Vec<(&'c Entry, Decision)> {
        let rules = self.rules.load();
        let entries = catalog.tools().iter();
        entries
            .filter_map(|entry| Some((entry, rules.decide(entry)?)))
            .collect()
    }

    /// Runs a call. Dropping the future cancels it.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        let catalog = self.registry.catalog();
        let rules = self.rules.load_full();
        let scope = Scope {
            rules: &rules,
            catalog: &catalog,
            registry: &self.registry,
        };
        let found = scope.resolve(&call.name);
        let label = found.as_ref().map(|found| found.entry.tool.id.clone()).ok();
        let outcome = match found {
            Ok(found) => self.run(&scope, found, &call).await,
            Err(error) => Err(error),
        };
        let ran = outcome.as_ref().map(|outcome| outcome.tool.clone()).ok();
        let word = match &outcome {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        self.metrics.count(ran.as_ref().or(label.as_ref()), word);
        tracing::debug!(
            tool = call.name,
            origin = caller.origin.as_str(),
            outcome = word,
            "tool call"
        );
        outcome
    }

    /// Runs a call that was found, on the server that is up.
    async fn run(
        &self,
        scope: &Scope<'_>,
        found: Found<'_>,
        call: &ToolCall,
    ) -> Result<Outcome, CallError> {
        if found.instead_of.is_some() {
            return self.permitted(scope, &found, call).await;
        }
        let answer = self.permitted(scope, &found, call).await;
        let away = matches!(
            answer,
            Err(CallError::Away(_)
                | CallError::Server {
                    cause: RequestError::NotSent(_),
                    ..
                })
        );
        match scope.stand_in(&found.entry.tool.id).filter(|_| away) {
            Some(stand_in) => self.permitted(scope, &stand_in, call).await,
            None => answer,
        }
    }

    async fn permitted(
        &self,
        scope: &Scope<'_>,
        found: &Found<'_>,
        call: &ToolCall,
    ) -> Result<Outcome, CallError> {
        let Found {
            entry,
            decision,
            instead_of,
        } = found;
        if let Some(asked) = instead_of {
            tracing::info!(tool = %asked, instead = %entry.tool.id, "the fallback takes the call");
        }
        match decision.verdict {
            Verdict::Allow | Verdict::Manual => {
                let outcome = self.dispatch(scope.rules, entry, call).await?;
                Ok(Outcome {
                    instead_of: instead_of.clone(),
                    ..outcome
                })
            }
            Verdict::Ask | Verdict::Deny => Err(CallError::NobodyToAsk {
                alias: entry.alias.to_string(),
                because: decision.because.clone(),
            }),
        }
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

    /// Sends the call to its server, as a task that outlives nobody's interest in it.
    async fn dispatch(
        &self,
        rules: &Rules,
        entry: &Entry,
        call: &ToolCall,
    ) -> Result<Outcome, CallError> {
        let tool = Arc::clone(&entry.tool);
        let id = tool.id.clone();
        let cancel = self.stop.child_token();
        let _guard = cancel.clone().drop_guard();
        let after = rules.timeout(&id.server);
        let work = Dispatch {
            registry: Arc::clone(&self.registry),
            metrics: Arc::clone(&self.metrics),
            headers: rules.forwarded(&id.server, &call.headers),
            arguments: call.arguments.clone(),
            tool,
            after,
        };
        let began = Instant::now();
        let task = self.tasks.spawn(async move {
            tokio::select! {
                answer = work.run() => answer,
                () = cancel.cancelled() => Err(CallError::Cancelled),
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
            instead_of: None,
            result: ToolResult::new(result),
            elapsed: began.elapsed(),
        })
    }
}

impl Rules {
    fn new(config: &Config) -> Self {
        let servers = config.servers.iter();
        Self {
            servers: servers
                .map(|server| (server.name.clone(), server.clone()))
                .collect(),
            policy: config.policy(),
            lists: config.security.clone(),
            manager: config.tool_manager.clone(),
        }
    }

    /// The verdict on a tool that is in scope; none for one that is not.
    fn decide(&self, entry: &Entry) -> Option<Decision> {
        self.decide_named(&entry.tool.id, &entry.alias)
    }

    /// The same for a tool that is only known by name.
    fn decide_named(&self, id: &ToolId, alias: &str) -> Option<Decision> {
        let server = self.servers.get(&id.server)?;
        if !self.is_open(server) {
            return None;
        }
        let decision = self.policy.decide(id, alias, &server.lists)?;
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
        let own = |name: &str| {
            let configured = http
                .headers
                .keys()
                .any(|set| set.eq_ignore_ascii_case(name));
            configured
                || OWN_HEADERS.contains(&name)
                || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        let wanted = |name: &HeaderName| {
            let listed = |allowed: &String| allowed == "*" || allowed == name.as_str();
            http.forwarded_headers.iter().any(listed) && !own(name.as_str())
        };
        let passed = headers.iter().filter(|(name, _)| wanted(name));
        passed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}
