//! Access checks: Host, Origin and the admin key.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::gate::{TestGate, run, toolgate, zoo};

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
    let other_port = [("origin", "http://127.0.0.1:5173")];
    assert_eq!(status(&gate, "/health", &other_port).await, 403);
    let own = [("origin", gate.url.as_str())];
    assert_eq!(status(&gate, "/health", &own).await, 200);
}

/// Sends a request as it is written and returns the status line of the response.
async fn send_raw(gate: &TestGate, request: &str) -> String {
    let address = gate.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.unwrap();
    line.trim().to_owned()
}

#[tokio::test]
async fn ambiguous_host_or_origin_is_a_bad_request() {
    let gate = TestGate::start("allowed_origins = [\"https://app.example\"]\n");
    for (target, headers, expected) in [
        ("/health", "Host: localhost\r\n", "200 OK"),
        ("http://localhost/health", "Host: LOCALHOST\r\n", "200 OK"),
        (
            "/health",
            "Host: localhost\r\nHost: evil.example\r\n",
            "400 Bad Request",
        ),
        (
            "/health",
            "Host: localhost\r\nhost: localhost\r\n",
            "400 Bad Request",
        ),
        (
            "http://evil.example/health",
            "Host: localhost\r\n",
            "400 Bad Request",
        ),
        (
            "/health",
            "Host: localhost\r\nOrigin: https://app.example\r\nOrigin: null\r\n",
            "400 Bad Request",
        ),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
        let status = send_raw(&gate, &request).await;
        assert_eq!(status, format!("HTTP/1.1 {expected}"), "{request}");
    }
}

#[tokio::test]
async fn generated_admin_key_is_the_default() {
    let toml = zoo("zoo", &[]) + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n";
    let gate = TestGate::start_with(&toml, &[], &[("TOOLGATE_ADMIN_KEY", "")]);
    for path in [
        "/api/mcp/clients",
        "/api/approvals",
        "/api/runs",
        "/metrics",
        "/v1/models",
        "/mcp",
    ] {
        let response = gate.get(path).await;
        assert_eq!(response.status(), 401, "{path}");
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        assert_eq!(challenge.unwrap(), "Bearer realm=\"toolgate\"", "{path}");
    }
    let messages = gate.post("/v1/messages", "{}", HeaderMap::new()).await;
    assert_eq!(messages.status(), 401);
    assert!(messages.headers().contains_key(WWW_AUTHENTICATE));
    let key = std::fs::read_to_string(gate.folder.path().join("data/admin.key")).unwrap();
    let admin = [("x-api-key", key.trim())];
    assert_eq!(status(&gate, "/api/mcp/clients", &admin).await, 200);

    // The command line of the same user finds the key in the data directory.
    let list = |env: &[(&str, &str)]| {
        let mut command = toolgate(gate.folder.path());
        let list = command.args(["tools", "--url", &gate.url, "list"]);
        let output = list.envs(env.iter().copied()).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (ok, stderr) = list(&[]);
    assert!(!ok && stderr.contains("TOOLGATE_DATA_DIR"), "{stderr}");
    assert_eq!(
        list(&[("TOOLGATE_DATA_DIR", "data")]),
        (true, String::new())
    );
    let (ok, _) = list(&[("TOOLGATE_DATA_DIR", "data"), ("TOOLGATE_KEY", "wrong")]);
    assert!(!ok, "a key of the user's own is preferred");
    let default = gate.folder.path().join(".local/share/toolgate");
    std::fs::create_dir_all(&default).unwrap();
    std::fs::write(default.join("admin.key"), &key).unwrap();
    assert_eq!(list(&[]), (true, String::new()));
}

#[tokio::test]
async fn admin_key_off_admits_only_json_of_the_own_origin() {
    let gate = TestGate::start("admin_key = \"off\"\n");
    assert!(
        gate.log().contains("the admin key is off"),
        "{}",
        gate.log()
    );
    let add = |name: &str| {
        format!(
            r#"{{"name":"{name}","connection_type":"stdio","stdio_config":{{"command":"true"}}}}"#
        )
    };
    let other_port = "http://127.0.0.1:3000";
    let cases = [
        ("a", "text/plain", None, 415),
        ("b", "application/x-www-form-urlencoded", None, 415),
        ("c", "text/plain", Some(gate.url.as_str()), 415),
        ("d", "text/plain", Some(other_port), 403),
        ("e", "application/json", Some(other_port), 403),
        ("f", "application/json", Some(gate.url.as_str()), 201),
        ("g", "application/json", None, 201),
    ];
    for (name, content_type, origin, expected) in cases {
        let mut request = gate
            .client
            .post(format!("{}/api/mcp/client", gate.url))
            .header(CONTENT_TYPE, content_type)
            .body(add(name));
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let status = request.send().await.unwrap().status();
        assert_eq!(status, expected, "{content_type} {origin:?}");
    }
    let clients = gate.json("/api/mcp/clients").await;
    let names = clients["clients"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|client| &client["config"]["name"]).collect();
    assert_eq!(names, ["f", "g"]);
}

/// Every method of every route under `/api`, with its path parameters filled in.
async fn api_routes(gate: &TestGate) -> Vec<(Method, String)> {
    let document = gate.json("/api/openapi.json").await;
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let path = path.replace(['{', '}'], "");
            routes.push((method, path));
        }
    }
    routes.retain(|(_, path)| path.starts_with("/api/"));
    assert!(routes.len() > 30, "{routes:?}");
    routes
}

