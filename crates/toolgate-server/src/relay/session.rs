//! The legacy session of the client. When the gateway no longer knows it, it is opened again with what the
//! client sent when it opened it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::gateway::{Answer, GatewayEndpoint, GatewayError, SessionHeaders};
use super::message::{self, GatewayMessage};

/// Maximum number of resource subscriptions that are made again in a new session.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// The client's session, if it has one.
#[derive(Debug, Default)]
pub(super) struct LegacySession {
    /// Held while a session is being opened, so that only one is.
    state: Mutex<SessionState>,
}

#[derive(Debug, Default)]
struct SessionState {
    current: Option<Arc<OpenSession>>,
    /// What the client sent to open it.
    opening: Option<Opening>,
}

/// A session that the gateway has opened.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) headers: SessionHeaders,
    /// Cancelled when another session replaces this one.
    pub(super) replaced: CancellationToken,
}

/// What opened the session, and the state that the client has given it since.
#[derive(Debug)]
struct Opening {
    initialize: String,
    version: String,
    /// Notifications about changed lists that the client expects.
    list_changes: Vec<String>,
    /// The client's notification that it is ready.
    initialized: Option<String>,
    log_level: Option<String>,
    /// Requests for subscriptions, by URI.
    subscriptions: BTreeMap<String, String>,
}

/// A session that was opened in place of another one.
#[derive(Debug)]
pub(super) struct RenewedSession {
    pub(super) session: Arc<OpenSession>,
    /// Messages for the client: what it knows of the lists may no longer hold.
    pub(super) list_changes: Vec<String>,
    pub(super) is_ready: bool,
}

/// The session that a message belongs to.
#[derive(Debug)]
pub(super) enum FoundSession {
    /// The client has not opened one.
    None,
    Open(Arc<OpenSession>),
    Renewed(RenewedSession),
}

impl LegacySession {
    /// Opens the session with the client's `initialize`. Returns the response to it.
    pub(super) async fn open(
        &self,
        gateway: &GatewayEndpoint,
        initialize: &str,
    ) -> Result<Option<String>, GatewayError> {
        let mut state = self.state.lock().await;
        let (answer, response) = initialize_session(gateway, initialize).await?;
        let result = response.as_deref().and_then(parse_result);
        if let Some(result) = result {
            if let Some(previous) = state.current.take() {
                previous.replaced.cancel();
                gateway.end_session(&previous.headers).await;
            }
            let version = protocol_version(&result);
            state.current = Some(OpenSession::new(&answer, &version));
            state.opening = Some(Opening {
                initialize: initialize.to_owned(),
                list_changes: list_changes(&result),
                version,
                initialized: None,
                log_level: None,
                subscriptions: BTreeMap::new(),
            });
        }
        Ok(response)
    }

    /// Returns the session, opening it again if it is the one that the gateway no longer knows.
    pub(super) async fn get(
        &self,
        gateway: &GatewayEndpoint,
        gone: Option<&Arc<OpenSession>>,
    ) -> Result<FoundSession, GatewayError> {
        let mut state = self.state.lock().await;
        if let Some(current) = &state.current
            && gone.is_none_or(|gone| !Arc::ptr_eq(gone, current))
        {
            return Ok(FoundSession::Open(Arc::clone(current)));
        }
        let Some(opening) = &state.opening else {
            return Ok(FoundSession::None);
        };
        let session = opening.repeat(gateway).await?;
        let renewed = RenewedSession {
            session: Arc::clone(&session),
            list_changes: opening.list_changes.clone(),
            is_ready: opening.initialized.is_some(),
        };
        if let Some(gone) = state.current.replace(session) {
            gone.replaced.cancel();
        }
        tracing::info!("opened a new session in place of one that the gateway has ended");
        Ok(FoundSession::Renewed(renewed))
    }

    /// Takes note that the client is ready.
    pub(super) async fn set_initialized(&self, notification: &str) {
        if let Some(opening) = &mut self.state.lock().await.opening {
            opening.initialized = Some(notification.to_owned());
        }
    }

    /// Takes note of a request that has changed the state of the session.
    pub(super) async fn record_request(&self, method: &str, request: &str) {
        if !matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        ) {
            return;
        }
        let mut state = self.state.lock().await;
        let Some(opening) = &mut state.opening else {
            return;
        };
        if method == "logging/setLevel" {
            opening.log_level = Some(request.to_owned());
            return;
        }
        let Some(uri) = message::text_parameter(request, "uri") else {
            return;
        };
        if method == "resources/unsubscribe" {
            opening.subscriptions.remove(&uri);
        } else if opening.subscriptions.len() < MAX_SUBSCRIPTIONS {
            opening.subscriptions.insert(uri, request.to_owned());
        }
    }

    /// Ends the session.
    pub(super) async fn close(&self, gateway: &GatewayEndpoint) {
        let current = self.state.lock().await.current.take();
        if let Some(current) = current {
            current.replaced.cancel();
            gateway.end_session(&current.headers).await;
        }
    }
}

impl OpenSession {
    fn new(answer: &Answer, version: &str) -> Arc<Self> {
        Arc::new(Self {
            headers: SessionHeaders {
                id: answer.session_id.clone(),
                version: HeaderValue::from_str(version).ok(),
            },
            replaced: CancellationToken::new(),
        })
    }
}

impl Opening {
    /// Opens a session in place of the client.
    async fn repeat(&self, gateway: &GatewayEndpoint) -> Result<Arc<OpenSession>, GatewayError> {
        let (answer, response) = initialize_session(gateway, &self.initialize).await?;
        let Some(result) = response.as_deref().and_then(parse_result) else {
            let response = response.unwrap_or_default();
            return Err(GatewayError::Refused(format!(
                "the gateway does not open a new session: {response}"
            )));
        };
        let version = protocol_version(&result);
        if version != self.version {
            return Err(GatewayError::Refused(format!(
                "the gateway now speaks protocol version {version} instead of {}; restart this server in the client",
                self.version
            )));
        }
        let session = OpenSession::new(&answer, &version);
        let state = self.initialized.iter().chain(&self.log_level);
        for message in state.chain(self.subscriptions.values()) {
            let mut answer = gateway.notify(message, &session.headers).await?;
            // The client has had these responses.
            while answer.next().await?.is_some() {}
        }
        Ok(session)
    }
}

/// Sends `initialize` and reads the response.
async fn initialize_session(
    gateway: &GatewayEndpoint,
    initialize: &str,
) -> Result<(Answer, Option<String>), GatewayError> {
    let mut answer = gateway.post(initialize, HeaderMap::new()).await?;
    let mut response = None;
    while let Some(message) = answer.next().await? {
        response = Some(message);
    }
    Ok((answer, response))
}

fn parse_result(response: &str) -> Option<Value> {
    let result = GatewayMessage::parse(response)?.result?;
    serde_json::from_str(result.get()).ok()
}

fn protocol_version(result: &Value) -> String {
    let version = result["protocolVersion"].as_str();
    version.unwrap_or_default().to_owned()
}

/// Returns the notifications that tell a client to read its lists again.
fn list_changes(result: &Value) -> Vec<String> {
    let lists = ["tools", "resources", "prompts"].into_iter();
    let expected = lists.filter(|list| result["capabilities"][list]["listChanged"] == true);
    expected
        .map(|list| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#))
        .collect()
}
