//! `toolgate chat`: a terminal conversation with a model through a running gateway, including decisions
//! on its tool calls.

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use toolgate_core::sse;

use super::target::RemoteFlags;
use super::{print_line, sanitize_for_terminal};
use crate::remote::RemoteGateway;

/// Maximum size of a server-sent event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// Chat with a model through a running gateway; shows tool calls and asks you to approve those that need it
#[derive(Debug, clap::Args)]
pub(super) struct ChatCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Model, as `provider/model` or an alias [default: the first model that the gateway lists]
    #[arg(long, short, env = "TOOLGATE_MODEL")]
    model: Option<String>,
    /// System prompt
    #[arg(long)]
    system: Option<String>,
    /// Send a single prompt, print the answer and exit
    #[arg(long, short, value_name = "TEXT")]
    prompt: Option<String>,
    /// With --prompt: print the full response as JSON
    #[arg(long, requires = "prompt")]
    json: bool,
    /// Approve every tool call that you may approve, without asking
    #[arg(long, short)]
    yes: bool,
    /// Deny every tool call that needs a decision, without asking
    #[arg(long, conflicts_with = "yes")]
    deny: bool,
    /// Maximum number of model responses for one prompt; further tool calls are left pending
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    max_turns: u64,
}

/// Start of the text with which a run reports its executed calls if others are pending.
const SUMMARY_START: &str = "The Output from allowed tools calls is - ";
/// Exit status if tool calls wait for a decision.
const EXIT_PENDING: u8 = 3;

struct Conversation {
    remote: RemoteGateway,
    model: String,
    messages: Vec<Value>,
    /// Tools that the user allowed for the rest of the conversation.
    always_allowed: HashSet<String>,
    input: Lines<BufReader<Stdin>>,
    decider: Decider,
    max_turns: u64,
}

/// Decides on calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decider {
    User,
    /// All calls are approved.
    Approve,
    /// All calls are denied.
    Deny,
    /// No user is present, so calls are left pending.
    None,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptEnd {
    Answered,
    /// Tool calls are pending.
    Pending,
}

/// A model's answer, collected from a stream.
#[derive(Default)]
struct StreamedAnswer {
    text: String,
    /// The gateway's `toolgate` object: run id and pending calls.
    metadata: Value,
}

impl ChatCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        let model = match self.model {
            Some(model) => model,
            None => first_model(&remote).await?,
        };
        let system = self
            .system
            .map(|text| json!({"role": "system", "content": text}));
        let mut conversation = Conversation {
            remote,
            model,
            messages: system.into_iter().collect(),
            always_allowed: HashSet::new(),
            input: BufReader::new(tokio::io::stdin()).lines(),
            decider: match (self.yes, self.deny) {
                (true, _) => Decider::Approve,
                (_, true) => Decider::Deny,
                _ if std::io::stdin().is_terminal() => Decider::User,
                _ => Decider::None,
            },
            max_turns: self.max_turns,
        };
        match self.prompt {
            Some(prompt) if self.json => conversation.print_json_answer(&prompt).await,
            Some(prompt) => {
                if conversation.decider == Decider::User && !std::io::stdout().is_terminal() {
                    conversation.decider = Decider::None;
                }
                Ok(match conversation.send_prompt(&prompt).await? {
                    PromptEnd::Answered => ExitCode::SUCCESS,
                    PromptEnd::Pending => ExitCode::from(EXIT_PENDING),
                })
            }
            None => conversation.run_interactive().await,
        }
    }
}

async fn first_model(remote: &RemoteGateway) -> anyhow::Result<String> {
    let list: Value = remote.get("v1/models", &[]).await?;
    let first = list["data"][0]["id"].as_str();
    let first = first.context("the gateway lists no models; set a provider key such as OPENAI_API_KEY in its environment, or select a model with --model")?;
    Ok(first.to_owned())
}

