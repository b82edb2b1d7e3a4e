//! A parsed model request in progress, with its caller and context.

use std::sync::Arc;

use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::endpoint::Endpoint;
use toolgate_llm::form::Form;
use toolgate_llm::provider_turn::ProviderTurn;
use toolgate_llm::turn::ResponseHead;
use toolgate_llm::{FieldError, RequestBody};

use super::table::NamedModel;
use super::{ModelError, ModelRequest, Operation};
use crate::call::RequestContext;
use crate::caller::Caller;
use crate::engine::Engine;

/// Names the provider of models whose name has none.
const PROVIDER_HEADER: &str = "x-toolgate-provider";
const MAX_MODEL_NAME_BYTES: usize = 256;

/// A model request in progress.
#[derive(Clone, Debug)]
pub(crate) struct ModelCall {
    pub(crate) request: Arc<ModelRequest>,
    /// Request id, filters and headers; the id differs between the turns of a run.
    pub(crate) context: Arc<RequestContext>,
    pub(crate) body: RequestBody,
    /// The form that was sent instead of a JSON body, which then has only some of its fields.
    pub(super) form: Option<Arc<Form>>,
    /// Model name from the request.
    pub(super) name: String,
    pub(crate) stream: bool,
    pub(crate) caller: Caller,
    /// Whether the gateway needs the usage of a stream even if the caller did not request it.
    pub(crate) needs_usage: bool,
    /// Original form of the last turns with tool calls, where the conversation holds their translation.
    pub(crate) provider_turns: Vec<Option<Arc<ProviderTurn>>>,
    /// Whether a limit in dollars applies in addition to the key's budget.
    pub(crate) has_cost_limit: bool,
}

impl ModelCall {
    pub(crate) fn new(
        request: ModelRequest,
        body: RequestBody,
        caller: Caller,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            stream: body.is_true("stream"),
            name: model_name(&body)?,
            body,
            form: None,
            caller,
            context: Arc::clone(&request.request),
            request: Arc::new(request),
            needs_usage: false,
            provider_turns: Vec::new(),
            has_cost_limit: false,
        })
    }

    /// Copies the call with another body.
    pub(super) fn with_body(&self, body: RequestBody) -> Result<Self, ModelError> {
        if self.form.is_some() {
            return Err(ModelError::Field(FieldError {
                field: "body".to_owned(),
                problem: "is a form, which a hook cannot change".to_owned(),
            }));
        }
        Ok(Self {
            stream: body.is_true("stream"),
            name: model_name(&body)?,
            body,
            ..self.clone()
        })
    }

    #[must_use]
    pub(crate) fn with_context(mut self, context: Arc<RequestContext>) -> Self {
        self.context = context;
        self
    }

    /// Returns the model name from the request.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the request says about its model.
    pub(super) fn model_request(&self) -> NamedModel<'_> {
        let provider = self.context.headers.get(PROVIDER_HEADER);
        NamedModel {
            name: &self.name,
            provider: provider.and_then(|provider| provider.to_str().ok()),
            fallbacks: self.body.get("fallbacks"),
        }
    }

    /// Returns the name under which the request is recorded.
    pub(super) fn record_name(&self) -> &'static str {
        match self.request.operation {
            Operation::Forward(endpoint) => endpoint.path(),
            Operation::Complete | Operation::CountTokens | Operation::StoredResponse => {
                self.request.dialect.as_str()
            }
        }
    }

    /// Returns whether the gateway must request stream usage itself, because it needs the usage and the
    /// caller did not request it.
    pub(super) fn must_request_stream_usage(&self, engine: &Engine) -> bool {
        let reports_usage = match self.request.operation {
            Operation::Complete => self.request.dialect == Dialect::Chat,
            Operation::Forward(endpoint) => endpoint == Endpoint::Completions,
            Operation::CountTokens | Operation::StoredResponse => false,
        };
        reports_usage
            && self.stream
            && !self.requests_stream_usage()
            && (self.needs_usage || engine.limits().has_budget(&self.caller))
    }

    /// Returns whether the caller requested the usage of a stream.
    fn requests_stream_usage(&self) -> bool {
        self.stream_options()["include_usage"] == true
    }

    pub(super) fn stream_options(&self) -> Value {
        let options = self.body.get("stream_options");
        let options: Option<Value> = options.and_then(|options| serde_json::from_str(options).ok());
        options
            .filter(Value::is_object)
            .unwrap_or_else(|| serde_json::json!({}))
    }

    /// Creates the metadata of a response to this request, without an id.
    pub(crate) fn response_head(&self) -> ResponseHead {
        ResponseHead {
            id: String::new(),
            model: self.name.clone(),
            created: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            namespaces: match self.request.dialect {
                Dialect::Responses => toolgate_llm::tools::tool_namespaces(&self.body),
                Dialect::Chat | Dialect::Messages => Vec::new(),
            },
            stream_usage: self.requests_stream_usage(),
        }
    }
}

fn model_name(body: &RequestBody) -> Result<String, ModelError> {
    let name = body.get_string("model").ok_or(ModelError::MissingModel)?;
    if name.len() > MAX_MODEL_NAME_BYTES {
        return Err(ModelError::Field(FieldError {
            field: "model".to_owned(),
            problem: format!("is longer than {MAX_MODEL_NAME_BYTES} bytes"),
        }));
    }
    Ok(name)
}
