//! Caches tool results where the configuration allows it: for read-only tools of servers with a
//! `cache_ttl`, and for tools with a `cache_ttl` of their own.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use toolgate_core::name::ToolId;

use super::dispatch::Dispatch;
use super::rules::Rules;
use crate::call::RequestContext;
use crate::result::ToolResult;
use crate::ttl_cache::TtlCache;

const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024;

/// Identifies a result by everything it depends on: the program, the tool's definition, the
/// arguments and the forwarded caller headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    tool: ToolId,
    digest: [u8; 32],
}

#[derive(Debug)]
pub(super) struct ResultCache(TtlCache<CacheKey, ToolResult>);

impl ResultCache {
    pub(super) fn new() -> Self {
        Self(TtlCache::new(MAX_TOTAL_BYTES))
    }

    /// Returns the key and TTL for a call whose result may be cached.
    pub(super) fn key(&self, rules: &Rules, dispatch: &Dispatch) -> Option<(CacheKey, Duration)> {
        // The server may have asked this client for input, so the result is private to the client.
        let RequestContext {
            modern_client,
            session,
            ..
        } = &*dispatch.request;
        if modern_client.is_some() || session.is_some() {
            return None;
        }
        let tool = &dispatch.tool;
        let server_rules = rules.servers.get(&tool.id.server)?;
        let tool_ttl = server_rules
            .server
            .tool_limits(tool.id.tool.as_str())
            .cache_ttl;
        let is_read_only = tool.hints.read_only == Some(true);
        let ttl = tool_ttl.or(server_rules
            .server
            .limits
            .cache_ttl
            .filter(|_| is_read_only))?;
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(server_rules.fingerprint.as_bytes());
        add(&[u8::from(rules.results.redact_secrets)]);
        add(tool.hash.as_bytes());
        add(dispatch.arguments.raw().get().as_bytes());
        for (name, value) in &dispatch.headers {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
        let key = CacheKey {
            tool: tool.id.clone(),
            digest: hash.finalize().into(),
        };
        Some((key, ttl))
    }

    pub(super) fn get(&self, key: &CacheKey) -> Option<ToolResult> {
        self.0.get(key)
    }

    /// Stores a result, unless the tool failed.
    pub(super) fn insert(&self, key: CacheKey, result: &ToolResult, ttl: Duration) {
        if !result.is_error() {
            let bytes = result.raw().get().len() + 256;
            self.0.insert(key, result.clone(), bytes, ttl);
        }
    }
}
