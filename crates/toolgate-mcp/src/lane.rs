//! A lane: one connection to one server, with the era it speaks.
//!
//! The `shared` lane serves everyone who cannot be asked anything: the agent loop, scripts, the
//! CLI and stateless clients. It declares no capabilities. Others belong to one session or user.

mod open;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::catalog::{Offer, Tool};
use toolgate_core::name::ServerName;
use toolgate_core::secret::Masker;

use crate::ear::{Ear, Guest, Level};
use crate::handshake::{self, Era, Session, flat};
use crate::jsonrpc::Object;
use crate::transport::{Outgoing, RequestError, Transport};
use crate::{discovery, param_header};

pub use open::OpenError;
pub(crate) use open::Surroundings;

/// Before a subscription is asked for again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);
const SUBSCRIBE_LATEST: Duration = Duration::from_secs(30);

/// Rounds in which a modern server may ask to be called again with its own state.
const MAX_ROUNDS: usize = 10;

/// Which connection to a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneId {
    Shared,
    /// For one client session alone.
    Session(String),
    /// With the credentials of one user.
    User(String),
}

/// A connection's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    pub server: ServerName,
    pub lane: LaneId,
}

/// An open connection; clones share it.
#[derive(Clone)]
pub struct Lane(Arc<Inner>);

struct Inner {
    key: LaneKey,
    transport: Transport,
    session: Session,
    /// What every request to a modern server carries, unless it has a guest.
    modern_meta: Object,
    /// Whether the server answers pings.
    ping: bool,
    /// Keeps the server's secrets out of what it is quoted with.
    masker: Masker,
}

/// A tool call on its way to a server.
#[derive(Clone, Debug)]
pub struct ToolCall<'a> {
    pub tool: &'a Tool,
    pub arguments: &'a RawValue,
    /// Headers of the caller that the server's config lets through.
    pub headers: HeaderMap,
    /// Members of the caller's `_meta` that are passed on.
    pub meta: Object,
    /// Who hears of its progress.
    pub ear: Option<Arc<dyn Ear>>,
    /// The client, if a modern server may ask it.
    pub guest: Option<Arc<Guest>>,
    /// From which level on its client wants to hear log messages.
    pub log_level: Option<Level>,
}

/// A request on its way to a server.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub method: &'static str,
    pub params: Object,
    /// What it is about: the name or URI in its parameters.
    pub name: Option<String>,
    pub meta: Object,
    pub headers: HeaderMap,
    pub ear: Option<Arc<dyn Ear>>,
    pub guest: Option<Arc<Guest>>,
    pub log_level: Option<Level>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResultHead<'a> {
    #[serde(borrow)]
    result_type: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
}

impl<'a> ResultHead<'a> {
    fn of(result: &'a RawValue) -> Self {
        serde_json::from_str(result.get()).unwrap_or_default()
    }

    /// Whether it is the answer, and not a wish to be called again.
    fn is_complete(&self) -> Result<bool, RequestError> {
        match self.result_type.as_deref() {
            None | Some("complete") => Ok(true),
            Some("input_required") => Ok(false),
            Some(other) => Err(malformed(&format!("unknown result type `{other}`"))),
        }
    }
}

