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
}

struct Conversation {
    remote: RemoteGateway,
    model: String,
    messages: Vec<Value>,
    /// Tools that the user allowed for the rest of the conversation.
    always_allowed: HashSet<String>,
    input: Lines<BufReader<Stdin>>,
    /// Whether a user is present to decide on calls.
    interactive: bool,
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
            interactive: std::io::stdin().is_terminal(),
        };
        match self.prompt {
            Some(prompt) if self.json => conversation.print_json_answer(&prompt).await,
            Some(prompt) => {
                conversation.interactive &= std::io::stdout().is_terminal();
                conversation.send_prompt(&prompt).await?;
                Ok(ExitCode::SUCCESS)
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
                Some(Ok(())) => {}
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

    /// Sends a prompt and handles pending calls until the model's answer is complete.
    async fn send_prompt(&mut self, prompt: &str) -> anyhow::Result<()> {
        self.messages
            .push(json!({"role": "user", "content": prompt}));
        let body = json!({"model": self.model, "messages": self.messages, "stream": true});
        let response = self
            .remote
            .open_stream("v1/chat/completions", &body)
            .await?;
        let mut answer = read_answer(response).await?;
        loop {
            let pending = answer.metadata["pending"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let run = answer.metadata["run_id"].as_str().map(str::to_owned);
            let Some(run) = run.filter(|_| !pending.is_empty()) else {
                break;
            };
            let mut decisions = Vec::new();
            for call in &pending {
                decisions.push(self.decide_call(call).await?);
            }
            let body = json!({"decisions": decisions, "stream": true});
            let response = self
                .remote
                .open_stream(&format!("api/runs/{run}/resume"), &body)
                .await?;
            let before = answer.text;
            answer = read_answer(response).await?;
            answer.text = format!("{before}{}", answer.text);
        }
        print_now("\n");
        self.messages
            .push(json!({"role": "assistant", "content": answer.text}));
        Ok(())
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

    /// Asks the user to decide on a call; denies it if no user is present.
    async fn decide_call(&mut self, call: &Value) -> anyhow::Result<Value> {
        // The user cannot decide on a call that is not shown.
        let text = |member: &str| {
            call[member]
                .as_str()
                .with_context(|| format!("the gateway sent a pending call without `{member}`"))
        };
        let (name, arguments) = (text("name")?.to_owned(), text("arguments")?);
        let approve = json!({"id": call["id"], "decision": "approve"});
        if self.always_allowed.contains(&name) {
            return Ok(approve);
        }
        let deny = json!({
            "id": call["id"],
            "decision": "deny",
            "reason": "no user was available to decide",
        });
        if !self.interactive {
            print_now(&format!(
                "\n[{name} {arguments} was not run: no user is available to decide]\n"
            ));
            return Ok(deny);
        }
        loop {
            print_now(&format!(
                "\n{name} {arguments}\nRun it? [y] once, [s] always in this conversation, [n] no: "
            ));
            let Some(line) = self.input.next_line().await? else {
                return Ok(deny);
            };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(approve),
                "s" => {
                    self.always_allowed.insert(name);
                    return Ok(approve);
                }
                "n" | "no" => {
                    let reason = "the user denied the call";
                    return Ok(json!({"id": call["id"], "decision": "deny", "reason": reason}));
                }
                _ => {}
            }
        }
    }
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
                print_now(text);
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
