//! An agent embedded in a program: in-process tools, custom approval logic, and a hook that prints every
//! run event.
//!
//! `cargo run -p toolgate --example agent` uses a scripted model;
//! `cargo run -p toolgate --example agent -- http://localhost:11434/v1 qwen3` uses a real one.

#![allow(clippy::print_stdout, reason = "the example prints its progress")]

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::agent::{RunEvent, RunEventKind};
use toolgate::config::{ConfigFormat, Document};
use toolgate::local::{LocalServer, LocalTool, ToolContext};
use toolgate::{
    Caller, Config, Dialect, Gateway, Hook, ModelRequest, Proposal, RequestContext, Review,
    ServerName,
};
use toolgate_testkit::model::{Reply, ScriptedModel};

/// Approves small orders and prints run events.
#[derive(Debug)]
struct Clerk;

impl Hook for Clerk {
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        Box::pin(async move {
            let amount = proposal.arguments.value()["amount"].as_u64();
            match (proposal.tool.tool.as_str(), amount) {
                ("order", Some(0..=10)) => Review::Approve,
                ("order", _) => Review::Deny {
                    reason: "at most 10 at once".to_owned(),
                },
                _ => Review::Proceed,
            }
        })
    }

    fn turn_id(&self, request: &str, turn: u32) -> Option<String> {
        Some(format!("{request}/{turn}"))
    }

    fn on_run_event(&self, event: RunEvent<'_>) {
        match event.kind {
            RunEventKind::TurnStarted { turn, request_id } => {
                println!("-- turn {turn} ({request_id})");
            }
            RunEventKind::Text(text) => {
                print!("{text}");
                let _ = std::io::stdout().flush();
            }
            RunEventKind::CallStarted {
                name, arguments, ..
            } => println!("   {name} {arguments}"),
            RunEventKind::CallEnded { name, outcome, .. } => println!("   {name}: {outcome}"),
            RunEventKind::TurnEnded { usage, .. } => println!("\n   {} tokens", usage.output),
            RunEventKind::Ended { stop_reason } => println!("-- {stop_reason}"),
            _ => {}
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Price {
    fruit: String,
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    fruit: String,
    amount: u32,
}

/// Tools provided by this program.
fn shop() -> Result<LocalServer, Box<dyn Error>> {
    let price = LocalTool::new("price", |_: ToolContext, Price { fruit }| async move {
        Ok(format!("one {fruit} costs 2 coins"))
    });
    let order = LocalTool::new("order", |_: ToolContext, order: Order| async move {
        Ok(format!("ordered {} {}", order.amount, order.fruit))
    });
    Ok(LocalServer::new(ServerName::parse("shop")?)
        .tool(price.description("Returns the price of a fruit"))
        .tool(order.description("Orders fruit")))
}

/// Starts a model that asks for the price, orders too much, retries with less, and finishes.
fn start_scripted_model() -> ScriptedModel {
    let order = |id, amount| (id, "shop_order", json!({"fruit": "pear", "amount": amount}));
    ScriptedModel::start(vec![
        Reply::calls([("c1", "shop_price", json!({"fruit": "pear"}))])
            .with_text("What do they cost?"),
        Reply::calls([order("c2", 100)]),
        Reply::calls([order("c3", 10)]),
        Reply::text("Ten pears are on their way."),
    ])
}

fn config(base_url: &str) -> Result<Config, Box<dyn Error>> {
    let text = format!(
        r#"
        [providers.models]
        base_url = "{base_url}"

        [[permissions.rules]]
        tool = "shop.price"
        action = "allow"        # runs without approval

        [[permissions.rules]]
        tool = "shop.order"
        action = "ask"          # reviewed by the clerk

        [agent]
        max_tool_calls = 20
        "#
    );
    let document = Document::parse("agent.toml", ConfigFormat::Toml, &text);
    Ok(Config::load(&[document])?.0)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (base_url, name) = (arguments.next(), arguments.next());
    let scripted = base_url.is_none().then(start_scripted_model);
    let base_url = match (&base_url, &scripted) {
        (None, Some(model)) => format!("{}/v1", model.url()),
        (url, _) => url.clone().unwrap_or_default(),
    };
    let builder = Gateway::builder(config(&base_url)?);
    let gateway = builder.local(shop()?).hook(Clerk).start().await?;
    gateway.wait_until_settled().await;

    let body = json!({
        "model": format!("models/{}", name.as_deref().unwrap_or("scripted")),
        "messages": [{"role": "user", "content": "Order pears, please."}],
        "stream": true,
    });
    let request =
        ModelRequest::new(Dialect::Chat, &body).with_request(&RequestContext::with_id("pears"));
    let response = gateway.complete(&Caller::library(), request).await?;
    // The clerk has already printed the streamed text; the last chunk lists the executed calls.
    let text = String::from_utf8(response.bytes().await.to_vec())?;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let note = chunks
        .map(|chunk| chunk["toolgate"].clone())
        .find(Value::is_object);
    for call in note.unwrap_or_default()["executed"]
        .as_array()
        .into_iter()
        .flatten()
    {
        println!("{} {}: {}", call["name"], call["arguments"], call["result"]);
    }
    gateway.stop(Duration::from_secs(1)).await;
    Ok(())
}
