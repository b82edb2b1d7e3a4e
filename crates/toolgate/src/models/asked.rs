//! One request under way.

use std::sync::Arc;

use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::turn::Head;
use toolgate_llm::{BadField, Body};

use super::{ModelError, ModelRequest};
use crate::call::Request;
use crate::caller::Caller;
use crate::engine::Engine;

/// Longest name of a model.
const LONGEST_NAME: usize = 256;
const EVENTS: &str = "x-toolgate-events";

/// One request under way.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) request: Arc<ModelRequest>,
    /// Its id and filters, which differ between the turns of a run.
    pub(crate) context: Arc<Request>,
    pub(crate) body: Body,
    /// The model as the caller named it.
    pub(super) name: String,
    pub(crate) stream: bool,
    pub(crate) caller: Caller,
    /// Whether the usage of a stream is wanted although the caller did not ask for it.
    pub(crate) counts_usage: bool,
    /// Whether something is bounded in dollars besides the caller's key.
    pub(crate) counts_money: bool,
}

impl Asked {
    pub(crate) fn new(
        request: ModelRequest,
        body: Body,
        caller: Caller,
    ) -> Result<Self, ModelError> {
        let name = body.string("model").ok_or(ModelError::NoModelNamed)?;
        if name.len() > LONGEST_NAME {
            return Err(ModelError::Field(BadField {
                field: "model".to_owned(),
                problem: format!("is longer than {LONGEST_NAME} bytes"),
            }));
        }
        Ok(Self {
            stream: body.is_true("stream"),
            body,
            name,
            caller,
            context: Arc::clone(&request.request),
            request: Arc::new(request),
            counts_usage: false,
            counts_money: false,
        })
    }

    #[must_use]
    pub(crate) fn in_context(mut self, context: Arc<Request>) -> Self {
        self.context = context;
        self
    }

    /// The model as the caller named it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the usage of a stream must be asked for because the caller has a budget and did not
    /// ask itself.
    pub(super) fn counts_stream(&self, engine: &Engine) -> bool {
        self.request.dialect == Dialect::Chat
            && self.stream
            && !self.tells_usage()
            && (self.counts_usage || engine.has_budget(&self.caller))
    }

    /// Whether the caller asked for the usage of a stream.
    fn tells_usage(&self) -> bool {
        self.stream_options()["include_usage"] == true
    }

    pub(super) fn stream_options(&self) -> Value {
        let options = self.body.get("stream_options");
        let options: Option<Value> = options.and_then(|options| serde_json::from_str(options).ok());
        options
            .filter(Value::is_object)
            .unwrap_or_else(|| serde_json::json!({}))
    }

    /// Whether the caller wants to hear of each tool call of a run.
    pub(crate) fn tells_calls(&self) -> bool {
        let events = self.context.headers.get(EVENTS);
        events.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"on"))
    }

    pub(crate) fn head(&self) -> Head {
        Head {
            id: String::new(),
            model: self.name.clone(),
            created: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            namespaces: match self.request.dialect {
                Dialect::Responses => toolgate_llm::tools::namespaces(&self.body),
                Dialect::Chat | Dialect::Messages => Vec::new(),
            },
            stream_usage: self.tells_usage(),
        }
    }
}
