//! Errors of the model endpoints: in the format of each dialect, with the headers that tell clients what
//! to do.

use reqwest::header::{ALLOW, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::ALICE;
use crate::gate::{TestGate, zoo};
use crate::mcp::headers;
use crate::models::{PATHS, provider, request};

/// Checks the status and format of an error and returns its headers.
async fn error_headers(dialect: &str, response: Response, status: StatusCode) -> HeaderMap {
    let (headers, found) = (response.headers().clone(), response.status());
    let text = response.text().await.unwrap();
    assert_eq!(found, status, "{dialect}: {text}");
    assert_eq!(
        headers[CONTENT_TYPE], "application/json",
        "{dialect}: {text}"
    );
    let body: Value = serde_json::from_str(&text).unwrap();
    assert!(body["error"]["message"].is_string(), "{dialect}: {text}");
    let is_anthropic = body["type"] == "error";
    assert_eq!(is_anthropic, dialect == "anthropic", "{dialect}: {text}");
    headers
}

#[tokio::test]
async fn refusals_of_the_gateway_have_their_headers_in_every_dialect() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    for (dialect, path) in PATHS {
        let key = format!("[keys.alice]\nkey = {ALICE:?}\nrate_limit = \"1/day\"\n");
        let gate = TestGate::start(&(provider("there", &model, "openai") + &key));
        let body = request(dialect, "there/m", false).to_string();
        let send = async |key: &str| {
            let key = headers(&[("x-api-key", key)]);
            gate.post(path, &body, key).await
        };
        assert_eq!(send(ALICE).await.status(), 200, "{dialect}");
        let limited = send(ALICE).await;
        let limited = error_headers(dialect, limited, StatusCode::TOO_MANY_REQUESTS).await;
        assert!(limited.contains_key(RETRY_AFTER), "{dialect}");

        for _ in 0..20 {
            assert_eq!(send("wrong").await.status(), 401, "{dialect}");
        }
        let refused = send("wrong").await;
        let refused = error_headers(dialect, refused, StatusCode::TOO_MANY_REQUESTS).await;
        let seconds: u64 = refused[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{dialect}: {seconds}");

        let valid = headers(&[("x-api-key", ALICE)]);
        let request = gate
            .client
            .get(format!("{}{path}", gate.url))
            .headers(valid);
        let wrong_method = request.send().await.unwrap();
        let wrong_method =
            error_headers(dialect, wrong_method, StatusCode::METHOD_NOT_ALLOWED).await;
        assert_eq!(wrong_method[ALLOW], "POST", "{dialect}");
    }
}

#[tokio::test]
async fn provider_errors_keep_their_headers_when_they_are_translated() {
    // With a tool that runs automatically, the request is a run.
    for agent in ["", "tools_to_auto_execute = [\"*\"]\n"] {
        let busy = Reply::raw("text/plain", "too busy")
            .with_status(429)
            .with_header("retry-after", "7");
        let model = ScriptedModel::start(vec![busy]);
        let toml = provider("there", &model, "openai") + "max_retries = 0\n";
        let gate = TestGate::start(&(toml + &zoo("zoo", &[]) + agent));
        gate.wait_for_state("zoo", "healthy").await;
        for (dialect, path) in &PATHS[1..] {
            let body = request(dialect, "there/m", false).to_string();
            let response = gate.post(path, &body, HeaderMap::new()).await;
            let translated = error_headers(dialect, response, StatusCode::TOO_MANY_REQUESTS).await;
            assert_eq!(translated[RETRY_AFTER], "7", "{dialect} {agent}");
        }
    }
}
