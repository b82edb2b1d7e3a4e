//! First pages of tool lists, encoded once for each scope.
//!
//! A new scope is built whenever the rules or the catalog change, and for each key and filter, so a
//! cached page is never stale and never shown to another caller.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use serde_json::value::RawValue;
use toolgate_core::scope::Scope;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::RpcError;

/// Total size of cached pages.
const MAX_TOTAL_BYTES: u64 = 64 * 1024 * 1024;
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// An encoded page for clients of one era. Clones share the bytes.
#[derive(Clone, Debug)]
pub(super) struct EncodedToolPage(Arc<RawValue>);

#[derive(Debug)]
pub(super) struct ToolPageCache(Cache<Key, CachedPage>);

/// The form in which a client sees a list of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListFormat {
    pub(super) uses_raw_names: bool,
    pub(super) era: Era,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Address of the scope, which cannot be reused while the cache holds the scope.
    scope: usize,
    format: ListFormat,
}

#[derive(Clone, Debug)]
struct CachedPage {
    page: EncodedToolPage,
    _scope: Arc<Scope>,
}

impl ToolPageCache {
    pub(super) fn new() -> Self {
        let weigh = |_: &Key, cached: &CachedPage| {
            u32::try_from(cached.page.0.get().len() + 256).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MAX_TOTAL_BYTES)
                .weigher(weigh)
                .time_to_idle(IDLE_TIMEOUT)
                .build(),
        )
    }

    /// Returns the page of a scope, encoding it with `encode` if it is not cached.
    pub(super) fn get(
        &self,
        scope: &Arc<Scope>,
        format: ListFormat,
        encode: impl FnOnce() -> Result<EncodedToolPage, RpcError>,
    ) -> Result<EncodedToolPage, RpcError> {
        let key = Key {
            scope: Arc::as_ptr(scope).addr(),
            format,
        };
        if let Some(cached) = self.0.get(&key) {
            return Ok(cached.page);
        }
        let page = encode()?;
        let cached = CachedPage {
            page: page.clone(),
            _scope: Arc::clone(scope),
        };
        self.0.insert(key, cached);
        Ok(page)
    }
}

impl EncodedToolPage {
    pub(super) fn to_raw(&self) -> Box<RawValue> {
        (*self.0).to_owned()
    }

    pub(super) fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns the page's JSON without copying it.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl From<Box<RawValue>> for EncodedToolPage {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl AsRef<[u8]> for EncodedToolPage {
    fn as_ref(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}
