//! The parts of the configuration that govern calls, compiled for lookup: servers, keys, limits and
//! permissions. A new configuration replaces the rules as a whole.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use toolgate_core::catalog::Tool;
use toolgate_core::config::{
    ApprovalSettings, Approvers, ArgumentCheck, KeyConfig, KeyCredential, KeyLimits, LogSettings,
    ResultSettings, RunLimits, ScannerSettings, ServerConfig, ServerConnection, ToolInjection,
    ToolManagerSettings, VirtualServer,
};
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::policy::{Decision, ServerItem, Verdict};
use toolgate_core::scope::{AccessRules, Filters, Principal};
use toolgate_core::secret::Masker;
use toolgate_core::{Config, header};
use toolgate_mcp::{Environment, TraceContext};

use super::limits::CallLimits;
use crate::approval::{ToolFingerprint, is_scanner_rule};
use crate::call::CallError;
use crate::caller::Caller;

/// The compiled rules of one configuration.
#[derive(Debug)]
pub(super) struct Rules {
    /// Incremented with every configuration.
    pub(super) generation: u64,
    pub(super) servers: BTreeMap<ServerName, ServerRules>,
    pub(super) access: AccessRules,
    pub(super) manager: ToolManagerSettings,
    /// Limits on a single agent run.
    pub(super) agent: RunLimits,
    pub(super) scanner: ScannerSettings,
    pub(super) results: ResultSettings,
    pub(super) log: LogSettings,
    pub(super) approvals: ApprovalSettings,
    pub(super) limits: CallLimits,
    pub(super) virtual_servers: Vec<VirtualServer>,
    keys: Keys,
}

/// A server's configuration and data derived from it.
#[derive(Debug)]
pub(super) struct ServerRules {
    pub(super) server: ServerConfig,
    /// Fingerprint of the program or URL that the server's name refers to.
    pub(super) fingerprint: String,
    /// Masks the secrets passed to the server.
    pub(super) masker: Masker,
}

#[derive(Debug, Default)]
struct Keys {
    /// `None` for a secret shared by several keys; neither is accepted.
    by_digest: HashMap<[u8; 32], Option<Arc<str>>>,
    by_name: HashMap<Arc<str>, KeyEntry>,
    /// The principal of callers without a key.
    anonymous: Principal,
    /// Whether callers without a key may use tools that the provider runs.
    anonymous_provider_tools: bool,
}

/// Permissions, limits and validity of a key.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) principal: Principal,
    pub(super) limits: KeyLimits,
    /// Whether requests to models may contain tools that the provider runs.
    provider_tools: bool,
    /// Tools that are added to its model requests.
    pub(super) inject: Option<ToolInjection>,
    approval_by: Option<Approvers>,
    enabled: bool,
    expires_at: Option<SystemTime>,
}

/// The reason a key is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No key has this secret.
    #[error("no such key")]
    Unknown,
    /// The key is disabled.
    #[error("the key is disabled")]
    Disabled,
    /// The key has expired.
    #[error("the key has expired")]
    Expired,
}

impl Rules {
    pub(super) fn new(config: &Config, environment: &Environment, before: Option<&Self>) -> Self {
        let access = AccessRules::new(config);
        let none = CallLimits::default();
        let compile = |server: &ServerConfig| {
            let server_rules = ServerRules {
                fingerprint: server.connection.fingerprint(&|name| environment.get(name)),
                masker: environment.masker(server),
                server: server.clone(),
            };
            (server.name.clone(), server_rules)
        };
        Self {
            generation: before.map_or(1, |before| before.generation + 1),
            servers: config.servers.iter().map(compile).collect(),
            keys: Keys::new(config, &access, environment),
            access,
            manager: config.tool_manager.clone(),
            agent: config.agent,
            scanner: config.scanner,
            results: config.results,
            log: config.log,
            approvals: config.permissions.approvals.clone(),
            virtual_servers: config.virtual_servers.clone(),
            limits: CallLimits::new(config, before.map_or(&none, |before| &before.limits)),
        }
    }

    /// Returns the name of the presented key.
    pub(super) fn authenticate(&self, presented: &str) -> Result<Arc<str>, KeyError> {
        // Looking up digests instead of keys keeps timing from leaking key contents.
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let name = self.keys.by_digest.get(&digest).and_then(Option::as_ref);
        let name = name.ok_or(KeyError::Unknown)?;
        let key_entry = self.keys.by_name.get(name).ok_or(KeyError::Unknown)?;
        key_entry.check()?;
        Ok(Arc::clone(name))
    }

