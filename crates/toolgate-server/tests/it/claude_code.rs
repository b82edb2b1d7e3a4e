//! Claude Code uses the gateway for its model and its tools, and is asked by a server of an older revision.
//!
//! In print mode nobody can answer a question: Claude Code leaves that to a hook, and cancels without one.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Reply, ScriptedModel, has_tool_result};

use crate::gate::{TestGate, zoo};
use crate::mcp_sdk::env_file;
use crate::models::provider;
use crate::optional_env::OptionalComponent;

/// Upper bound for a run, which takes a second on an idle machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// The tool as Claude Code names it.
const TOOL: &str = "mcp__gate__zoo_test_elicitation";

/// Runs Claude Code with these settings and returns its messages.
async fn run_claude_code(gate: &TestGate, settings: &Value) -> Vec<Value> {
    let program = "claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude";
    let servers =
        json!({"mcpServers": {"gate": {"type": "http", "url": format!("{}/mcp", gate.url)}}});
    let run = Command::new(env_file(program))
        .args(["-p", "Ask me.", "--model", "there/scripted", "--tools", ""])
        .args(["--strict-mcp-config", "--mcp-config", &servers.to_string()])
        .args(["--allowedTools", TOOL, "--settings", &settings.to_string()])
        .args(["--output-format", "stream-json", "--verbose"])
        .current_dir(gate.folder.path())
        .env_clear()
        .env("PATH", env!("PATH"))
        .env("HOME", gate.folder.path())
        .env("ANTHROPIC_BASE_URL", &gate.url)
        .env("ANTHROPIC_AUTH_TOKEN", "unused")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(RUN_TIMEOUT, run).await;
    let output = output.expect("Claude Code timed out").unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = text.lines().map(serde_json::from_str);
    let messages: Result<Vec<Value>, _> = messages.collect();
    let error = String::from_utf8_lossy(&output.stderr);
    messages.unwrap_or_else(|_| panic!("{text}\n{error}"))
}

/// Returns the result of the tool call that Claude Code made.
fn tool_result(messages: &[Value]) -> &Value {
    let results = messages
        .iter()
        .map(|message| &message["message"]["content"][0]);
    let mut results = results.filter(|block| block["type"] == "tool_result");
    let result = results
        .next()
        .unwrap_or_else(|| panic!("no result: {messages:#?}"));
    &result["content"][0]["text"]
}

#[tokio::test]
async fn claude_code_is_asked_by_a_legacy_stdio_server() {
    let test = "claude_code_is_asked_by_a_legacy_stdio_server";
    if !OptionalComponent::ClaudeCode.check_available(test) {
        return;
    }
    let model = ScriptedModel::start(vec![Reply::from_request(|body| {
        if has_tool_result(body) {
            Reply::text("The tool has answered.")
        } else {
            Reply::calls([("call_1", TOOL, json!({"message": "Who are you?"}))])
        }
    })]);
    let servers = zoo("zoo", &["--fixtures"]);
    let gate = TestGate::start(&(servers + &provider("there", &model, "anthropic")));
    gate.wait_for_state("zoo", "healthy").await;

    let answer = json!({"hookSpecificOutput": {
        "hookEventName": "Elicitation",
        "action": "accept",
        "content": {"username": "ada", "email": "ada@example.com"},
    }});
    let question = gate.folder.path().join("question.json");
    let command = format!("cat > {}; echo '{answer}'", question.display());
    let hook = json!({"hooks": [{"type": "command", "command": command}]});
    let messages = run_claude_code(&gate, &json!({"hooks": {"Elicitation": [hook]}})).await;
    assert_eq!(
        *tool_result(&messages),
        r#"User response: action=accept, content={"username":"ada","email":"ada@example.com"}"#,
    );
    let last = messages.last().unwrap();
    assert_eq!(last["result"], "The tool has answered.", "{last}");
    let question = std::fs::read_to_string(question).unwrap();
    let question: Value = serde_json::from_str(&question).unwrap();
    assert_eq!(question["message"], "Who are you?", "{question}");
    assert_eq!(question["mcp_server_name"], "gate");
    assert!(question["requested_schema"]["properties"]["username"].is_object());
    // Only modern results name the server: Claude Code speaks another revision than the server that asked.
    let mut results = messages.iter().map(|message| &message["tool_use_result"]);
    let server = results
        .find_map(|result| result.pointer("/_meta/io.modelcontextprotocol~1serverInfo/name"));
    assert_eq!(server, Some(&json!("toolgate")), "{messages:#?}");

    let messages = run_claude_code(&gate, &json!({})).await;
    let text = tool_result(&messages).as_str().unwrap();
    assert!(text.contains("action=cancel"), "{text}");
}
