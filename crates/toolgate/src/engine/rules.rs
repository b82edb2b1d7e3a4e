//! What the configuration says about calls, ready for use.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use toolgate_core::Config;
use toolgate_core::config::{
    Approvals, Key, KeyLimits, Link, Proof, Results, Role, RunLimits, Scanner, Server, ToolManager,
    VirtualServer,
};
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::scope::{Access, Filters, Principal};
use toolgate_core::secret::Masker;
use toolgate_mcp::{Environment, TraceContext};

use super::limits::Limits;
use crate::call::{CallError, Request};
use crate::caller::Caller;

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

/// How long a call may take whose tool may ask a person something.
const ANSWERED: Duration = Duration::from_secs(10 * 60);

/// One configuration; a new one replaces it whole.
#[derive(Debug)]
pub(super) struct Rules {
    /// Counts configurations.
    pub(super) generation: u64,
    pub(super) servers: BTreeMap<ServerName, Served>,
    pub(super) access: Access,
    pub(super) manager: ToolManager,
    /// Bounds on one run of an agent.
    pub(super) agent: RunLimits,
    pub(super) scanner: Scanner,
    pub(super) results: Results,
    pub(super) approvals: Approvals,
    pub(super) limits: Limits,
    pub(super) virtual_servers: Vec<VirtualServer>,
    keys: Keys,
}

/// A server, and what is known of it beyond its entry.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) server: Server,
    /// Which program its name stands for.
    pub(super) binding: String,
    /// Hides the secrets that it was given.
    pub(super) masker: Masker,
}

#[derive(Debug, Default)]
struct Keys {
    /// None for a key that several names share.
    by_digest: HashMap<[u8; 32], Option<Arc<str>>>,
    by_name: HashMap<Arc<str>, Holder>,
    /// Who has no key.
    nobody: Principal,
}

/// The one who has a key.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) principal: Principal,
    pub(super) limits: KeyLimits,
    enabled: bool,
    expires_at: Option<SystemTime>,
}

/// Why a key does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("no such key")]
    Unknown,
    #[error("the key is disabled")]
    Disabled,
    #[error("the key has expired")]
    Expired,
}

impl Rules {
    pub(super) fn new(config: &Config, environment: &Environment, before: Option<&Self>) -> Self {
        let access = Access::new(config);
        let none = Limits::default();
        let served = |server: &Server| {
            let served = Served {
                binding: server.link.fingerprint(&|name| environment.get(name)),
                masker: environment.masker(server),
                server: server.clone(),
            };
            (server.name.clone(), served)
        };
        Self {
            generation: before.map_or(1, |before| before.generation + 1),
            servers: config.servers.iter().map(served).collect(),
            keys: Keys::new(config, &access, environment),
            access,
            manager: config.tool_manager.clone(),
            agent: config.agent,
            scanner: config.scanner,
            results: config.results,
            approvals: config.permissions.approvals.clone(),
            virtual_servers: config.virtual_servers.clone(),
            limits: Limits::new(config, before.map_or(&none, |before| &before.limits)),
        }
    }

    /// The name of the key that was presented.
    pub(super) fn authenticate(&self, presented: &str) -> Result<Arc<str>, KeyError> {
        // Digests are looked up, so that time tells nothing about keys.
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let name = self.keys.by_digest.get(&digest).and_then(Option::as_ref);
        let name = name.ok_or(KeyError::Unknown)?;
        let holder = self.keys.by_name.get(name).ok_or(KeyError::Unknown)?;
        holder.check()?;
        Ok(Arc::clone(name))
    }

    pub(super) fn has_keys(&self) -> bool {
        !self.keys.by_name.is_empty()
    }

    /// Who a caller is; an error if its key is no longer valid.
    pub(super) fn holder(&self, caller: &Caller) -> Result<Option<&Holder>, CallError> {
        let Some(name) = caller.key() else {
            return Ok(None);
        };
        let holder = self.keys.by_name.get(name);
        match holder.filter(|holder| holder.check().is_ok()) {
            Some(holder) => Ok(Some(holder)),
            None => Err(CallError::KeyGone(name.to_string())),
        }
    }

    pub(super) fn principal(&self, caller: &Caller) -> Result<&Principal, CallError> {
        let holder = self.holder(caller)?;
        Ok(holder.map_or(&self.keys.nobody, |holder| &holder.principal))
    }

    /// The servers whose resources and prompts exist for a request.
    pub(super) fn with_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<ServerName>, CallError> {
        let lens = self.access.lens(self.principal(caller)?, filters);
        let names = self.servers.keys().filter(|name| lens.sees_resources(name));
        Ok(names.cloned().collect())
    }

