//! The fixtures that the official conformance suite expects of a server, under `--fixtures`.
//!
//! `fixture/scripts.json` defines their behaviour and `fixture/catalog.json` their listing. This
//! module is the interpreter and knows no fixture by name.

mod conversation;
mod request_state;
mod template;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::change::Change;
use super::client_request::ClientRequest;
use super::era::RequestEra;
use super::peers::includes_info;
use super::rpc::{INVALID_PARAMS, Request, RpcParams, ZooError, json_string, notification};
use super::server::{CallOutcome, ZooCall};
use super::tool;
use conversation::{Conversation, Resumed, StateMode};
use request_state::StateSigner;

/// The listed definitions, in the format of the zoo's own `catalog.json`.
pub(crate) const CATALOG_JSON: &str = include_str!("fixture/catalog.json");

const MISSING_CAPABILITY: i64 = -32021;

#[derive(Debug)]
pub(crate) struct Fixtures {
    book: FixtureBook,
    state_signer: StateSigner,
    /// Number of changes to the content of a resource.
    updates: AtomicU64,
    /// Number of cancelled calls among those that wait to be cancelled.
    cancellations: AtomicU64,
}

#[derive(Debug, Deserialize)]
struct FixtureBook {
    /// By method and subject, as in `tools/call test_simple_text`.
    fixtures: HashMap<String, Fixture>,
    /// By prompt or template, then by argument.
    completions: HashMap<String, HashMap<String, Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Fixture {
    /// Names of the required arguments.
    needs: Vec<String>,
    /// The fixture exists only while this list includes its dynamic entries.
    listed_in: Option<Change>,
    /// Modern calls continue only with the `requestState` of an earlier call.
    stateful: bool,
    /// The fixture sends only requests that the client declared it can answer.
    adapts: bool,
    script: Vec<ScriptStep>,
    result: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ScriptStep {
    Progress {
        progress: u64,
        total: u64,
    },
    Log(String),
    /// Waits for this many milliseconds.
    Wait(u64),
    /// Ends the stream of a legacy call; the rest is delivered when the client resumes it.
    Cut,
    /// Blocks until the call is cancelled.
    UntilCancelled,
    Change(Change),
    /// Provides this many characters as `filler`.
    Fill(usize),
    Ask(Map<String, Value>),
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        let book = serde_json::from_str(include_str!("fixture/scripts.json"));
        Self {
            book: book.expect("`scripts.json` is invalid"),
            state_signer: StateSigner::new(),
            updates: AtomicU64::new(0),
            cancellations: AtomicU64::new(0),
        }
    }

    /// Checks that a modern client declared every capability the request needs.
    pub(crate) fn check_capabilities(&self, request: &Request) -> Result<(), ZooError> {
        let capabilities = request.declared_capabilities();
        let Some((fixture, _)) = self.find(request).filter(|(fixture, _)| !fixture.adapts) else {
            return Ok(());
        };
        let missing: Map<String, Value> = fixture
            .client_requests()
            .filter(|request| !request.is_supported_by(&capabilities))
            .map(|request| request.required_capability())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let data = json!({ "requiredCapabilities": missing });
        let message = "Missing required client capability";
        Err(ZooError::new(MISSING_CAPABILITY, message).with_data(data.to_string()))
    }

    /// Returns the raw result of `completion/complete`.
    pub(crate) fn complete(&self, params: &RpcParams) -> Result<String, ZooError> {
        let reference = params.reference.as_ref().unwrap_or(&Value::Null);
        let subject = reference["name"].as_str().or(reference["uri"].as_str());
        let subject = subject.unwrap_or_default();
        let completions = self.book.completions.get(subject).ok_or_else(|| {
            let message = format!("no completions for `{subject}`");
            ZooError::new(INVALID_PARAMS, message)
        })?;
        let argument = params.argument.as_ref().unwrap_or(&Value::Null);
        let (name, prefix) = (argument["name"].as_str(), argument["value"].as_str());
        let values: Vec<&String> = completions
            .get(name.unwrap_or_default())
            .into_iter()
            .flatten()
            .filter(|value| value.starts_with(prefix.unwrap_or_default()))
            .collect();
        let total = values.len();
        let completion = json!({ "values": values, "total": total, "hasMore": false });
        Ok(json!({ "completion": completion }).to_string())
    }

    /// Finds the fixture of a request, and the value of the variable in its URI.
    fn find<'a>(&'a self, request: &'a Request) -> Option<(&'a Fixture, Option<&'a str>)> {
        let key = format!("{} {}", request.method, request.subject()?);
        if let Some(fixture) = self.book.fixtures.get(&key) {
            return Some((fixture, None));
        }
        let uri = request.params.uri.as_deref()?;
        self.book.fixtures.iter().find_map(|(key, fixture)| {
            let template = key.strip_prefix("resources/read ")?;
            let variable = template::match_variable(template, uri)?;
            Some((fixture, Some(variable)))
        })
    }

