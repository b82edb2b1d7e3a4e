//! Access checks: Host, Origin and the admin key.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::gate::TestGate;

async fn status(gate: &TestGate, path: &str, headers: &[(&'static str, &str)]) -> StatusCode {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    let request = gate.client.get(format!("{}{path}", gate.url)).headers(map);
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn host_and_origin_are_checked_first() {
    let gate = TestGate::start(
        "allowed_hosts = [\"gate.example\"]\nallowed_origins = [\"https://app.example\"]\n",
    );
    for path in [
        "/health",
        "/api/mcp/clients",
        "/v1/mcp/tool/execute",
        "/nothing",
    ] {
        assert_eq!(
            status(&gate, path, &[("host", "evil.example")]).await,
            403,
            "{path}"
        );
        assert_eq!(
            status(&gate, path, &[("origin", "https://evil.example")]).await,
            403,
            "{path}"
        );
        assert_eq!(
            status(&gate, path, &[("origin", "null")]).await,
            403,
            "{path}"
        );
    }
    assert_eq!(
        status(&gate, "/health", &[("host", "gate.example")]).await,
        200
    );
    assert_eq!(
        status(&gate, "/health", &[("origin", "https://app.example")]).await,
        200
    );
    assert_eq!(
        status(&gate, "/health", &[("origin", "http://localhost:5173")]).await,
        200
    );
}

#[tokio::test]
async fn without_keys_only_local_requests_are_accepted() {
    let gate = TestGate::start("");
    assert_eq!(status(&gate, "/api/mcp/clients", &[]).await, 200);
    for path in ["/api/mcp/clients", "/metrics"] {
        let proxied = [("x-forwarded-for", "203.0.113.9")];
        assert_eq!(
            status(&gate, path, &proxied).await,
            401,
            "proxied requests are not local: {path}"
        );
    }
    assert_eq!(
        status(&gate, "/health", &[("x-forwarded-for", "203.0.113.9")]).await,
        200
    );
    let mut proxied = HeaderMap::new();
    proxied.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
    let evil = r#"{"name":"evil","connection_type":"stdio","stdio_config":{"command":"sh"}}"#;
    let added = gate.post("/api/mcp/client", evil, proxied).await;
    assert_eq!(
        added.status(),
        401,
        "a remote client must not start a process"
    );
}

#[tokio::test]
async fn admin_key_is_required_for_the_api() {
    let mut gate = TestGate::start_with(
        "",
        &["--host", "0.0.0.0"],
        &[("TOOLGATE_ADMIN_KEY", "auto")],
    );
    let path = gate.folder.path().join("data/admin.key");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let key = std::fs::read_to_string(path).unwrap().trim().to_owned();
    gate.url = gate.url.replace("0.0.0.0", "127.0.0.1");
    let bearer = format!("Bearer {key}");
    for (headers, expected) in [
        (vec![], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", key.as_str())], 401),
        (vec![("authorization", bearer.as_str())], 200),
        (vec![("x-api-key", key.as_str())], 200),
        (vec![("x-bf-vk", key.as_str())], 200),
    ] {
        assert_eq!(
            status(&gate, "/api/mcp/clients", &headers).await,
            expected,
            "{headers:?}"
        );
    }
    let metrics = |headers| status(&gate, "/metrics", headers);
    assert_eq!(metrics(&[]).await, 401, "metrics name every server");
    assert_eq!(metrics(&[("x-api-key", key.as_str())]).await, 200);
    let called = gate.call("nothing", "{}").await;
    let text = called["content"].as_str().unwrap();
    assert!(text.contains("unknown tool"), "callers need no key");
    assert!(!gate.log().contains(&key), "the key is not in the log");
}

#[tokio::test]
async fn empty_environment_variable_does_not_remove_admin_key() {
    let gate = TestGate::start_with(
        "admin_key = \"open-sesame\"\n",
        &[],
        &[("TOOLGATE_ADMIN_KEY", "")],
    );
    assert_eq!(status(&gate, "/api/mcp/clients", &[]).await, 401);
    assert_eq!(
        status(&gate, "/api/mcp/clients", &[("x-api-key", "open-sesame")]).await,
        200
    );
}

#[tokio::test]
async fn no_request_is_local_behind_a_public_url() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("toolgate.toml"),
        "public_url = \"https://tools.example\"\n",
    )
    .unwrap();
    let (output, _, stderr) = crate::gate::run(folder.path(), &["serve", "--port", "0"]);
    assert!(
        !output.status.success() && stderr.contains("requires an admin key"),
        "{stderr}"
    );
    let gate =
        TestGate::start("public_url = \"https://tools.example\"\nadmin_key = \"open-sesame\"\n");
    assert_eq!(status(&gate, "/metrics", &[]).await, 401);
    assert_eq!(
        status(
            &gate,
            "/metrics",
            &[("x-api-key", "open-sesame"), ("host", "tools.example")]
        )
        .await,
        200
    );
}
