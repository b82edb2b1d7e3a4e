//! A small real model behind the gateway, with a real MCP server: two SDKs chat and execute the
//! model's tool calls.
//!
//! The answers of such a model are unreliable, so this checks only their shape, and the one thing
//! the model does well: calling a weather tool for a city.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::client_process;
use crate::gate::{TestGate, server};
use crate::mcp_sdk::env_file;
use crate::optional_env::OptionalComponent;

/// The model server; dropping it kills the process, which also exits when its stdin closes.
struct RealModel {
    child: Child,
    url: String,
}

impl RealModel {
    /// Starts the server. The model must be installed.
    fn start() -> Self {
        let mut child = Command::new(env_file("llm/.venv/bin/python"))
            .arg(env_file("llm/serve.py"))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready ");
        let url = url.expect("the model server did not start").to_owned();
        Self { child, url }
    }

    /// Configures a provider with these dialects; the model server supports all of them.
    fn provider(&self, name: &str, dialects: &[&str]) -> String {
        let url = &self.url;
        format!("[providers.{name}]\nbase_url = \"{url}/v1\"\ndialect = {dialects:?}\n")
    }
}

impl Drop for RealModel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn real_model_chats_and_calls_tool() {
    if !OptionalComponent::Model.check_available("real_model") {
        return;
    }
    let model = RealModel::start();
    let python = env_file("python/.venv/bin/python");
    let weather = env_file("llm/weather.py");
    let toml = server(
        "weather",
        python.to_str().unwrap(),
        &[weather.to_str().unwrap()],
    ) + &model.provider("translated", &["openai"])
        + &model.provider("native", &["openai", "responses", "anthropic"]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("weather", "healthy").await;
    let models = ["translated/smollm2", "native/smollm2"];
    let results = run_client(&gate, &models).await;
    for model in models {
        check_scenes(model, &results[model]);
    }
}

/// Runs the SDK client and returns its results for each model.
async fn run_client(gate: &TestGate, models: &[&str]) -> Value {
    let mut client = tokio::process::Command::new(env_file("models/.venv/bin/python"));
    client
        .arg(env_file("llm/client.py"))
        .arg(&gate.url)
        .args(models)
        .env_clear();
    let results = client_process::run_client(&mut client).await;
    results.unwrap_or_else(|output| panic!("{output}\n{}", gate.log()))
}

fn check_scenes(model: &str, results: &Value) {
    for scene in ["plain", "streamed", "chat", "responses", "messages"] {
        let text = results[scene]["text"].as_str().unwrap_or_default();
        assert!(!text.trim().is_empty(), "{model}, {scene}: {results}");
    }
    assert!(
        results["plain"]["tokens"].as_u64().unwrap() > 0,
        "{model}: {results}"
    );
    assert!(
        results["streamed"]["chunks"].as_u64().unwrap() > 2,
        "{model}: {results}"
    );
    assert!(
        results["streamed"]["finish"].is_string(),
        "{model}: {results}"
    );
    for scene in ["chat", "responses", "messages"] {
        let call = &results[scene];
        assert_eq!(
            call["called"], "weather_get_weather",
            "{model}, {scene}: {call}"
        );
        let city = call["arguments"]["city"].as_str().unwrap();
        assert_eq!(
            call["result"],
            json!(format!("18C and sunny in {city}")),
            "{model}, {scene}"
        );
    }
}
