//! First pages of tool lists, encoded once for each scope.
//!
//! A scope is made anew whenever the rules or the catalog change, and for each key and filter, so
//! nobody gets a page that is another's or is out of date.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use serde_json::value::RawValue;
use toolgate_core::scope::Scope;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::RpcError;

/// Bytes of pages that are kept.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const IDLE: Duration = Duration::from_secs(300);

/// A page as clients of one era get it; clones share it.
#[derive(Clone, Debug)]
pub struct Page(Arc<RawValue>);

#[derive(Debug)]
pub(crate) struct Pages(Cache<Key, Kept>);

/// A scope by its address, which is its own as long as the scope is held here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    scope: usize,
    /// Whether names are those of one server.
    is_raw: bool,
    is_modern: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    page: Page,
    _scope: Arc<Scope>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        let weigh =
            |_: &Key, kept: &Kept| u32::try_from(kept.page.0.get().len() + 256).unwrap_or(u32::MAX);
        Self(
            Cache::builder()
                .max_capacity(MOST_BYTES)
                .weigher(weigh)
                .time_to_idle(IDLE)
                .build(),
        )
    }

    /// The page of a scope, which `encode` makes if it is not kept.
    pub(super) fn get(
        &self,
        scope: &Arc<Scope>,
        (is_raw, era): (bool, Era),
        encode: impl FnOnce() -> Result<Page, RpcError>,
    ) -> Result<Page, RpcError> {
        let key = Key {
            scope: Arc::as_ptr(scope).addr(),
            is_raw,
            is_modern: era == Era::Modern,
        };
        if let Some(kept) = self.0.get(&key) {
            return Ok(kept.page);
        }
        let page = encode()?;
        let kept = Kept {
            page: page.clone(),
            _scope: Arc::clone(scope),
        };
        self.0.insert(key, kept);
        Ok(page)
    }
}

impl Page {
    pub(super) fn to_raw(&self) -> Box<RawValue> {
        (*self.0).to_owned()
    }

    /// Its JSON, which is not copied.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl From<Box<RawValue>> for Page {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}
