//! Results that may be used again: of tools marked as read-only on servers with a `cache_ttl`, or
//! of tools that have one themselves.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use toolgate_core::name::ToolId;

use super::dispatch::Dispatch;
use super::rules::Rules;
use crate::call::Request;
use crate::keep::Keep;
use crate::result::ToolResult;

const MOST_BYTES: u64 = 32 * 1024 * 1024;

/// What determines a result: the program, the tool and its version, and what it was given, with
/// the caller's headers that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    tool: ToolId,
    digest: [u8; 32],
}

#[derive(Debug)]
pub(super) struct Reuse(Keep<Key, ToolResult>);

impl Reuse {
    pub(super) fn new() -> Self {
        Self(Keep::new(MOST_BYTES))
    }

    /// The key of a call whose result may be reused, and for how long.
    pub(super) fn key(&self, rules: &Rules, dispatch: &Dispatch) -> Option<(Key, Duration)> {
        // What a server may have asked its client about is for that client alone.
        let Request { guest, session, .. } = &*dispatch.request;
        if guest.is_some() || session.is_some() {
            return None;
        }
        let tool = &dispatch.tool;
        let served = rules.servers.get(&tool.id.server)?;
        let own = served.server.tool(tool.id.tool.as_str()).cache_ttl;
        let marked = tool.hints.read_only == Some(true);
        let ttl = own.or(served.server.limits.cache_ttl.filter(|_| marked))?;
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(served.binding.as_bytes());
        add(&[u8::from(rules.results.redact_secrets)]);
        add(tool.hash.as_bytes());
        add(dispatch.arguments.raw().get().as_bytes());
        for (name, value) in &dispatch.headers {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
        let key = Key {
            tool: tool.id.clone(),
            digest: hash.finalize().into(),
        };
        Some((key, ttl))
    }

    pub(super) fn get(&self, key: &Key) -> Option<ToolResult> {
        self.0.get(key)
    }

    /// Keeps a result, unless the tool failed.
    pub(super) fn put(&self, key: Key, result: &ToolResult, ttl: Duration) {
        if !result.is_error() {
            let bytes = result.raw().get().len() + 256;
            self.0.put(key, result.clone(), bytes, ttl);
        }
    }
}