    fn apply_change(&self, call: &ZooCall<'_>, change: &Change) {
        if matches!(change, Change::Resource(_)) {
            self.updates.fetch_add(1, Ordering::Relaxed);
        }
        call.server.catalog.apply(change);
        call.server.peers.announce(change);
    }
}

impl Fixture {
    fn client_requests(&self) -> impl Iterator<Item = ClientRequest> {
        self.script.iter().flat_map(|step| match step {
            ScriptStep::Ask(requests) => requests.values().map(parse_client_request).collect(),
            _ => Vec::new(),
        })
    }

    fn check_arguments(&self, arguments: &Value) -> Result<(), CallOutcome> {
        match self
            .needs
            .iter()
            .find(|name| arguments[name.as_str()].is_null())
        {
            None => Ok(()),
            Some(name) => {
                let message = format!("missing required argument `{name}`");
                Err(CallOutcome::Error(ZooError::new(INVALID_PARAMS, message)))
            }
        }
    }

    async fn play(
        &self,
        call: &ZooCall<'_>,
        fixtures: &Fixtures,
        variable: Option<&str>,
    ) -> Result<CallOutcome, CallOutcome> {
        let arguments: Value = serde_json::from_str(call.request.arguments()).map_err(|error| {
            CallOutcome::Error(ZooError::new(INVALID_PARAMS, error.to_string()))
        })?;
        self.check_arguments(&arguments)?;
        let state_mode = if self.stateful {
            StateMode::Signed(Resumed::No)
        } else {
            StateMode::None
        };
        let mut conversation = Conversation::resume(call, &fixtures.state_signer, state_mode)?;
        let mut facts = json!({ "arguments": arguments, "variable": variable });
        for step in &self.script {
            match step {
                ScriptStep::Progress { progress, total } => {
                    report_progress(call, *progress, *total)
                }
                ScriptStep::Log(text) => log_info(call, text),
                ScriptStep::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
                ScriptStep::Cut if call.era == RequestEra::Legacy => call.outbox.interrupt(),
                ScriptStep::Cut => {}
                ScriptStep::UntilCancelled => {
                    call.wait_for_cancellation().await;
                    call.server.request_log.log_cancelled();
                    fixtures.cancellations.fetch_add(1, Ordering::Relaxed);
                    return Err(CallOutcome::Nothing);
                }
                ScriptStep::Change(change) => fixtures.apply_change(call, change),
                ScriptStep::Fill(length) => facts["filler"] = "x".repeat(*length).into(),
                ScriptStep::Ask(requests) => {
                    let requests = self.render_requests(call, requests, &facts);
                    conversation.request_input(requests).await?;
                }
            }
        }
        facts["answers"] = Value::from(conversation.answers);
        facts["updates"] = fixtures.updates.load(Ordering::Relaxed).into();
        facts["cancellations"] = fixtures.cancellations.load(Ordering::Relaxed).into();
        let result = template::render(&self.result, &facts);
        Ok(CallOutcome::Result(result.to_string()))
    }

