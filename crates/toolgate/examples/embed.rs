//! The smallest useful program: one typed tool, called directly, then joined by another at run time.
//!
//! `cargo run -p toolgate --example embed`

#![allow(clippy::print_stdout, reason = "the example prints its results")]

use std::error::Error;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::local::{LocalServer, LocalTool, NoArguments, ToolContext};
use toolgate::{Caller, Config, Gateway, LocalServerOptions, ServerName, ToolCall};

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Name of the person.
    name: String,
}

fn greet() -> LocalTool {
    LocalTool::new("greet", |_: ToolContext, Greet { name }| async move {
        Ok(format!("hello {name}"))
    })
    .description("Greets a person")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let greeter = LocalServer::new(ServerName::parse("greeter")?).tool(greet());
    let builder = Gateway::builder(Config::default()).local(greeter);
    let gateway = builder.start().await?;
    gateway.wait_until_settled().await;

    let caller = Caller::library();
    let call = ToolCall::parse("greeter_greet", r#"{"name": "world"}"#);
    println!("{}", gateway.call(&caller, call).await?.result.text());

    let whoami = LocalTool::new(
        "whoami",
        |context: ToolContext, _: NoArguments| async move {
            Ok(format!(
                "{} in {}",
                context.caller().origin.as_str(),
                context.request_id()
            ))
        },
    );
    let runtime = LocalServer::new(ServerName::parse("runtime")?).tool(whoami);
    let options = LocalServerOptions::default();
    gateway.servers().register(runtime, options).await?;
    let call = ToolCall::parse("runtime_whoami", "{}");
    println!("{}", gateway.call(&caller, call).await?.result.text());
    gateway.stop(Duration::from_secs(1)).await;
    Ok(())
}