/// What a modern server wants to know.
#[derive(Deserialize)]
struct InputRequest<'a> {
    #[serde(borrow)]
    method: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl Lane {
    pub fn key(&self) -> &LaneKey {
        &self.0.key
    }

    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Everything the server offers, all pages.
    /// A list that fails keeps what it had `before`.
    pub(crate) async fn offer(&self, before: Option<&Offer>) -> Result<Offer, RequestError> {
        let mut offer = discovery::discover(self, before).await?;
        if self.sends_param_headers() {
            discovery::drop_invalid_headers(&mut offer);
        }
        Ok(offer.sorted())
    }

    /// Asks the server for a sign of life; an error answer is one too.
    pub(crate) async fn ping(&self) -> Result<(), RequestError> {
        let method = match (self.0.session.era, self.0.ping) {
            (Era::Modern, _) => "server/discover",
            (Era::Legacy, true) => "ping",
            (Era::Legacy, false) => "tools/list",
        };
        match self.request(method, Object::new(), HeaderMap::new()).await {
            Ok(_) | Err(RequestError::Rpc(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stays with the server so that it can tell its news, and ask where somebody can be asked;
    /// ends only if it does neither this way.
    pub(crate) async fn listen(&self) {
        let notifies = self.0.session.capabilities.notifies;
        let is_own = self.0.key.lane != LaneId::Shared;
        match (&self.0.transport, self.0.session.era) {
            (Transport::Http(http), Era::Legacy) if notifies || is_own => http.listen().await,
            (Transport::Http(_) | Transport::Stdio(_), Era::Modern) if notifies => {
                self.subscribe().await;
            }
            // A legacy server on pipes or an event stream tells without being asked.
            _ => {}
        }
    }

    async fn subscribe(&self) {
        let wanted =
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;
        let mut wait = SUBSCRIBE_AGAIN;
        loop {
            let params = Object::new().raw("notifications", wanted);
            match self
                .request("subscriptions/listen", params, HeaderMap::new())
                .await
            {
                Err(RequestError::Rpc(_) | RequestError::Status { .. }) => return,
                Ok(_) => wait = SUBSCRIBE_AGAIN,
                Err(_) => wait = (wait * 2).min(SUBSCRIBE_LATEST),
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether the connection can still carry requests, as far as is known.
    pub fn is_open(&self) -> bool {
        use futures_util::FutureExt as _;
        self.closed().now_or_never().is_none()
    }

    /// Whether two handles are of one connection.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Calls a tool and gives the server's result, byte for byte.
    pub async fn call_tool(&self, call: ToolCall<'_>) -> Result<Box<RawValue>, RequestError> {
        let mut headers = call.headers;
        if self.sends_param_headers() {
            match param_header::may_have(call.tool) {
                true => param_header::add(&call.tool.view(), call.arguments, &mut headers),
                false => param_header::add_name(call.tool.id.tool.as_str(), &mut headers),
            }
        }
        let params = Object::new()
            .text("name", call.tool.id.tool.as_str())
            .raw("arguments", call.arguments.get());
        let ask = Ask {
            method: "tools/call",
            params,
            name: None, // its header is there already
            meta: call.meta,
            headers,
            ear: call.ear,
            guest: call.guest,
            log_level: call.log_level,
        };
        self.ask_through(ask).await
    }

    /// Sends a request and, to a modern server, whatever it wants to know before it answers, as
    /// far as there is somebody to ask. A modern client is asked by the result itself.
    pub async fn ask_through(&self, ask: Ask) -> Result<Box<RawValue>, RequestError> {
        if self.0.session.era == Era::Legacy || ask.guest.is_some() {
            return self.ask(ask).await;
        }
        let result = self.ask(ask.clone()).await?;
        match ResultHead::of(&result).is_complete()? {
            true => Ok(result),
            false => Box::pin(self.complete(result, &ask)).await,
        }
    }

    /// Follows a modern server's wish to be called again, with what it wants to know.
    async fn complete(
        &self,
        mut result: Box<RawValue>,
        ask: &Ask,
    ) -> Result<Box<RawValue>, RequestError> {
        for _ in 0..MAX_ROUNDS {
            let head = ResultHead::of(&result);
            if head.is_complete()? {
                return Ok(result);
            }
            let mut params = ask.params.clone();
            if let Some(requests) = head.input_requests {
                let answers = self.answers(requests, ask.ear.as_ref()).await?;
                params = params.raw("inputResponses", &answers.to_string());
            }
            if let Some(state) = head.request_state {
                params = params.raw("requestState", state.get());
            }
            let again = Ask {
                params,
                ..ask.clone()
            };
            result = self.ask(again).await?;
        }
        Err(malformed("it asks to be called again and again"))
    }

    /// Asks the client whose connection this is; nobody else can be asked.
    async fn answers(
        &self,
        requests: &RawValue,
        ear: Option<&Arc<dyn Ear>>,
    ) -> Result<Object, RequestError> {
        let owned = matches!(self.0.key.lane, LaneId::Session(_));
        let Some(ear) = ear.filter(|_| owned) else {
            return Err(malformed("it asks for input, but there is nobody to ask"));
        };
        let requests: IndexMap<String, InputRequest<'_>> = serde_json::from_str(requests.get())
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        let mut answers = Object::new();
        for (key, InputRequest { method, params }) in requests {
            let answer = ear.asked(&method, params).await?;
            answers = answers.raw(&key, answer.get());
        }
        Ok(answers)
    }

    /// Sends a plain request in the lane's era.
    pub(crate) async fn request(
        &self,
        method: &'static str,
        params: Object,
        headers: HeaderMap,
    ) -> Result<Box<RawValue>, RequestError> {
        let ask = Ask {
            method,
            params,
            headers,
            ..Ask::default()
        };
        self.ask(ask).await
    }

    /// Sends a request in the lane's era.
    pub async fn ask(&self, ask: Ask) -> Result<Box<RawValue>, RequestError> {
        let Ask {
            method,
            params,
            name,
            meta,
            mut headers,
            ear,
            guest,
            log_level,
        } = ask;
        let (params, meta) = match self.0.session.era {
            Era::Legacy => (params, meta),
            Era::Modern => {
                handshake::add_modern_headers(method, &mut headers);
                if let Some(name) = name {
                    param_header::add_name(&name, &mut headers);
                }
                let params = match &guest {
                    Some(guest) => params.and(&guest.input),
                    None => params,
                };
                let meta = match log_level {
                    Some(level) => meta.text("io.modelcontextprotocol/logLevel", level.as_str()),
                    None => meta,
                };
                let meta = match &guest {
                    Some(guest) => meta.and(&handshake::modern_meta(&guest.capabilities)),
                    None => meta.and(&self.0.modern_meta),
                };
                (params, meta)
            }
        };
        let outgoing = Outgoing {
            method,
            params,
            meta,
            headers,
            ear,
        };
        let answer = flat(self.0.transport.request(outgoing).await);
        answer.map_err(|error| error.masked(&self.0.masker))
    }

    /// Sends a notification that only the old era knows.
    pub(crate) async fn notify(&self, method: &'static str) -> Result<(), RequestError> {
        match self.0.session.era {
            Era::Legacy => self.0.transport.notify(method).await,
            Era::Modern => Ok(()),
        }
    }

    pub(crate) async fn closed(&self) -> String {
        self.0.transport.closed().await
    }

    /// Lets go of a connection that was lost. Calls may still be under way on an HTTP session, so
    /// it is left to the server to forget it.
    pub(crate) async fn abandon(&self) {
        if !matches!(self.0.transport, Transport::Http(_)) {
            self.close().await;
        }
    }

    pub(crate) async fn close(&self) {
        self.0.transport.close().await;
    }

    fn sends_param_headers(&self) -> bool {
        self.0.session.era == Era::Modern && matches!(self.0.transport, Transport::Http(_))
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.0.key).finish()
    }
}

fn malformed(text: &str) -> RequestError {
    RequestError::Malformed(text.to_owned())
}
