//! The fixtures that the official conformance suite expects of a server, under `--fixtures`.
//!
//! What they do is written in `fixture/scripts.json` and what is listed in
//! `fixture/catalog.json`; here is the interpreter, which knows none of them by name.

mod conversation;
mod seal;
mod template;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::change::Change;
use super::era::Era;
use super::peers::shows_info;
use super::question::Question;
use super::rpc::{INVALID_PARAMS, Params, Request, RpcError, notification, quoted};
use super::server::{Call, Outcome};
use super::tool;
use conversation::{Conversation, Memory, Resumed};
use seal::Seal;

/// The lists, in the form of the zoo's own.
pub(crate) const CATALOG: &str = include_str!("fixture/catalog.json");

const MISSING_CAPABILITY: i64 = -32021;

#[derive(Debug)]
pub(crate) struct Fixtures {
    book: Book,
    seal: Seal,
    /// How often the content of a resource has changed.
    updates: AtomicU64,
    /// How many calls that waited to be cancelled were.
    cancellations: AtomicU64,
}

#[derive(Debug, Deserialize)]
struct Book {
    /// By method and subject, as in `tools/call test_simple_text`.
    fixtures: HashMap<String, Fixture>,
    /// By prompt or template, then by argument.
    completions: HashMap<String, HashMap<String, Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Fixture {
    /// Arguments that have to be there.
    needs: Vec<String>,
    /// It exists only while this list shows what comes and goes.
    listed_in: Option<Change>,
    /// Its modern calls go on only with the state of an earlier one.
    stateful: bool,
    /// It asks nothing that the client is not able to answer.
    adapts: bool,
    script: Vec<Step>,
    result: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Step {
    Progress {
        progress: u64,
        total: u64,
    },
    Log(String),
    /// So many milliseconds.
    Wait(u64),
    /// End the stream of a legacy call; the rest is for whoever resumes it.
    Cut,
    /// Never go on; the call ends when it is cancelled.
    UntilCancelled,
    Change(Change),
    Ask(Map<String, Value>),
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        let book = serde_json::from_str(include_str!("fixture/scripts.json"));
        Self {
            book: book.expect("`scripts.json` is valid"),
            seal: Seal::new(),
            updates: AtomicU64::new(0),
            cancellations: AtomicU64::new(0),
        }
    }

    /// Whether a modern client declared all that the request will need.
    pub(crate) fn check_capabilities(&self, request: &Request) -> Result<(), RpcError> {
        let capabilities = request.declared_capabilities();
        let Some((fixture, _)) = self.find(request).filter(|(fixture, _)| !fixture.adapts) else {
            return Ok(());
        };
        let missing: Map<String, Value> = fixture
            .questions()
            .filter(|question| !question.is_answerable(&capabilities))
            .map(|question| question.required())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let data = json!({ "requiredCapabilities": missing });
        let message = "Missing required client capability";
        Err(RpcError::new(MISSING_CAPABILITY, message).with_data(data.to_string()))
    }

    /// The raw result of `completion/complete`.
    pub(crate) fn complete(&self, params: &Params) -> Result<String, RpcError> {
        let reference = params.reference.as_ref().unwrap_or(&Value::Null);
        let subject = reference["name"].as_str().or(reference["uri"].as_str());
        let subject = subject.unwrap_or_default();
        let completions = self.book.completions.get(subject).ok_or_else(|| {
            let message = format!("nothing to complete for `{subject}`");
            RpcError::new(INVALID_PARAMS, message)
        })?;
        let argument = params.argument.as_ref().unwrap_or(&Value::Null);
        let (name, begun) = (argument["name"].as_str(), argument["value"].as_str());
        let values: Vec<&String> = completions
            .get(name.unwrap_or_default())
            .into_iter()
            .flatten()
            .filter(|value| value.starts_with(begun.unwrap_or_default()))
            .collect();
        let total = values.len();
        let completion = json!({ "values": values, "total": total, "hasMore": false });
        Ok(json!({ "completion": completion }).to_string())
    }

    /// The fixture, and what the variable in its address stands for.
    fn find<'a>(&'a self, request: &'a Request) -> Option<(&'a Fixture, Option<&'a str>)> {
        let key = format!("{} {}", request.method, request.subject()?);
        if let Some(fixture) = self.book.fixtures.get(&key) {
            return Some((fixture, None));
        }
        let address = request.params.uri.as_deref()?;
        self.book.fixtures.iter().find_map(|(key, fixture)| {
            let template = key.strip_prefix("resources/read ")?;
            let variable = template::variable(template, address)?;
            Some((fixture, Some(variable)))
        })
    }

    fn change(&self, call: &Call<'_>, change: &Change) {
        if matches!(change, Change::Resource(_)) {
            self.updates.fetch_add(1, Ordering::Relaxed);
        }
        call.server.catalog.change(change);
        call.server.peers.announce(change);
    }
}

impl Fixture {
    fn questions(&self) -> impl Iterator<Item = Question> {
        self.script.iter().flat_map(|step| match step {
            Step::Ask(questions) => questions.values().map(question).collect(),
            _ => Vec::new(),
        })
    }