    pub(super) fn has_keys(&self) -> bool {
        !self.keys.by_name.is_empty()
    }

    /// Returns the entry of the caller's key, if it has one. Fails if the key is no longer valid.
    pub(super) fn key_entry(&self, caller: &Caller) -> Result<Option<&KeyEntry>, CallError> {
        let Some(name) = caller.key() else {
            return Ok(None);
        };
        let key_entry = self.keys.by_name.get(name);
        match key_entry.filter(|key_entry| key_entry.check().is_ok()) {
            Some(key_entry) => Ok(Some(key_entry)),
            None => Err(CallError::InvalidKey(name.to_string())),
        }
    }

    pub(super) fn principal(&self, caller: &Caller) -> Result<&Principal, CallError> {
        let key_entry = self.key_entry(caller)?;
        Ok(key_entry.map_or(&self.keys.anonymous, |key_entry| &key_entry.principal))
    }

    /// Returns whether requests of a caller may contain tools that the provider runs.
    pub(super) fn permits_provider_tools(&self, caller: &Caller) -> Result<bool, CallError> {
        let key_entry = self.key_entry(caller)?;
        Ok(
            key_entry.map_or(self.keys.anonymous_provider_tools, |entry| {
                entry.provider_tools
            }),
        )
    }

    /// Returns who may approve a call. Rules, server and key restrict one another; the default counts
    /// if none of them says anything. The scanner flags what a client sends, so its user is never
    /// the one to approve that.
    pub(super) fn approvers(
        &self,
        caller: &Caller,
        server: &ServerName,
        decision: &Decision,
    ) -> Approvers {
        let by_server = self.servers.get(server);
        let by_server = by_server.and_then(|server_rules| server_rules.server.approval_by);
        let by_key = caller.key().and_then(|key| self.keys.by_name.get(key));
        let by_key = by_key.and_then(|key_entry| key_entry.approval_by);
        let explicit = [decision.approval_by, by_server, by_key].into_iter();
        let approvers = explicit.flatten().reduce(Approvers::intersect);
        let approvers = approvers.unwrap_or(self.approvals.by);
        if is_scanner_rule(&decision.decided_by) {
            approvers.without_client()
        } else {
            approvers
        }
    }

    /// Returns the fingerprint with which approvals are bound to a tool.
    pub(super) fn tool_fingerprint(&self, tool: &Tool) -> ToolFingerprint {
        let server_rules = self.servers.get(&tool.id.server);
        ToolFingerprint {
            server: server_rules
                .map(|server_rules| server_rules.fingerprint.clone())
                .unwrap_or_default(),
            definition: tool.contract_hash().to_owned(),
        }
    }

    /// Returns the servers whose resources and prompts are visible to a request.
    pub(super) fn servers_with_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<ServerName>, CallError> {
        let view = self.access.view(self.principal(caller)?, filters);
        let names = self
            .servers
            .keys()
            .filter(|name| view.can_see_resources(name));
        Ok(names.cloned().collect())
    }

    /// Judges a resource or prompt. One that does not exist for the caller is unknown.
    pub(super) fn judge_item(
        &self,
        caller: &Caller,
        filters: &Filters,
        item: ServerItem<'_>,
    ) -> Result<Decision, CallError> {
        let view = self.access.view(self.principal(caller)?, filters);
        let judged = view.judge_item(item);
        judged.ok_or_else(|| CallError::UnknownItem(describe_item(item)))
    }

    pub(super) fn has_role(&self, key: &str, role: &str) -> bool {
        let key_entry = self.keys.by_name.get(key);
        key_entry
            .is_some_and(|key_entry| key_entry.principal.roles.iter().any(|known| known == role))
    }

    pub(super) fn tool_timeout(&self, tool: &ToolId) -> Duration {
        let server = self
            .servers
            .get(&tool.server)
            .map(|server_rules| &server_rules.server);
        let timeout = server.and_then(|server| server.tool_limits(tool.tool.as_str()).timeout);
        timeout
            .or_else(|| server.and_then(|server| server.timeout))
            .unwrap_or(self.manager.tool_execution_timeout)
    }

    /// Returns how the arguments of a tool are checked.
    pub(super) fn argument_check(&self, tool: &ToolId) -> ArgumentCheck {
        let server = self
            .servers
            .get(&tool.server)
            .map(|server_rules| &server_rules.server);
        let own = server.and_then(|server| server.tool_limits(tool.tool.as_str()).argument_check);
        own.or_else(|| server.and_then(|server| server.argument_check))
            .unwrap_or(self.manager.argument_check)
    }

