//! `toolgate chat`: a terminal conversation with a model through a running gateway, including decisions
//! on its tool calls.

mod decision;
mod input;
mod slash_command;
mod stream;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use decision::{Decided, Decider, Decisions};
use input::{ChatInput, TypedLine};
use reqwest::Method;
use serde_json::{Value, json};
use slash_command::AfterCommand;
use stream::{StreamedAnswer, print_now, read_answer, str_or_empty};

use super::output::{print_error, print_line};
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

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

/// Exit status if tool calls wait for a decision.
const EXIT_PENDING: u8 = 3;

struct Conversation {
    remote: RemoteGateway,
    model: String,
    messages: Vec<Value>,
    input: ChatInput,
    decisions: Decisions,
    max_turns: u64,
    /// Id of the most recent run.
    last_run_id: Option<String>,
    /// Id of the most recent run that called tools.
    last_calling_run_id: Option<String>,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptEnd {
    Answered,
    /// Tool calls are pending.
    Pending,
    /// The user interrupted the prompt.
    Interrupted,
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
            input: ChatInput::open()?,
            decisions: Decisions::new(match (self.yes, self.deny) {
                (true, _) => Decider::Approve,
                (_, true) => Decider::Deny,
                _ if std::io::stdin().is_terminal() => Decider::User,
                _ => Decider::None,
            }),
            max_turns: self.max_turns,
            last_run_id: None,
            last_calling_run_id: None,
        };
        match self.prompt {
            Some(prompt) if self.json => conversation.print_json_answer(&prompt).await,
            Some(prompt) => {
                let decider = &mut conversation.decisions.decider;
                if *decider == Decider::User && !std::io::stdout().is_terminal() {
                    *decider = Decider::None;
                }
                Ok(match conversation.send_prompt(&prompt).await? {
                    PromptEnd::Answered => ExitCode::SUCCESS,
                    PromptEnd::Pending => ExitCode::from(EXIT_PENDING),
                    PromptEnd::Interrupted => ExitCode::FAILURE,
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
            "Chatting with {}. /help lists the commands; Ctrl-C interrupts an answer, Ctrl-D quits.\n",
            self.model
        ));
        loop {
            print_now("\n");
            let line = match self.input.read_prompt("> ").await? {
                TypedLine::Text(line) => line,
                TypedLine::Interrupt => {
                    print_now("(press Ctrl-D to quit)\n");
                    continue;
                }
                TypedLine::End => {
                    print_now("\n");
                    return Ok(ExitCode::SUCCESS);
                }
            };
            let line = line.trim();
            if line.starts_with('/') {
                match self.run_command(line).await {
                    Ok(AfterCommand::Quit) => return Ok(ExitCode::SUCCESS),
                    Ok(AfterCommand::Continue) => {}
                    Err(error) => print_error(&error),
                }
            } else if !line.is_empty() {
                self.answer(line).await;
            }
        }
    }

    /// Sends a prompt of the user, who may interrupt it.
    async fn answer(&mut self, prompt: &str) {
        let before = self.messages.len();
        let outcome = tokio::select! {
            outcome = self.send_prompt(prompt) => outcome,
            _ = tokio::signal::ctrl_c() => Ok(PromptEnd::Interrupted),
        };
        match outcome {
            Ok(PromptEnd::Answered | PromptEnd::Pending) => {}
            Ok(PromptEnd::Interrupted) => {
                self.messages.truncate(before);
                print_now("\n(interrupted)\n");
            }
            Err(error) => {
                self.messages.truncate(before);
                print_error(&error);
            }
        }
    }

    /// Remembers the run of an answer for `/run` and `/result`.
    fn note_run(&mut self, answer: &StreamedAnswer) {
        let Some(run) = answer.run_id() else { return };
        let executed = answer.metadata["executed"].as_array();
        if executed.is_some_and(|executed| !executed.is_empty()) {
            self.last_calling_run_id = Some(run.clone());
        }
        self.last_run_id = Some(run);
    }

    /// Starts over, with the system prompt if there is one.
    fn reset(&mut self) {
        let is_system = |message: &Value| message["role"] == "system";
        self.messages.retain(is_system);
        self.decisions.reset();
        self.last_run_id = None;
        self.last_calling_run_id = None;
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
            self.note_run(&answer);
            let Some(run) = answer.run_id().filter(|_| !pending.is_empty()) else {
                break PromptEnd::Answered;
            };
            if let Some(reason) = self.reason_to_stop(&answer) {
                print_now(&format!("\n[{reason}]\n"));
                break PromptEnd::Pending;
            }
            let decided = self
                .decisions
                .decide(&self.remote, &mut self.input, &run, &pending);
            let decisions = match decided.await? {
                Decided::Decisions(decisions) => decisions,
                Decided::Nobody => {
                    print_pending(&run, &pending);
                    break PromptEnd::Pending;
                }
                Decided::Interrupted => return Ok(PromptEnd::Interrupted),
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