    /// Renders the requests of one step for this client.
    fn render_requests(
        &self,
        call: &ZooCall<'_>,
        requests: &Map<String, Value>,
        facts: &Value,
    ) -> Vec<(String, ClientRequest)> {
        let capabilities = call.client_capabilities();
        requests
            .iter()
            .map(|(key, value)| {
                (
                    key.clone(),
                    parse_client_request(&template::render(value, facts)),
                )
            })
            .filter(|(_, request)| !self.adapts || request.is_supported_by(&capabilities))
            .collect()
    }
}

/// Answers a request for a fixture; `None` without `--fixtures` and for other methods.
pub(crate) async fn play(call: &ZooCall<'_>) -> Option<CallOutcome> {
    let fixtures = call.server.fixtures.as_ref()?;
    let catalog = &call.server.catalog;
    let found = fixtures.find(call.request).filter(|(fixture, _)| {
        let list = fixture.listed_in.as_ref();
        list.is_none_or(|list| catalog.shows_dynamic(list))
    });
    match found {
        Some((fixture, variable)) => {
            let outcome = fixture.play(call, fixtures, variable).await;
            Some(outcome.unwrap_or_else(|early| early))
        }
        None => handle_unscripted(call),
    }
}

fn handle_unscripted(call: &ZooCall<'_>) -> Option<CallOutcome> {
    let subject = call.request.subject().unwrap_or_default();
    match call.request.method.as_str() {
        "tools/call" => Some(tool::echo_if_listed(call, subject)),
        "prompts/get" => {
            let message = format!("unknown prompt `{subject}`");
            Some(CallOutcome::Error(ZooError::new(INVALID_PARAMS, message)))
        }
        "resources/read" => Some(CallOutcome::Error(call.resource_not_found(subject))),
        _ => None,
    }
}

fn parse_client_request(value: &Value) -> ClientRequest {
    ClientRequest::deserialize(value)
        .expect("client requests in `scripts.json` need a method and parameters")
}

fn report_progress(call: &ZooCall<'_>, progress: u64, total: u64) {
    if let Some(token) = call.request.progress_token() {
        let params =
            format!(r#"{{"progressToken":{token},"progress":{progress},"total":{total}}}"#);
        call.outbox
            .notify(notification("notifications/progress", &params));
    }
}

/// Sends a log message at level `info`, if the client's log level includes it.
fn log_info(call: &ZooCall<'_>, text: &str) {
    let wanted = match call.era {
        RequestEra::Legacy => {
            let level = call.server.peers.log_level(&call.origin.scope);
            level.is_none_or(|level| includes_info(&level))
        }
        RequestEra::Modern => call.request.log_level().is_some_and(includes_info),
    };
    if wanted {
        let text = json_string(text);
        let params = format!(r#"{{"level":"info","logger":"toolgate-zoo","data":{text}}}"#);
        call.outbox
            .notify(notification("notifications/message", &params));
    }
}

#[cfg(test)]
mod tests {
    use super::{CATALOG_JSON, Fixtures};
    use serde_json::Value;

    #[test]
    fn listed_fixtures_are_scripted_and_all_client_requests_parse() {
        let fixtures = Fixtures::new().book.fixtures;
        let catalog: Value = serde_json::from_str(CATALOG_JSON).unwrap();
        for (list, method, key) in [
            ("tools", "tools/call", "name"),
            ("prompts", "prompts/get", "name"),
            ("resources", "resources/read", "uri"),
            ("resourceTemplates", "resources/read", "uriTemplate"),
        ] {
            for item in catalog[list].as_array().unwrap() {
                let subject = item[key].as_str().unwrap();
                let scripted = fixtures.contains_key(&format!("{method} {subject}"));
                assert!(scripted || subject == "json_schema_2020_12_tool", "{item}");
            }
        }
        let methods: Vec<String> = fixtures
            .values()
            .flat_map(|fixture| fixture.client_requests().map(|request| request.method))
            .collect();
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            assert!(methods.iter().any(|found| found == method));
        }
    }
}