    fn check_arguments(&self, arguments: &Value) -> Result<(), Outcome> {
        match self
            .needs
            .iter()
            .find(|name| arguments[name.as_str()].is_null())
        {
            None => Ok(()),
            Some(name) => {
                let message = format!("missing required argument `{name}`");
                Err(Outcome::Error(RpcError::new(INVALID_PARAMS, message)))
            }
        }
    }

    async fn play(
        &self,
        call: &Call<'_>,
        fixtures: &Fixtures,
        variable: Option<&str>,
    ) -> Result<Outcome, Outcome> {
        let arguments: Value = serde_json::from_str(call.request.arguments()).unwrap_or_default();
        self.check_arguments(&arguments)?;
        let memory = match self.stateful {
            true => Memory::Sealed(Resumed::No),
            false => Memory::None,
        };
        let mut conversation = Conversation::resume(call, &fixtures.seal, memory)?;
        let mut facts = json!({ "arguments": arguments, "variable": variable });
        for step in &self.script {
            match step {
                Step::Progress { progress, total } => report(call, *progress, *total),
                Step::Log(text) => log(call, text),
                Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
                Step::Cut if call.era == Era::Legacy => call.outbox.cut(),
                Step::Cut => {}
                Step::UntilCancelled => {
                    call.cancelled().await;
                    call.server.ledger.cancelled();
                    fixtures.cancellations.fetch_add(1, Ordering::Relaxed);
                    return Err(Outcome::Nothing);
                }
                Step::Change(change) => fixtures.change(call, change),
                Step::Ask(questions) => {
                    let questions = self.asked(call, questions, &facts);
                    conversation.ask(questions).await?;
                }
            }
        }
        facts["answers"] = Value::from(conversation.answers);
        facts["updates"] = fixtures.updates.load(Ordering::Relaxed).into();
        facts["cancellations"] = fixtures.cancellations.load(Ordering::Relaxed).into();
        let result = template::filled(&self.result, &facts);
        Ok(Outcome::Result(result.to_string()))
    }

    /// The questions of one step, as this client gets them.
    fn asked(
        &self,
        call: &Call<'_>,
        questions: &Map<String, Value>,
        facts: &Value,
    ) -> Vec<(String, Question)> {
        let capabilities = call.client_capabilities();
        questions
            .iter()
            .map(|(key, value)| (key.clone(), question(&template::filled(value, facts))))
            .filter(|(_, question)| !self.adapts || question.is_answerable(&capabilities))
            .collect()
    }
}

/// Answers what is about one fixture; nothing without `--fixtures`, and for other methods.
pub(crate) async fn play(call: &Call<'_>) -> Option<Outcome> {
    let fixtures = call.server.fixtures.as_ref()?;
    let catalog = &call.server.catalog;
    let found = fixtures.find(call.request).filter(|(fixture, _)| {
        let list = fixture.listed_in.as_ref();
        list.is_none_or(|list| catalog.shows_more(list))
    });
    match found {
        Some((fixture, variable)) => {
            let outcome = fixture.play(call, fixtures, variable).await;
            Some(outcome.unwrap_or_else(|early| early))
        }
        None => unscripted(call),
    }
}

fn unscripted(call: &Call<'_>) -> Option<Outcome> {
    let subject = call.request.subject().unwrap_or_default();
    match call.request.method.as_str() {
        "tools/call" => Some(tool::unscripted(call, subject)),
        "prompts/get" => {
            let message = format!("unknown prompt `{subject}`");
            Some(Outcome::Error(RpcError::new(INVALID_PARAMS, message)))
        }
        "resources/read" => Some(Outcome::Error(call.not_found(subject))),
        _ => None,
    }
}

fn question(value: &Value) -> Question {
    Question::deserialize(value).expect("`scripts.json` asks with a method and parameters")
}

fn report(call: &Call<'_>, progress: u64, total: u64) {
    if let Some(token) = call.request.progress_token() {
        let params =
            format!(r#"{{"progressToken":{token},"progress":{progress},"total":{total}}}"#);
        call.outbox
            .notify(notification("notifications/progress", &params));
    }
}

/// Logs at level `info`, if the client wants it.
fn log(call: &Call<'_>, text: &str) {
    let wanted = match call.era {
        Era::Legacy => {
            let level = call.server.peers.level(&call.origin.scope);
            level.is_none_or(|level| shows_info(&level))
        }
        Era::Modern => call.request.log_level().is_some_and(shows_info),
    };
    if wanted {
        let text = quoted(text);
        let params = format!(r#"{{"level":"info","logger":"toolgate-zoo","data":{text}}}"#);
        call.outbox
            .notify(notification("notifications/message", &params));
    }
}

#[cfg(test)]
mod tests {
    use super::{CATALOG, Fixtures};
    use serde_json::Value;

    #[test]
    fn what_is_listed_is_scripted_and_every_question_is_one() {
        let fixtures = Fixtures::new().book.fixtures;
        let catalog: Value = serde_json::from_str(CATALOG).unwrap();
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
            .flat_map(|fixture| fixture.questions().map(|question| question.method))
            .collect();
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            assert!(methods.iter().any(|asked| asked == method));
        }
    }
}