    /// Returns whether a server accepts a separate lane per client session.
    pub(super) fn has_session_lanes(&self, server: &ServerName) -> bool {
        let server_rules = self.servers.get(server);
        server_rules.is_some_and(|server_rules| server_rules.server.has_own_lanes())
    }

    /// Returns the timeout of requests other than tool calls.
    pub(super) fn server_timeout(&self, server: &ServerName) -> Duration {
        let server_rules = self.servers.get(server);
        let timeout = server_rules.and_then(|server_rules| server_rules.server.timeout);
        timeout.unwrap_or(self.manager.tool_execution_timeout)
    }

    /// Returns how long a call waits for a server that is reconnecting.
    pub(super) fn reconnect_wait(&self, server: &ServerName) -> Duration {
        let server_rules = self.servers.get(server);
        let wait = server_rules.and_then(|server_rules| server_rules.server.reconnect_wait);
        wait.unwrap_or(self.manager.reconnect_wait)
    }

    /// Returns whether another server handles calls while this one is unavailable.
    pub(super) fn has_fallback(&self, server: &ServerName) -> bool {
        let server_rules = self.servers.get(server);
        server_rules.is_some_and(|server_rules| server_rules.server.fallback.is_some())
    }

    /// Returns the caller's headers that a server's configuration allows to be forwarded.
    pub(super) fn forwarded_headers(&self, server: &ServerName, headers: &HeaderMap) -> HeaderMap {
        let link = self
            .servers
            .get(server)
            .map(|server_rules| &server_rules.server.connection);
        let Some(ServerConnection::Http(http)) = link else {
            return HeaderMap::new();
        };
        let is_reserved = |name: &str| {
            let configured = http
                .headers
                .keys()
                .any(|set| set.eq_ignore_ascii_case(name));
            configured || header::is_reserved(name) || TraceContext::NAMES.contains(&name) // added to every call separately
        };
        let wanted = |name: &HeaderName| {
            let listed = |allowed: &String| allowed == "*" || allowed == name.as_str();
            http.forwarded_headers.iter().any(listed) && !is_reserved(name.as_str())
        };
        let passed = headers.iter().filter(|(name, _)| wanted(name));
        passed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Names a resource or prompt as rules do: `SERVER:URI` or `SERVER.NAME`.
pub(super) fn describe_item(item: ServerItem<'_>) -> String {
    match item {
        ServerItem::Resource { server, uri } => format!("{server}:{uri}"),
        ServerItem::Prompt { server, name } => format!("{server}.{name}"),
    }
}

impl Keys {
    fn new(config: &Config, access: &AccessRules, environment: &Environment) -> Self {
        let is_open = config.permissions.default != Some(Verdict::Deny);
        let mut keys = Self {
            anonymous_provider_tools: is_open,
            ..Self::default()
        };
        for key in &config.keys {
            let name: Arc<str> = key.name.as_str().into();
            match key_digest(key, environment) {
                Ok(digest) => match keys.by_digest.entry(digest) {
                    Entry::Vacant(slot) => drop(slot.insert(Some(Arc::clone(&name)))),
                    Entry::Occupied(mut slot) => {
                        tracing::error!(key = %name, other = ?slot.get(), "rejecting keys with the same secret; give each key its own");
                        slot.insert(None);
                    }
                },
                Err(error) => {
                    tracing::error!(key = %name, %error, "rejecting key without a usable secret");
                }
            }
            let principal = access.build_principal(key, &config.roles);
            let is_unrestricted = is_open && principal.grants.is_empty();
            let key_entry = KeyEntry {
                principal,
                provider_tools: key.provider_tools.unwrap_or(is_unrestricted),
                inject: key.inject,
                limits: key.limits,
                approval_by: key.approval_by,
                enabled: key.enabled,
                expires_at: key.expires_at,
            };
            keys.by_name.insert(name, key_entry);
        }
        keys
    }
}

impl KeyEntry {
    fn check(&self) -> Result<(), KeyError> {
        if !self.enabled {
            return Err(KeyError::Disabled);
        }
        if self.expires_at.is_some_and(|end| end <= SystemTime::now()) {
            return Err(KeyError::Expired);
        }
        Ok(())
    }
}

fn key_digest(
    key: &KeyConfig,
    environment: &Environment,
) -> Result<[u8; 32], toolgate_core::secret::UnsetVariable> {
    match &key.proof {
        KeyCredential::Sha256(digest) => Ok(*digest),
        KeyCredential::Key(secret) => {
            let key = secret.resolve(&|name| environment.get(name))?;
            Ok(Sha256::digest(key).into())
        }
    }
}
