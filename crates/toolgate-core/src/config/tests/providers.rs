//! Model providers in both file formats.

use super::*;
use crate::config::Dialect;
use crate::config::provider::{ProviderAuth, ProviderConfig, Proxy};

fn provider<'a>(config: &'a Config, name: &str) -> &'a ProviderConfig {
    let found = config
        .models
        .providers
        .iter()
        .find(|provider| provider.name == name);
    found.unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn preset_needs_no_settings_and_others_need_a_url() {
    let toml = r#"
        [providers.openai]
        [providers.anthropic]
        api_key = "env.CLAUDE"
        [providers.ollama]
        [providers.local]
        base_url = "http://127.0.0.1:9999/v1"
        dialect = ["anthropic", "openai"]
        [providers.azure]
        base_url = "https://r.openai.azure.com/openai/v1"
        [providers.off]
        enabled = false
    "#;
    let (config, findings) = load(ConfigFormat::Toml, toml).unwrap();
    assert_eq!((findings.len(), config.models.providers.len()), (0, 5));
    let openai = provider(&config, "openai");
    assert_eq!(openai.dialects, [Dialect::Chat, Dialect::Responses]);
    assert_eq!(openai.keys[0].value, Secret::Env("OPENAI_API_KEY".into()));
    assert_eq!(openai.network.timeout, Duration::from_secs(600));
    let anthropic = provider(&config, "anthropic");
    assert_eq!(anthropic.auth, ProviderAuth::XApiKey);
    assert_eq!(anthropic.keys[0].value, Secret::Env("CLAUDE".into()));
    assert_eq!(anthropic.keys.len(), 1);
    assert_eq!(provider(&config, "ollama").keys, []);
    let local = provider(&config, "local");
    assert_eq!(local.dialects, [Dialect::Messages, Dialect::Chat]);
    assert_eq!(provider(&config, "azure").auth, ProviderAuth::ApiKey);
    let messages = errors(ConfigFormat::Toml, "[providers.mine]\napi_key = \"x\"");
    assert!(messages[0].contains("needs a `base_url`"), "{messages:?}");
    let messages = errors(ConfigFormat::Toml, "[providers.azure]");
    assert!(
        messages[0].contains("RESOURCE.openai.azure.com"),
        "{messages:?}"
    );
}

#[test]
fn bifrost_format_loads() {
    let json = r#"{"providers": {"openai": {
        "keys": [
            {"name": "a", "value": "env.A", "models": ["gpt-4o"], "weight": 0.7},
            {"value": "env.B", "models": ["*"], "weight": 0.3},
            {"value": "env.C", "enabled": false}
        ],
        "network_config": {"base_url": "https://proxy.example.com/", "extra_headers": {"x-team": "t"},
            "default_request_timeout_in_seconds": 30, "max_retries": 5, "retry_backoff_initial": 100},
        "proxy_config": {"type": "http", "url": "http://p:3128", "username": "u", "password": "env.P"},
        "concurrency_and_buffer_size": {"concurrency": 3, "buffer_size": 10}
    }, "mine": {
        "keys": [{"value": "k"}],
        "network_config": {"base_url": "https://m.example.com"},
        "custom_provider_config": {"base_provider_type": "anthropic"}
    }}}"#;
    let (config, findings) = load(ConfigFormat::Json, json).unwrap();
    assert_eq!(findings.len(), 2, "{findings:?}");
    let openai = provider(&config, "openai");
    assert_eq!(openai.base_url.as_str(), "https://proxy.example.com/v1");
    assert_eq!(openai.network.max_retries, 5);
    assert_eq!(openai.network.timeout, Duration::from_secs(30));
    assert!(matches!(
        &openai.network.proxy,
        Proxy::Url { user: Some(_), .. }
    ));
    assert!(openai.network.headers.contains_key("x-team"));
    let names: Vec<_> = openai
        .keys
        .iter()
        .map(|key| (key.name.as_str(), key.models.is_none()))
        .collect();
    assert_eq!(names, [("a", false), ("key 2", true)]);
    assert_eq!(provider(&config, "mine").dialects, [Dialect::Messages]);
}

