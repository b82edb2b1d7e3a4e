//! A whole turn of a model, gathered from its events.

use serde_json::Value;

use crate::event::{Event, Failure, Finish, Proof, Usage};
use crate::prompt::Call;

/// What an answer says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub id: String,
    /// The model as the caller named it.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Whether the caller wants to see the usage at the end of a stream.
    pub stream_usage: bool,
    /// Names under which the caller wraps tools.
    pub namespaces: Vec<String>,
}

impl Head {
    /// The namespace of a tool, and its name there.
    pub(crate) fn namespace<'a>(&'a self, tool: &'a str) -> Option<(&'a str, &'a str)> {
        self.namespaces.iter().find_map(|namespace| {
            let rest = tool.strip_prefix(namespace.as_str())?.strip_prefix("__")?;
            Some((namespace.as_str(), rest))
        })
    }
}

/// What a model made in one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    pub id: String,
    pub model: String,
    /// In the order in which they were made.
    pub items: Vec<Item>,
    pub usage: Option<Usage>,
    pub finish: Option<Finish>,
    pub failure: Option<Failure>,
    /// Where the call with an index stands.
    calls: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Text(String),
    Refusal(String),
    Reasoning {
        text: String,
        proof: Option<Proof>,
    },
    Call(Call),
    /// Whole and as it came, in the words of its dialect.
    Raw(Value),
}

impl Turn {
    pub fn of(events: &[Event]) -> Self {
        let mut turn = Self::default();
        events.iter().for_each(|event| turn.take(event));
        turn
    }

    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Start { id, model } => {
                self.id.clone_from(id);
                self.model.clone_from(model);
            }
            Event::Text(more) => match self.items.last_mut() {
                Some(Item::Text(text)) => text.push_str(more),
                _ => self.items.push(Item::Text(more.clone())),
            },
            Event::Refusal(more) => match self.items.last_mut() {
                Some(Item::Refusal(text)) => text.push_str(more),
                _ => self.items.push(Item::Refusal(more.clone())),
            },
            Event::Reasoning(more) => match self.items.last_mut() {
                Some(Item::Reasoning { text, proof: None }) => text.push_str(more),
                _ => self.items.push(Item::Reasoning {
                    text: more.clone(),
                    proof: None,
                }),
            },
            Event::ReasoningEnd(ended) => match (self.items.last_mut(), ended) {
                (Some(Item::Reasoning { proof, .. }), _) if proof.is_none() => {
                    proof.clone_from(ended);
                }
                (_, Some(_)) => self.items.push(Item::Reasoning {
                    text: String::new(),
                    proof: ended.clone(),
                }),
                (_, None) => {}
            },
            Event::CallStart { index, id, name } => {
                self.calls.push((*index, self.items.len()));
                self.items.push(Item::Call(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                }));
            }
            Event::CallDelta { index, arguments } => {
                let at = self.calls.iter().rfind(|(known, _)| known == index);
                if let Some((_, at)) = at
                    && let Some(Item::Call(call)) = self.items.get_mut(*at)
                {
                    call.arguments.push_str(arguments);
                }
            }
            Event::Raw(item) => self.items.push(Item::Raw(item.clone())),
            Event::ReasoningStart(_) | Event::CallEnd { .. } | Event::Annotation(_) => {}
            Event::Usage(usage) => self.usage = Some(*usage),
            Event::Finish(finish) => self.finish = Some(finish.clone()),
            Event::Failed(failure) => self.failure = Some(failure.clone()),
        }
    }

    /// All that it said.
    pub fn text(&self) -> String {
        let said = self.items.iter().filter_map(|item| match item {
            Item::Text(text) => Some(text.as_str()),
            _ => None,
        });
        said.collect()
    }

    /// Whether it holds a raw item that the caller has to answer.
    pub fn awaits_caller(&self) -> bool {
        let raw = self.items.iter().filter_map(|item| match item {
            Item::Raw(item) => Some(item),
            _ => None,
        });
        awaits_caller(&raw.collect::<Vec<_>>())
    }

    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.items.iter().filter_map(|item| match item {
            Item::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// Whether items of a response hold a call of the caller's own in a form that only its dialect has.
/// What the provider runs itself is answered there, or has nothing to answer by.
pub fn awaits_caller(items: &[&Value]) -> bool {
    let kind = |item: &Value| item["type"].as_str().unwrap_or_default().to_owned();
    let is_answer = |item: &Value| kind(item).ends_with("_output");
    let answered = |id: &Value| items.iter().any(|it| is_answer(it) && it["call_id"] == *id);
    items.iter().any(|item| {
        let asks = item["call_id"].is_string() && kind(item) != "function_call";
        let asks = asks && !is_answer(item) && !answered(&item["call_id"]);
        asks || kind(item) == "mcp_approval_request"
    })
}
