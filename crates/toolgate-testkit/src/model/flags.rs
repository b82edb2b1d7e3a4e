//! Command-line flags of `toolgate-model`, for scripts and manual use.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use tokio::net::TcpListener;

use super::server::{self, ModelState};
use super::turn::has_tool_result;
use super::{ModelScript, Reply};

/// A model with scripted answers, over the OpenAI and the Anthropic API.
#[derive(Debug, Parser)]
#[command(name = "toolgate-model")]
struct Flags {
    /// Port to listen on; 0 selects a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Text of the answer
    #[arg(long, default_value = "Hello from the scripted model.")]
    text: String,
    /// Tool to call until the conversation has a tool result; then answer with the text
    #[arg(long)]
    call: Option<String>,
    /// Arguments of the tool call
    #[arg(long, default_value = "{}", requires = "call")]
    arguments: String,
    /// Reasoning before the answer
    #[arg(long)]
    reasoning: Option<String>,
    /// Milliseconds to wait before the first byte of an answer
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// Milliseconds to wait between the events of a stream
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Models to list; requests for other models are answered as well
    #[arg(long = "model", default_value = "scripted")]
    models: Vec<String>,
}

/// Runs a model with the command-line flags of this process.
///
/// # Panics
/// If it cannot listen.
#[must_use]
pub fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Runtime::new().expect("failed to start the runtime");
    runtime.block_on(async {
        let port = flags.port;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
        let address = listener.local_addr().expect("the listener has no address");
        println!("listening on http://{address}");
        let _ = std::io::stdout().flush();
        let mut script = ModelScript::new(Vec::new()).with_models(flags.models.iter());
        script.replies = vec![Reply::from_request(move |body| reply(&flags, body))];
        // It may run for days, and nothing can read the recorded requests.
        script.max_recorded_requests = 0;
        server::serve(listener, Arc::new(ModelState::new(script))).await;
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
        .with_delay(Duration::from_millis(flags.latency))
        .with_pause(Duration::from_millis(flags.pause))
}