impl Conversation {
    /// Reads and sends prompts until the input ends.
    async fn run_interactive(&mut self) -> anyhow::Result<ExitCode> {
        print_now(&format!(
            "Chatting with {}. Press Ctrl-C to interrupt an answer, Ctrl-D to quit.\n",
            self.model
        ));
        loop {
            print_now("\n> ");
            let line = tokio::select! {
                line = self.input.next_line() => line?,
                _ = tokio::signal::ctrl_c() => None,
            };
            let Some(line) = line else {
                print_now("\n");
                return Ok(ExitCode::SUCCESS);
            };
            if line.trim().is_empty() {
                continue;
            }
            let before = self.messages.len();
            let outcome = tokio::select! {
                outcome = self.send_prompt(&line) => Some(outcome),
                _ = tokio::signal::ctrl_c() => None,
            };
            match outcome {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.messages.truncate(before);
                    super::print_error(&error);
                }
                None => {
                    self.messages.truncate(before);
                    print_now("\n(interrupted)\n");
                }
            }
        }
    }

    /// Sends a prompt and handles pending calls until the model's answer is complete, or nobody decides on them.
    async fn send_prompt(&mut self, prompt: &str) -> anyhow::Result<PromptEnd> {
        self.messages
            .push(json!({"role": "user", "content": prompt}));
        let body = json!({"model": self.model, "messages": self.messages, "stream": true});
        let response = self
            .remote
            .open_stream("v1/chat/completions", &body)
            .await?;
        let mut answer = read_answer(response).await?;
        let end = loop {
            let pending = answer.pending();
            let Some(run) = answer.run_id().filter(|_| !pending.is_empty()) else {
                break PromptEnd::Answered;
            };
            if let Some(reason) = self.reason_to_stop(&answer) {
                print_now(&format!("\n[{reason}]\n"));
                break PromptEnd::Pending;
            }
            let Some(decisions) = self.decide(&pending).await? else {
                print_pending(&run, &pending);
                break PromptEnd::Pending;
            };
            let body = json!({"decisions": decisions, "stream": true});
            let response = self
                .remote
                .open_stream(&format!("api/runs/{run}/resume"), &body)
                .await?;
            let before = answer.text;
            answer = read_answer(response).await?;
            answer.text = format!("{before}{}", answer.text);
        };
        print_now("\n");
        if answer.text.is_empty() && end == PromptEnd::Pending {
            // Models accept no empty message.
            "(A tool call waits for a decision.)".clone_into(&mut answer.text);
        }
        self.messages
            .push(json!({"role": "assistant", "content": answer.text}));
        Ok(end)
    }

    /// Returns why a run is not resumed although calls are pending: it has reached a limit, which no decision on
    /// single calls may lift.
    fn reason_to_stop(&self, answer: &StreamedAnswer) -> Option<String> {
        let turns = answer.metadata["turns"].as_array().map_or(0, Vec::len) as u64;
        match answer.metadata["stop_reason"].as_str() {
            Some("loop_guard") => Some(
                "the run has ended: the model repeated a call that keeps failing".to_owned(),
            ),
            Some("max_agent_depth") => Some(
                "the run has ended: it has reached its depth (`mcp.tool_manager_config.max_agent_depth`)"
                    .to_owned(),
            ),
            Some("budget") => Some(format!(
                "the run has ended: it has reached its limit on {}",
                str_or_empty(&answer.metadata["budget"])
            )),
            _ if turns >= self.max_turns => Some(format!(
                "the run was stopped after {turns} model responses (--max-turns)"
            )),
            _ => None,
        }
    }

    /// Decides on calls; `None` if nobody does.
    async fn decide(&mut self, pending: &[Value]) -> anyhow::Result<Option<Vec<Value>>> {
        let mut decisions = Vec::new();
        for call in pending {
            let Some(decision) = self.decide_call(call).await? else {
                return Ok(None);
            };
            decisions.push(decision);
        }
        Ok(Some(decisions))
    }

    /// Sends a prompt and prints the response as JSON. Pending calls are not decided.
    async fn print_json_answer(&mut self, prompt: &str) -> anyhow::Result<ExitCode> {
        self.messages
            .push(json!({"role": "user", "content": prompt}));
        let body = json!({"model": self.model, "messages": self.messages});
        let answer: Value = self
            .remote
            .send_json(Method::POST, "v1/chat/completions", &body)
            .await?;
        print_line(&format!("{answer:#}"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Decides on a call, or asks the user to; `None` if no user is present.
    async fn decide_call(&mut self, call: &Value) -> anyhow::Result<Option<Value>> {
        // The user cannot decide on a call that is not shown.
        let text = |member: &str| {
            call[member]
                .as_str()
                .with_context(|| format!("the gateway sent a pending call without `{member}`"))
        };
        let (name, arguments) = (text("name")?.to_owned(), text("arguments")?);
        let approve = json!({"id": call["id"], "decision": "approve"});
        let deny = json!({
            "id": call["id"], "decision": "deny", "reason": "the user denied the call",
        });
        match self.decider {
            Decider::Approve => return Ok(Some(approve)),
            Decider::Deny => return Ok(Some(deny)),
            Decider::None => return Ok(None),
            Decider::User if self.always_allowed.contains(&name) => return Ok(Some(approve)),
            Decider::User => {}
        }
        loop {
            print_now(&format!(
                "\n{name} {arguments}\nRun it? [y] once, [s] always in this conversation, [n] no: "
            ));
            let Some(line) = self.input.next_line().await? else {
                return Ok(None);
            };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(Some(approve)),
                "s" => {
                    self.always_allowed.insert(name);
                    return Ok(Some(approve));
                }
                "n" | "no" => return Ok(Some(deny)),
                _ => {}
            }
        }
    }
}

impl StreamedAnswer {
    fn pending(&self) -> Vec<Value> {
        let pending = self.metadata["pending"].as_array();
        pending.cloned().unwrap_or_default()
    }

    fn run_id(&self) -> Option<String> {
        self.metadata["run_id"].as_str().map(str::to_owned)
    }
}

/// Names the calls that wait for a decision, and how to decide on them.
fn print_pending(run: &str, pending: &[Value]) {
    for call in pending {
        let approval = call["approval_id"].as_str();
        let approval = approval.map_or_else(String::new, |id| format!("; approval {id}"));
        print_now(&format!(
            "\n[{} {} was not run: nobody is present to decide (--yes, --deny){approval}]",
            str_or_empty(&call["name"]),
            str_or_empty(&call["arguments"]),
        ));
    }
    print_now(&format!("\n[run {run} waits for a decision]\n"));
}

/// Reads a streamed answer, printing text and tool calls as they arrive.
async fn read_answer(mut response: Response) -> anyhow::Result<StreamedAnswer> {
    let mut answer = StreamedAnswer::default();
    let mut decoder = sse::SseDecoder::new(MAX_EVENT_BYTES);
    while let Some(chunk) = response
        .chunk()
        .await
        .context("the connection was lost before the answer was complete")?
    {
        let mut events = Vec::new();
        decoder.feed(&chunk, &mut events)?;
        for event in events {
            if event.data == "[DONE]" {
                continue;
            }
            let data: Value = serde_json::from_str(&event.data)
                .context("the gateway sent an event that cannot be parsed")?;
            match event.name.as_str() {
                "toolgate.tool_call.started" => print_tool_call(&data),
                "toolgate.tool_call.ended" if data["outcome"] != "ok" => {
                    print_now(&format!(
                        "[{}: {}]\n",
                        str_or_empty(&data["name"]),
                        str_or_empty(&data["outcome"])
                    ));
                }
                _ => {}
            }
            if let Some(message) = data["error"]["message"].as_str() {
                bail!("{message}");
            }
            if let Some(text) = data["choices"][0]["delta"]["content"].as_str() {
                answer.text.push_str(text);
                // Written for models: the calls and their outcomes have been shown already.
                if !text.trim_start().starts_with(SUMMARY_START) {
                    print_now(text);
                }
            }
            if data["toolgate"].is_object() {
                answer.metadata = data["toolgate"].clone();
            }
        }
    }
    Ok(answer)
}

fn print_tool_call(call: &Value) {
    print_now(&format!(
        "\n[{} {}]\n",
        str_or_empty(&call["name"]),
        str_or_empty(&call["arguments"])
    ));
}

fn str_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes text immediately, without a trailing newline.
fn print_now(text: &str) {
    let mut out = std::io::stdout();
    let text = sanitize_for_terminal(text, out.is_terminal());
    // A closed pipe is not an error, as with `head`.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