    /// That a server's resources exist for a caller.
    pub(super) fn sees_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
        server: &ServerName,
    ) -> Result<(), CallError> {
        let lens = self.access.lens(self.principal(caller)?, filters);
        match lens.sees_resources(server) {
            true => Ok(()),
            false => Err(CallError::Unknown {
                name: server.to_string(),
                nearest: Vec::new(),
            }),
        }
    }

    pub(super) fn has_role(&self, key: &str, role: &str) -> bool {
        let holder = self.keys.by_name.get(key);
        holder.is_some_and(|holder| holder.principal.roles.iter().any(|own| own == role))
    }

    pub(super) fn timeout(&self, tool: &ToolId) -> Duration {
        let server = self.servers.get(&tool.server).map(|served| &served.server);
        let own = server.and_then(|server| server.tool(tool.tool.as_str()).timeout);
        own.or_else(|| server.and_then(|server| server.timeout))
            .unwrap_or(self.manager.tool_execution_timeout)
    }

    /// Whether a server takes connections of a client's own.
    pub(super) fn has_own_lanes(&self, server: &ServerName) -> bool {
        let served = self.servers.get(server);
        served.is_some_and(|served| served.server.has_own_lanes())
    }

    /// How long a request may take, which may be longer where a person is to answer meanwhile.
    pub(super) fn patience(
        &self,
        request: &Request,
        server: &ServerName,
        timeout: Duration,
    ) -> Duration {
        match request.may_wait_for_a_person() && self.has_own_lanes(server) {
            true => timeout.max(ANSWERED),
            false => timeout,
        }
    }

    /// The bound on a request to a server that is no tool call.
    pub(super) fn server_timeout(&self, server: &ServerName) -> Duration {
        let own = self.servers.get(server);
        let own = own.and_then(|served| served.server.timeout);
        own.unwrap_or(self.manager.tool_execution_timeout)
    }

    /// The caller's headers that a server's config lets through.
    pub(super) fn forwarded(&self, server: &ServerName, headers: &HeaderMap) -> HeaderMap {
        let link = self.servers.get(server).map(|served| &served.server.link);
        let Some(Link::Http(http)) = link else {
            return HeaderMap::new();
        };
        let own = |name: &str| {
            let configured = http
                .headers
                .keys()
                .any(|set| set.eq_ignore_ascii_case(name));
            configured
                || OWN_HEADERS.contains(&name)
                || TraceContext::NAMES.contains(&name) // it goes along with every call
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

impl Keys {
    fn new(config: &Config, access: &Access, environment: &Environment) -> Self {
        let mut keys = Self::default();
        for key in &config.keys {
            let name: Arc<str> = key.name.as_str().into();
            match digest(key, environment) {
                Ok(digest) => match keys.by_digest.entry(digest) {
                    Entry::Vacant(place) => drop(place.insert(Some(Arc::clone(&name)))),
                    Entry::Occupied(mut place) => {
                        tracing::error!(key = %name, "the same key as `{:?}`; neither opens", place.get());
                        place.insert(None);
                    }
                },
                Err(error) => {
                    tracing::error!(key = %name, "the key opens nothing: {error}");
                }
            }
            let holder = Holder {
                principal: principal(key, &config.roles, access),
                limits: key.limits,
                enabled: key.enabled,
                expires_at: key.expires_at,
            };
            keys.by_name.insert(name, holder);
        }
        keys
    }
}

impl Holder {
    fn check(&self) -> Result<(), KeyError> {
        if !self.enabled {
            return Err(KeyError::Disabled);
        }
        match self.expires_at.is_some_and(|end| end <= SystemTime::now()) {
            true => Err(KeyError::Expired),
            false => Ok(()),
        }
    }
}

fn digest(key: &Key, environment: &Environment) -> Result<[u8; 32], toolgate_core::secret::Unset> {
    match &key.proof {
        Proof::Sha256(digest) => Ok(*digest),
        Proof::Key(secret) => {
            let key = secret.resolve(&|name| environment.get(name))?;
            Ok(Sha256::digest(key).into())
        }
    }
}

/// What a key and its roles open. Roles that name no tools do not restrict.
fn principal(key: &Key, roles: &[Role], access: &Access) -> Principal {
    let mut grants = Vec::new();
    if let Some(tools) = &key.tools {
        grants.push(access.grant(&format!("keys.{}.tools", key.name), tools));
    }
    let own = roles.iter().filter(|role| key.roles.contains(&role.name));
    let restricting: Vec<(&str, &Vec<String>)> = own
        .filter_map(|role| Some((role.name.as_str(), role.tools.as_ref()?)))
        .collect();
    if !restricting.is_empty() {
        let places: Vec<String> = restricting
            .iter()
            .map(|(name, _)| format!("roles.{name}.tools"))
            .collect();
        let tools: Vec<String> = restricting
            .iter()
            .flat_map(|(_, tools)| tools.iter().cloned())
            .collect();
        grants.push(access.grant(&places.join(" + "), &tools));
    }
    let shown = |role: &Role| role.resources || !key.roles.contains(&role.name);
    Principal {
        roles: key.roles.clone(),
        grants,
        resources: key.resources && roles.iter().all(shown),
    }
}