#[test]
fn bifrost_proxy_user_needs_no_password() {
    let load_proxy = |credentials: &str| {
        let json = format!(
            r#"{{"providers": {{"openai": {{
                "proxy_config": {{"type": "http", "url": "http://p:3128", {credentials}}}
            }}}}}}"#
        );
        let (config, findings) = load(ConfigFormat::Json, &json).unwrap();
        let Proxy::Url { user, .. } = provider(&config, "openai").network.proxy.clone() else {
            panic!("the proxy has a URL");
        };
        let messages: Vec<String> = findings.into_iter().map(|f| f.message).collect();
        (user, messages)
    };
    let (user, messages) = load_proxy(r#""username": "token""#);
    let expected = (Secret::parse("token"), Secret::parse(""));
    assert_eq!((user, messages), (Some(expected), Vec::new()));
    let (user, messages) = load_proxy(r#""password": "p""#);
    assert_eq!(user, None);
    assert_eq!(messages, ["`password` has no effect without `username`"]);
}

#[test]
fn undefined_provider_names_are_errors() {
    let toml = r#"
        default_provider = "opnai"
        [model_aliases]
        fast = ["groq/x", "openai/gpt-5-mini", "local-name"]
        [providers.openai]
        [prices]
        "gpt-5*" = { input = 1.25, output = 10, cached_input = 0.125 }
    "#;
    let messages = errors(ConfigFormat::Toml, toml);
    assert!(
        messages[0].contains("no provider named `opnai`; did you mean `openai`?"),
        "{messages:?}"
    );
    assert!(
        messages[1].contains("no provider named `groq`"),
        "{messages:?}"
    );
    let good = toml.replace("opnai", "openai").replace("\"groq/x\", ", "");
    let (config, _) = load(ConfigFormat::Toml, &good).unwrap();
    assert_eq!(
        config.models.aliases["fast"],
        ["openai/gpt-5-mini", "local-name"]
    );
    let price = config.models.prices["gpt-5*"];
    assert_eq!(
        (price.input, price.cached_input, price.cache_write),
        (1_250_000, 125_000, 1_250_000)
    );
}

#[test]
fn headers_that_callers_may_set_are_listed_by_name() {
    let toml = |names: &str| {
        format!(
            "[providers.openai]\nheaders = {{ \"X-Fixed\" = \"1\" }}\nallowed_extra_headers = [{names}]\n"
        )
    };
    let allowed = toml(r#""X-Team", "http-referer", "x-title""#);
    let (config, findings) = load(ConfigFormat::Toml, &allowed).unwrap();
    assert_eq!(findings.len(), 0, "{findings:?}");
    assert_eq!(
        provider(&config, "openai").network.allowed_extra_headers,
        ["x-team", "http-referer", "x-title"]
    );
    let not_by_callers = "callers can never set";
    let not_a_name = "list each one by name";
    for (name, expected) in [
        ("Authorization", not_by_callers),
        ("proxy-authorization", not_by_callers),
        ("cf-aig-authorization", not_by_callers),
        ("x-api-key", not_by_callers),
        ("x-goog-api-key", not_by_callers),
        ("Ocp-Apim-Subscription-Key", not_by_callers),
        ("helicone-auth", not_by_callers),
        ("X-Amz-Security-Token", not_by_callers),
        ("cookie", not_by_callers),
        ("OpenAI-Organization", not_by_callers),
        ("openai-project", not_by_callers),
        ("x-forwarded-for", not_by_callers),
        ("Host", not_by_callers),
        ("connection", not_by_callers),
        ("transfer-encoding", not_by_callers),
        ("content-length", not_by_callers),
        ("x-fixed", "always sent as set in `headers`"),
        ("*", not_a_name),
        ("x-*", not_a_name),
        ("x team", not_a_name),
        ("", not_a_name),
    ] {
        let messages = errors(ConfigFormat::Toml, &toml(&format!("{name:?}")));
        assert_eq!(messages.len(), 1, "{name}: {messages:?}");
        assert!(messages[0].contains(expected), "{name}: {messages:?}");
    }
}
