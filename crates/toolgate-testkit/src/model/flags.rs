//! The command line of `toolgate-model`: a model for scripts and for people.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use tokio::net::TcpListener;

use super::server::{self, Stage};
use super::turn::has_tool_result;
use super::{Reply, Script};

/// A model that says what it is told to, over the OpenAI and the Anthropic API.
#[derive(Debug, Parser)]
#[command(name = "toolgate-model")]
struct Flags {
    /// The port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// What it says
    #[arg(long, default_value = "Hello from the scripted model.")]
    text: String,
    /// A tool to ask for, until the conversation has the result of a tool; then comes the text
    #[arg(long)]
    call: Option<String>,
    /// The arguments of that tool
    #[arg(long, default_value = "{}", requires = "call")]
    arguments: String,
    /// What it thinks first
    #[arg(long)]
    reasoning: Option<String>,
    /// Wait so many milliseconds before the first byte of an answer
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// Wait so many milliseconds between the events of a stream
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// The models that it lists; it answers for every other as well
    #[arg(long = "model", default_value = "scripted")]
    models: Vec<String>,
}

/// Runs a model with the flags of this process.
///
/// # Panics
/// If it cannot listen.
#[must_use]
pub fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let port = flags.port;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
        let address = listener.local_addr().expect("it is bound");
        println!("listening on http://{address}");
        let _ = std::io::stdout().flush();
        let mut script = Script::new(Vec::new()).models(flags.models.iter());
        script.replies = vec![Reply::with(move |body| reply(&flags, body))];
        // It may run for days, and nobody could ask for what it has seen.
        script.memory = 0;
        server::serve(listener, Arc::new(Stage::new(script))).await;
    });
    ExitCode::SUCCESS
}

fn reply(flags: &Flags, body: &Value) -> Reply {
    let mut reply = match &flags.call {
        Some(name) if !has_tool_result(body) => {
            Reply::calls::<String, String>([]).with_raw_call("call_1", name, &flags.arguments)
        }
        _ => Reply::text(&flags.text),
    };
    if let Some(reasoning) = &flags.reasoning {
        reply = reply.with_reasoning(reasoning);
    }
    reply
        .delayed(Duration::from_millis(flags.latency))
        .slow(Duration::from_millis(flags.pause))
}