#[tokio::test]
async fn every_api_route_requires_the_key_or_else_json_of_the_own_origin() {
    let open = TestGate::start("admin_key = \"off\"\n");
    let closed = TestGate::start_with("", &[], &[("TOOLGATE_ADMIN_KEY", "open-sesame")]);
    for (method, path) in api_routes(&open).await {
        let send = async |gate: &TestGate, header: &str, value: &str| {
            let url = format!("{}{path}", gate.url);
            let request = gate.client.request(method.clone(), url);
            let request = request.header(header, value).body("{}");
            request.send().await.unwrap()
        };
        let refused = send(&closed, "x-other", "").await;
        assert_eq!(refused.status(), 401, "{method} {path}");
        assert!(refused.headers().contains_key(WWW_AUTHENTICATE));
        let other = send(&open, "origin", "http://127.0.0.1:3000").await;
        assert_eq!(other.status(), 403, "{method} {path}");
        if method != Method::GET {
            let form = send(&open, "content-type", "text/plain").await;
            assert_eq!(form.status(), 415, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn generated_key_still_identifies_the_administrator_when_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(folder.path().join("data/admin.key"), "tg-admin-x\n").unwrap();
    std::fs::write(folder.path().join("toolgate.toml"), "admin_key = \"off\"\n").unwrap();
    let gate = TestGate::start_in(folder);
    for (key, expected) in [(None, 200), (Some("tg-admin-x"), 200), (Some("wrong"), 401)] {
        let headers: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().collect();
        let status = status(&gate, "/api/mcp/clients", &headers).await;
        assert_eq!(status, expected, "{key:?}");
    }
}

#[tokio::test]
async fn admin_key_is_read_from_a_file_and_not_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "open-sesame\n").unwrap();
    let args = ["--admin-key-file", key.to_str().unwrap()];
    let gate = TestGate::start_with("", &args, &[("TOOLGATE_ADMIN_KEY", "other")]);
    for (key, expected) in [("open-sesame", 200), ("other", 401)] {
        let headers = [("x-api-key", key)];
        assert_eq!(status(&gate, "/api/stats", &headers).await, expected);
    }
    for (args, expected) in [
        (["--admin-key", "k"], "--admin-key-file"),
        (["--admin-key-file", "missing"], "cannot read the admin key"),
        (["--admin-key-file", "/dev/null"], "the admin key is empty"),
    ] {
        let args = [&["serve", "--port", "0", "--data-dir", "data"], &args[..]].concat();
        let (output, _, stderr) = run(folder.path(), &args);
        assert!(
            !output.status.success() && stderr.contains(expected),
            "{stderr}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_data_directory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody can create files there, not even root.
    let mut serve = toolgate(folder.path());
    let serve = serve.args(["serve", "--port", "0", "--data-dir", "/proc/self"]);
    let output = serve.env_remove("TOOLGATE_ADMIN_KEY").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(stderr.contains("cannot write the admin key"), "{stderr}");
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
        "public_url = \"https://tools.example\"\nadmin_key = \"off\"\n",
    )
    .unwrap();
    let (output, _, stderr) = run(folder.path(), &["serve", "--port", "0"]);
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
