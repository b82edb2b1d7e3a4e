//! Resources that one client watches.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use toolgate_core::catalog::with_text;
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
use toolgate_mcp::ear::Ear;
use toolgate_mcp::jsonrpc::{Answer, INVALID_PARAMS, RpcError};
use toolgate_mcp::registry::Watching;
use toolgate_mcp::serve::{empty_object, no_method, rpc};

use super::{Asker, Door, failed, read, uri};
use crate::caller::Caller;
use crate::gateway::Gateway;

pub(super) const UPDATED: &str = "notifications/resources/updated";

/// As many as one client may watch.
const MOST: usize = 1000;

/// Tells a client that a resource changed, with the parameters of the notification.
pub(super) type Tell = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// What a client of the old era watches, by the URIs it knows.
pub(super) struct Watcher {
    tell: Tell,
    watched: Mutex<HashMap<String, Watching>>,
}

/// Tells the client, as long as the server is in its scope.
struct Told {
    tell: Tell,
    server: ServerName,
    /// Whether the client knows the URI as the server does.
    is_raw: bool,
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
}

#[derive(serde::Deserialize)]
struct Params {
    uri: String,
}

impl Watcher {
    pub(super) fn new(tell: impl Fn(&RawValue) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
            watched: Mutex::default(),
        }
    }

    /// Watches nothing any more.
    pub(super) fn close(&self) {
        self.with(HashMap::clear);
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, Watching>) -> T) -> T {
        f(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Door {
    pub(super) async fn subscribe(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let Params { uri } = read(params)?;
        let client = asker.client.as_ref();
        let client = client.ok_or_else(|| no_method("resources/subscribe"))?;
        let watcher = &client.watcher;
        let known = watcher.with(|watched| watched.contains_key(&uri));
        if !known && watcher.with(|watched| watched.len()) >= MOST {
            let told = format!("no more than {MOST} resources may be watched");
            return Err(rpc(INVALID_PARAMS, told));
        }
        let watching = self.watch(asker, &uri, Arc::clone(&watcher.tell)).await?;
        watcher.with(|watched| watched.insert(uri, watching));
        Ok(empty_object())
    }

    pub(super) fn unsubscribe(asker: &Asker, params: Option<&RawValue>) -> Answer {
        let Params { uri } = read(params)?;
        let client = asker.client.as_ref();
        let client = client.ok_or_else(|| no_method("resources/unsubscribe"))?;
        client.watcher.with(|watched| watched.remove(&uri));
        Ok(empty_object())
    }

    /// Tells whenever a resource changes, for as long as the answer lives.
    pub(super) async fn watch(
        &self,
        asker: &Asker,
        uri: &str,
        tell: Tell,
    ) -> Result<Watching, RpcError> {
        let (server, own) = self.resource(asker, uri)?;
        let filters = &asker.request.filters;
        let told = Told {
            tell,
            server: server.clone(),
            is_raw: self.is_raw(),
            gateway: self.gateway.clone(),
            caller: asker.caller.clone(),
            filters: filters.clone(),
        };
        let ear = Arc::new(told);
        let watching = self
            .gateway
            .watch(&asker.caller, filters, &server, own, ear);
        watching.await.map_err(|error| failed(&error))
    }
}

impl Ear for Told {
    fn hear(&self, _: &str, params: Option<&RawValue>) {
        let in_scope = self
            .gateway
            .servers_with_resources(&self.caller, &self.filters);
        let in_scope = in_scope.is_ok_and(|servers| servers.contains(&self.server));
        let Some(params) = params.filter(|_| in_scope) else {
            return;
        };
        let known = serde_json::from_str::<Params>(params.get());
        match (self.is_raw, known) {
            (false, Ok(Params { uri })) => {
                let uri = uri::wrap(&self.server, &uri);
                (self.tell)(&with_text(params, "uri", &uri));
            }
            _ => (self.tell)(params),
        }
    }

    fn asked(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(Err(no_method(method))))
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.with(|watched| watched.keys().cloned().collect::<Vec<_>>());
        f.debug_tuple("Watcher").field(&watched).finish()
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
