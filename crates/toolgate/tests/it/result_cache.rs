//! The cache of results: what is cached, for how long, and what a cached result does not bypass.

use serde_json::json;
use toolgate::CallError;
use toolgate::approval::ApprovalScope;
use toolgate_testkit::{ZooLog, eventually};

use crate::approval_support::{ASK, approve, pending_approval_id};
use crate::support::{
    WAIT_TIMEOUT, call_json, config, records, secret_token, start_settled, stdio_zoo, stop,
};

#[tokio::test]
async fn server_cache_ttl_applies_to_read_only_tools() {
    let log = ZooLog::create();
    let gateway = start_settled(&(stdio_zoo("zoo", &log.flags()) + "cache_ttl = \"10m\"\n")).await;
    for (tool, arguments, calls) in [
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 2}), 2),
        ("say", json!({"text": "x"}), 1),
        ("say", json!({"text": "x"}), 2),
    ] {
        let name = format!("zoo_{tool}");
        call_json(&gateway, &name, &arguments).await.unwrap();
        assert_eq!(log.calls(tool), calls, "{tool} {arguments}");
    }
    let records = records(&gateway).await;
    let cached: Vec<bool> = records.iter().map(|record| record.cached).collect();
    assert_eq!(cached, [false, true, false, false, false]);
    let result = |index: usize| records[index].result.as_ref().unwrap().get();
    assert_eq!(result(0), result(1));
    stop(gateway).await;
}

#[tokio::test]
async fn tool_cache_ttl_overrides_server_and_skips_errors() {
    let log = ZooLog::create();
    let toml =
        stdio_zoo("zoo", &log.flags()) + "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let gateway = start_settled(&toml).await;
    for is_cached in [false, true, true] {
        let said = call_json(&gateway, "zoo_say", &json!({"text": "x"})).await;
        assert_eq!(said.unwrap().cached, is_cached);
    }
    assert_eq!(log.calls("say"), 1);
    for _ in 0..2 {
        let fails = json!({"text": "y", "fails": true});
        let failed = call_json(&gateway, "zoo_say", &fails).await.unwrap();
        assert!(failed.result.is_error());
    }
    assert_eq!(log.calls("say"), 3);
    for _ in 0..2 {
        call_json(&gateway, "zoo_echo", &json!({})).await.unwrap();
    }
    assert_eq!(
        log.calls("echo"),
        2,
        "without `cache_ttl` nothing is cached"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn cached_results_expire_and_still_need_approval() {
    let log = ZooLog::create();
    let toml = stdio_zoo("zoo", &log.flags())
        + "[mcp_servers.zoo.tools.echo]\ncache_ttl = \"50ms\"\n[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n"
        + ASK;
    let gateway = start_settled(&toml).await;
    call_json(&gateway, "zoo_echo", &json!({})).await.unwrap();
    eventually("the tool is called again", WAIT_TIMEOUT, async || {
        call_json(&gateway, "zoo_echo", &json!({})).await.unwrap();
        (log.calls("echo") == 2).then_some(())
    })
    .await;
    let say = async || call_json(&gateway, "zoo_say", &json!({"text": "x"})).await;
    let id = pending_approval_id(&say().await);
    approve(&gateway, &id, ApprovalScope::Once).await;
    assert_eq!(say().await.unwrap().result.text(), "x");
    let again = say().await;
    assert!(
        matches!(again, Err(CallError::NeedsApproval { .. })),
        "a cached result is not a permission: {again:?}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn cached_result_is_redacted_once_enabled() {
    let toml = stdio_zoo("zoo", &[]) + "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let gateway = start_settled(&toml).await;
    let token = secret_token();
    let arguments = json!({"text": token});
    let say = async || call_json(&gateway, "zoo_say", &arguments).await.unwrap();
    assert_eq!(say().await.result.text(), token);
    assert!(say().await.cached);
    let redacting = toml + "[results]\nredact_secrets = true\n";
    gateway.apply(config(&redacting)).await.unwrap();
    let text = say().await.result.text();
    assert!(!text.contains(&token), "{text}");
    stop(gateway).await;
}
