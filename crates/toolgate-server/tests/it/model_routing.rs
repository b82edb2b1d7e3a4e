//! Which provider a model name reaches, and what is adapted to that provider.

use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{ModelScript, Reply, ScriptedModel};

use crate::gate::{TestGate, WAIT_TIMEOUT};
use crate::mcp::headers;
use crate::models::{PATHS, provider, request};

/// Sends a chat request for a model and returns the status and the body.
async fn ask(gate: &TestGate, model: &str) -> (u16, Value) {
    let body = request("openai", model, false).to_string();
    let response = gate.post(PATHS[0].1, &body, headers(&[])).await;
    let status = response.status().as_u16();
    (
        status,
        serde_json::from_str(&response.text().await.unwrap()).unwrap(),
    )
}

/// Returns the models that a provider was asked for.
fn asked(model: &ScriptedModel) -> Vec<String> {
    let turns = model.turns();
    let names = turns
        .iter()
        .map(|turn| turn.body["model"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn bare_names_are_routed_by_listed_models_then_by_vendor() {
    let models: Vec<ScriptedModel> = (0..3)
        .map(|_| ScriptedModel::start(vec![Reply::text("ok")]))
        .collect();
    let url = |index: usize| format!("{}/v1", models[index].url());
    let toml = format!(
        "[providers.openai]\nbase_url = {:?}\nkeys = [{{ value = \"k1\", models = [\"gpt-4o\", \"fine-tuned\"] }}, {{ value = \"k2\" }}]\n\
         [providers.claude]\npreset = \"anthropic\"\nbase_url = {:?}\napi_key = \"k3\"\n\
         [providers.house]\nbase_url = {:?}\nmodels = [\"meta-llama/llama\", \"gpt-house\"]\n",
        url(0),
        url(1),
        url(2)
    );
    let gate = TestGate::start(&toml);
    for name in [
        "fine-tuned",
        "gpt-4o",
        "gpt-5-mini",
        "o3",
        "claude-sonnet-4-5",
        "meta-llama/llama",
        "gpt-house",
        "house/anything",
    ] {
        let (status, body) = ask(&gate, name).await;
        assert_eq!(status, 200, "{name}: {body}");
    }
    assert_eq!(
        asked(&models[0]),
        ["fine-tuned", "gpt-4o", "gpt-5-mini", "o3"]
    );
    assert_eq!(asked(&models[1]), ["claude-sonnet-4-5"]);
    assert_eq!(
        asked(&models[2]),
        ["meta-llama/llama", "gpt-house", "anything"]
    );
    let key = |turn: usize| {
        let turns = models[0].turns();
        turns[turn].header("authorization").unwrap().to_owned()
    };
    // Only the second key may be used for it.
    assert_eq!(key(2), "Bearer k2");
    for name in ["gpt-oss-120b", "grok-4", "llama3"] {
        let (status, body) = ask(&gate, name).await;
        assert_eq!(status, 404, "{name}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("openai, claude, house"), "{message}");
    }
}

#[tokio::test]
async fn misspelt_provider_is_not_sent_to_the_default_provider() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let other = ScriptedModel::start(vec![Reply::text("ok")]);
    let toml = "default_provider = \"openai\"\n".to_owned()
        + &provider("openai", &model, "openai")
        + &provider("other", &other, "openai")
        + "models = [\"small\"]\n";
    let gate = TestGate::start(&toml);
    let (status, body) = ask(&gate, "opnai/gpt-5").await;
    assert_eq!(status, 404);
    assert_eq!(body["error"]["code"], "model_not_found");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("did you mean `openai/gpt-5`?"),
        "{message}"
    );
    assert!(model.turns().is_empty());
    for name in ["llama3", "small"] {
        assert_eq!(ask(&gate, name).await.0, 200, "{name}");
    }
    assert_eq!(asked(&model), ["llama3"]);
    assert_eq!(asked(&other), ["small"]);
}

#[tokio::test]
async fn token_limit_is_translated_to_the_field_of_the_provider() {
    let cases = [
        ("openai", "", "max_completion_tokens"),
        ("mistral", "", "max_tokens"),
        ("ollama", "", "max_tokens"),
        ("house", "", "max_tokens"),
        (
            "house",
            "max_tokens_field = \"max_completion_tokens\"\n",
            "max_completion_tokens",
        ),
        (
            "openai",
            "max_tokens_field = \"max_tokens\"\n",
            "max_tokens",
        ),
    ];
    for (name, setting, expected) in cases {
        let model = ScriptedModel::start(vec![Reply::text("ok")]);
        let gate = TestGate::start(&(provider(name, &model, "openai") + setting));
        let body = request("anthropic", &format!("{name}/m"), false).to_string();
        let response = gate.post(PATHS[2].1, &body, headers(&[])).await;
        assert_eq!(response.status(), 200);
        let sent = model.turns()[0].body.clone();
        let limits: Vec<&str> = ["max_tokens", "max_completion_tokens"]
            .into_iter()
            .filter(|field| sent.get(field) == Some(&json!(50)))
            .collect();
        assert_eq!(limits, [expected], "{name} {setting}: {sent}");
    }
}

#[tokio::test]
async fn model_list_recovers_after_a_failed_look_up() {
    let up = ModelScript::new(vec![Reply::text("ok")])
        .with_models(["a", "b/c"])
        .start();
    let flaky = ModelScript::new(vec![Reply::text("ok")])
        .with_failing_lists(1)
        .start();
    let toml = provider("up", &up, "openai") + &provider("flaky", &flaky, "openai");
    let gate = TestGate::start(&toml);
    let names = async || -> Vec<String> {
        let list = gate.json("/v1/models").await;
        let data = list["data"].as_array().unwrap().iter();
        data.map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names().await, ["up/a", "up/b/c"]);
    eventually(
        "the provider's models are listed",
        WAIT_TIMEOUT,
        async || (names().await == ["up/a", "up/b/c", "flaky/scripted"]).then_some(()),
    )
    .await;
    // Only the look-up that failed is repeated.
    assert_eq!((up.requests().len(), flaky.requests().len()), (1, 2));
}
