//! `toolgate chat`: a conversation in the terminal with a model of a running gateway, and decisions
//! about its tool calls.

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use toolgate_core::sse;

use super::target::RemoteFlags;
use super::{printable, say};
use crate::remote::Remote;

/// Largest event of a stream.
const LONGEST_EVENT: usize = 16 * 1024 * 1024;

/// Talk to a model of a running gateway; tool calls are shown, and those that are yours to decide asked about
#[derive(Debug, clap::Args)]
pub(super) struct Chat {
    #[command(flatten)]
    remote: RemoteFlags,
    /// The model, as `provider/model` or an alias [default: the first that the gateway knows]
    #[arg(long, short, env = "TOOLGATE_MODEL")]
    model: Option<String>,
    /// What the model is told to be
    #[arg(long)]
    system: Option<String>,
    /// Ask this one question and end
    #[arg(long, short, value_name = "TEXT")]
    prompt: Option<String>,
    /// With --prompt: print the whole answer as JSON
    #[arg(long, requires = "prompt")]
    json: bool,
}

struct Conversation {
    remote: Remote,
    model: String,
    messages: Vec<Value>,
    /// Tools that may run without being asked about again.
    allowed: HashSet<String>,
    input: Lines<BufReader<Stdin>>,
    /// Whether somebody is there to decide.
    interactive: bool,
}

/// What came of one answer.
#[derive(Default)]
struct Heard {
    text: String,
    note: Value,
}

impl Chat {
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
            allowed: HashSet::new(),
            input: BufReader::new(tokio::io::stdin()).lines(),
            interactive: std::io::stdin().is_terminal(),
        };
        match self.prompt {
            Some(prompt) if self.json => conversation.whole(&prompt).await,
            Some(prompt) => {
                conversation.interactive &= std::io::stdout().is_terminal();
                conversation.ask(&prompt).await?;
                Ok(ExitCode::SUCCESS)
            }
            None => conversation.talk().await,
        }
    }
}

async fn first_model(remote: &Remote) -> anyhow::Result<String> {
    let list: Value = remote.get("v1/models", &[]).await?;
    let first = list["data"][0]["id"].as_str();
    let first = first.context("the gateway knows no models; set OPENAI_API_KEY or the like where it runs, or name one with --model")?;
    Ok(first.to_owned())
}

impl Conversation {
    /// Takes questions until there are no more.
    async fn talk(&mut self) -> anyhow::Result<ExitCode> {
        tell(&format!(
            "Talking to {}. Ctrl-C interrupts an answer, Ctrl-D ends.\n",
            self.model
        ));
        loop {
            tell("\n> ");
            let line = tokio::select! {
                line = self.input.next_line() => line?,
                _ = tokio::signal::ctrl_c() => None,
            };
            let Some(line) = line else {
                tell("\n");
                return Ok(ExitCode::SUCCESS);
            };
            if line.trim().is_empty() {
                continue;
            }
            let before = self.messages.len();
            let asked = tokio::select! {
                asked = self.ask(&line) => Some(asked),
                _ = tokio::signal::ctrl_c() => None,
            };
            match asked {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    self.messages.truncate(before);
                    super::complain(&error);
                }
                None => {
                    self.messages.truncate(before);
                    tell("\n(interrupted)\n");
                }
            }
        }
    }

    /// One question, and all that follows until the model has its answer.
    async fn ask(&mut self, question: &str) -> anyhow::Result<()> {
        self.messages
            .push(json!({"role": "user", "content": question}));
        let body = json!({"model": self.model, "messages": self.messages, "stream": true});
        let answer = self.remote.stream("v1/chat/completions", &body).await?;
        let mut heard = hear(answer).await?;
        loop {
            let pending = heard.note["pending"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let run = heard.note["run_id"].as_str().map(str::to_owned);
            let Some(run) = run.filter(|_| !pending.is_empty()) else {
                break;
            };
            let mut decisions = Vec::new();
            for call in &pending {
                decisions.push(self.decide(call).await?);
            }
            let body = json!({"decisions": decisions, "stream": true});
            let answer = self
                .remote
                .stream(&format!("api/runs/{run}/resume"), &body)
                .await?;
            let before = heard.text;
            heard = hear(answer).await?;
            heard.text = format!("{before}{}", heard.text);
        }
        tell("\n");
        self.messages
            .push(json!({"role": "assistant", "content": heard.text}));
        Ok(())
    }

    /// One question whose answer is printed as it is, without anybody to decide.
    async fn whole(&mut self, question: &str) -> anyhow::Result<ExitCode> {
        self.messages
            .push(json!({"role": "user", "content": question}));
        let body = json!({"model": self.model, "messages": self.messages});
        let answer: Value = self
            .remote
            .write(Method::POST, "v1/chat/completions", &body)
            .await?;
        say(&format!("{answer:#}"))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn decide(&mut self, call: &Value) -> anyhow::Result<Value> {
        let name = call["name"].as_str().unwrap_or_default().to_owned();
        let arguments = call["arguments"].as_str().unwrap_or_default();
        let approve = json!({"id": call["id"], "decision": "approve"});
        if self.allowed.contains(&name) {
            return Ok(approve);
        }
        let nobody =
            json!({"id": call["id"], "decision": "deny", "reason": "nobody was there to decide"});
        if !self.interactive {
            tell(&format!(
                "\n[{name} {arguments} was not run: nobody is there to decide]\n"
            ));
            return Ok(nobody);
        }
        loop {
            tell(&format!(
                "\n{name} {arguments}\nRun it? [y] once, [s] always in this conversation, [n] no: "
            ));
            let Some(line) = self.input.next_line().await? else {
                return Ok(nobody);
            };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(approve),
                "s" => {
                    self.allowed.insert(name);
                    return Ok(approve);
                }
                "n" | "no" => {
                    let reason = "the user said no";
                    return Ok(json!({"id": call["id"], "decision": "deny", "reason": reason}));
                }
                _ => {}
            }
        }
    }
}

/// Tells what comes as it comes.
async fn hear(mut answer: Response) -> anyhow::Result<Heard> {
    let mut heard = Heard::default();
    let mut lines = sse::Decoder::new(LONGEST_EVENT);
    while let Some(chunk) = answer.chunk().await.context("the answer broke off")? {
        let mut events = Vec::new();
        lines.feed(&chunk, &mut events)?;
        for event in events {
            let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
                continue;
            };
            match event.name.as_str() {
                "toolgate.tool_call.started" => show_call(&data),
                "toolgate.tool_call.ended" if data["outcome"] != "ok" => {
                    tell(&format!(
                        "[{}: {}]\n",
                        plain(&data["name"]),
                        plain(&data["outcome"])
                    ));
                }
                _ => {}
            }
            if let Some(message) = data["error"]["message"].as_str() {
                bail!("{message}");
            }
            if let Some(text) = data["choices"][0]["delta"]["content"].as_str() {
                heard.text.push_str(text);
                tell(text);
            }
            if data["toolgate"].is_object() {
                heard.note = data["toolgate"].clone();
            }
        }
    }
    Ok(heard)
}

fn show_call(call: &Value) {
    tell(&format!(
        "\n[{} {}]\n",
        plain(&call["name"]),
        plain(&call["arguments"])
    ));
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes at once, without a line's end.
fn tell(text: &str) {
    let mut out = std::io::stdout();
    let text = printable(text, out.is_terminal());
    // Whoever read us has had enough.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
