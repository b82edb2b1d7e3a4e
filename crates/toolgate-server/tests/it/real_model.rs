//! A real small model behind the gateway and a real MCP server beside it: two SDKs chat, and run
//! the calls that the model asks for.
//!
//! What such a model says means little, so this asks for the shape of its answers alone, and for
//! the one thing it does well: to ask for the weather of a city.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::{TestGate, server};
use crate::sdk::env_file;

const PATIENCE: Duration = Duration::from_secs(300);

/// The model server; dropping it kills the process, and it ends by itself with whoever started it.
struct RealModel {
    child: Child,
    url: String,
}

impl RealModel {
    /// Nothing where the model could not be installed.
    fn start() -> Option<Self> {
        if !is_installed() {
            return None;
        }
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
        let url = url.expect("the model is ready").to_owned();
        Some(Self { child, url })
    }

    /// A provider of this name, which is said to speak these dialects; the model speaks them all.
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

pub(crate) fn is_installed() -> bool {
    let stamp = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/env/llm/.venv/.installed");
    stamp.exists()
}

/// Tells that a test could not do what it is for.
pub(crate) fn skipped(test: &str) {
    note(&format!(
        "SKIPPED {test}: no model in tests/env/llm; run `make test-env`"
    ));
}

/// Writes a line that is seen.
pub(crate) fn note(line: &str) {
    // Not `eprintln`, which nobody sees of a test that passes.
    let mut terminal = std::io::stderr();
    writeln!(terminal, "{line}").unwrap();
}

#[tokio::test]
async fn a_real_model_chats_and_asks_for_a_tool() {
    let Some(model) = RealModel::start() else {
        return skipped("real_model");
    };
    let python = env_file("python/.venv/bin/python");
    let weather = env_file("llm/weather.py");
    let toml = server(
        "weather",
        python.to_str().unwrap(),
        &[weather.to_str().unwrap()],
    ) + &model.provider("translated", &["openai"])
        + &model.provider("native", &["openai", "responses", "anthropic"]);
    let gate = TestGate::start(&toml);
    gate.reaches("weather", "healthy").await;
    let models = ["translated/smollm2", "native/smollm2"];
    let seen = seen(&gate, &models).await;
    for model in models {
        checks(model, &seen[model]);
    }
}

/// What the SDKs say they saw of each model.
async fn seen(gate: &TestGate, models: &[&str]) -> Value {
    let client = tokio::process::Command::new(env_file("models/.venv/bin/python"))
        .arg(env_file("llm/client.py"))
        .arg(&gate.url)
        .args(models)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, client).await;
    let output = output.expect("the client ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{error}\n{}", gate.log()))
}

fn checks(model: &str, seen: &Value) {
    for scene in ["plain", "streamed", "chat", "responses", "messages"] {
        let text = seen[scene]["text"].as_str().unwrap_or_default();
        assert!(!text.trim().is_empty(), "{model}, {scene}: {seen}");
    }
    assert!(
        seen["plain"]["tokens"].as_u64().unwrap() > 0,
        "{model}: {seen}"
    );
    assert!(
        seen["streamed"]["chunks"].as_u64().unwrap() > 2,
        "{model}: {seen}"
    );
    assert!(seen["streamed"]["finish"].is_string(), "{model}: {seen}");
    for scene in ["chat", "responses", "messages"] {
        let call = &seen[scene];
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
