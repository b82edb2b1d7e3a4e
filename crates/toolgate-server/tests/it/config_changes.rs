//! Configuration changes while the gateway runs: through the API and in the file.

use std::fs;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolgate_testkit::{eventually, zoo_path};

use crate::gate::{TestGate, WAIT_TIMEOUT, files_in, run, zoo};

fn server_entry(name: &str, flags: &[&str]) -> Value {
    let args = [&["stdio"], flags].concat();
    json!({
        "name": name, "connection_type": "stdio", "tools_to_execute": ["*"],
        "stdio_config": {"command": zoo_path(), "args": args},
    })
}

async fn send(gate: &TestGate, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = gate.client.request(method, format!("{}{path}", gate.url));
    let response = request.body(body.to_string()).send().await.unwrap();
    let status = response.status();
    (
        status,
        serde_json::from_str(&response.text().await.unwrap()).unwrap(),
    )
}

fn edit_config(gate: &TestGate, toml: &str) {
    fs::write(gate.folder.path().join("toolgate.toml"), toml).unwrap();
}

async fn assert_adds(gate: &TestGate, server: &str) {
    gate.wait_for_state(server, "healthy").await;
    let message = gate
        .call(&format!("{server}_add"), r#"{"a":1,"b":1}"#)
        .await;
    assert_eq!(message["content"], "2");
}

#[tokio::test]
async fn server_can_be_added_changed_and_removed() {
    let mut gate = TestGate::start("");
    let mut new = server_entry("zoo", &[]);
    new["stdio_config"]["envs"] = json!(["TOKEN=hunter2hunter2"]);
    let (status, added) = send(&gate, Method::POST, "/api/mcp/client", &new).await;
    assert_eq!(
        (status, added["source"].as_str()),
        (StatusCode::CREATED, Some("api")),
        "{added}"
    );
    let id = added["config"]["client_id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 36);
    assert_eq!(
        added["config"]["stdio_config"]["envs"],
        json!(["TOKEN=***"])
    );
    assert_adds(&gate, "zoo").await;

    let (status, error) = send(
        &gate,
        Method::POST,
        "/api/mcp/client",
        &server_entry("ZOO", &[]),
    )
    .await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");

    let patch = json!({"tools_to_execute": ["echo", "env"], "tool_execution_timeout": "7s", "stdio_config": added["config"]["stdio_config"]});
    let (status, changed) =
        send(&gate, Method::PUT, &format!("/api/mcp/client/{id}"), &patch).await;
    assert_eq!(
        (status, changed["config"]["tool_execution_timeout"].as_str()),
        (StatusCode::OK, Some("7s")),
        "{changed}"
    );
    let message = gate.call("zoo_add", "{}").await;
    assert!(
        message["content"]
            .as_str()
            .unwrap()
            .starts_with("unknown tool"),
        "the change applies at once: {message}"
    );
    gate.wait_for_state("zoo", "healthy").await;
    let env = gate.call("zoo_env", "{}").await;
    assert!(
        env["content"].as_str().unwrap().contains("hunter2hunter2"),
        "a masked secret keeps its value: {env}"
    );

    gate.restart().await;
    let entry = gate.wait_for_state(&id, "healthy").await;
    assert_eq!(
        entry["config"]["tools_to_execute"],
        json!(["echo", "env"]),
        "the change survives a restart"
    );
    let (status, _) = send(&gate, Method::DELETE, "/api/mcp/client/zoo", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(gate.get("/api/mcp/client/zoo").await.status(), 404);
    gate.restart().await;
    assert_eq!(
        gate.get("/api/mcp/client/zoo").await.status(),
        404,
        "the removal survives a restart"
    );
    for file in files_in(&gate.folder.path().join("data")) {
        let bytes = fs::read(file).unwrap();
        assert!(
            !bytes.windows(7).any(|window| window == b"hunter2"),
            "the store must not contain the secret in clear text"
        );
    }
}

#[tokio::test]
async fn invalid_changes_are_rejected_and_change_nothing() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    for (body, expected) in [
        (json!({"name": "a"}), "`connection_type` is missing"),
        (
            json!({"name": "a b", "connection_type": "http", "connection_string": "http://h"}),
            "may contain only letters",
        ),
        (
            json!({"name": "a", "connection_type": "http", "connection_string": "nowhere"}),
            "connection_string: not a URL",
        ),
        (
            json!({"name": "a", "connection_type": "stdio", "stdio_config": {"command": "x"}, "colour": 1}),
            "unknown key `colour`",
        ),
        (
            json!({"name": "a", "connection_type": "http", "connection_string": "http://h", "oauth_config": {}}),
            "`oauth_config` is not supported",
        ),
        (json!([]), "the body must be a JSON object"),
    ] {
        let (status, error) = send(&gate, Method::POST, "/api/mcp/client", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{body}: {message}");
    }
    let broken = json!({"name": "a", "connection_type": "stdio", "stdio_config": {"command": "no-such-program"}});
    let (status, error) = send(&gate, Method::POST, "/api/mcp/client?verify=true", &broken).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`no-such-program` not found")
    );
    let (status, _) = send(&gate, Method::PUT, "/api/mcp/client/nobody", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = send(
        &gate,
        Method::PUT,
        "/api/mcp/client/zoo",
        &json!({"name": "other"}),
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        gate.json("/api/mcp/clients").await["clients"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn server_can_be_probed_without_being_saved() {
    let gate = TestGate::start("");
    let (_, good) = send(
        &gate,
        Method::POST,
        "/api/mcp/client/test",
        &server_entry("x", &["--era", "modern"]),
    )
    .await;
    assert_eq!(
        (good["ok"].as_bool(), good["protocol_version"].as_str()),
        (Some(true), Some("2026-07-28"))
    );
    assert!(good["tools"].as_array().unwrap().contains(&json!("echo")));
    let (status, bad) = send(
        &gate,
        Method::POST,
        "/api/mcp/client/test",
        &server_entry("x", &["--stderr", "no licence", "--exit-on", "initialize"]),
    )
    .await;
    assert_eq!((status, bad["ok"].as_bool()), (StatusCode::OK, Some(false)));
    assert!(
        bad["error"].as_str().unwrap().contains("no licence"),
        "{bad}"
    );
    assert_eq!(gate.json("/api/mcp/clients").await["clients"], json!([]));
}

#[tokio::test]
async fn api_overrides_file_until_the_file_changes() {
    let mut gate = TestGate::start(&(zoo("a", &[]) + &zoo("b", &[])));
    assert_adds(&gate, "a").await;
    let (_, changed) = send(
        &gate,
        Method::PUT,
        "/api/mcp/client/a",
        &json!({"disabled": true}),
    )
    .await;
    assert_eq!(
        (changed["state"].as_str(), changed["source"].as_str()),
        (Some("disabled"), Some("file+api"))
    );
    send(&gate, Method::DELETE, "/api/mcp/client/b", &json!({})).await;
    gate.restart().await;
    assert_eq!(
        gate.json("/api/mcp/client/a").await["state"],
        "disabled",
        "the change survives a restart"
    );
    assert_eq!(
        gate.get("/api/mcp/client/b").await.status(),
        404,
        "the removal survives a restart"
    );

    edit_config(
        &gate,
        &(zoo("a", &["--tools", "1"]) + &zoo("b", &[]) + "timeout = 9\n"),
    );
    assert_adds(&gate, "a").await;
    assert_adds(&gate, "b").await;
    assert_eq!(
        gate.json("/api/mcp/client/a").await["source"],
        "file",
        "the file's entry changed, so the file wins"
    );
    assert!(gate.log().contains("dropping the API's changes to it"));
}

#[tokio::test]
async fn file_is_watched_and_invalid_file_changes_nothing() {
    let gate = TestGate::start(&zoo("a", &[]));
    assert_adds(&gate, "a").await;
    edit_config(&gate, "[mcp_servers.a]\ncomand = \"x\"\n");
    eventually("the mistake is logged", WAIT_TIMEOUT, async || {
        gate.log().contains("did you mean `command`").then_some(())
    })
    .await;
    assert_adds(&gate, "a").await;
    edit_config(&gate, &zoo("b", &[]));
    assert_adds(&gate, "b").await;
    assert_eq!(gate.get("/api/mcp/client/a").await.status(), 404);
}

#[tokio::test]
async fn reload_under_load_drops_no_calls() {
    let gate = TestGate::start(&(zoo("a", &[]) + &zoo("b", &[])));
    assert_adds(&gate, "a").await;
    assert_adds(&gate, "b").await;
    let calling = async {
        let mut calls = 0;
        for round in 0.. {
            for server in ["a", "b"] {
                let message = gate
                    .call(
                        &format!("{server}_add"),
                        &format!(r#"{{"a":{round},"b":1}}"#),
                    )
                    .await;
                assert_eq!(message["content"], (round + 1).to_string(), "{message}");
                calls += 1;
            }
            if gate.log().matches("configuration reloaded").count() >= 3 {
                break;
            }
        }
        calls
    };
    let editing = async {
        for n in 1..=3 {
            edit_config(
                &gate,
                &(zoo("a", &["--tools", &n.to_string()])
                    + &zoo("b", &[])
                    + &format!("timeout = {}\n", 10 + n)),
            );
            eventually("the configuration is reloaded", WAIT_TIMEOUT, async || {
                (gate.log().matches("configuration reloaded").count() >= n).then_some(())
            })
            .await;
        }
    };
    let (calls, ()) = tokio::join!(calling, editing);
    assert!(calls > 10, "{calls}");
}

#[tokio::test]
async fn servers_reconnect_and_settings_change() {
    let gate = TestGate::start(
        &(zoo("zoo", &[]) + "[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n"),
    );
    assert_adds(&gate, "zoo").await;
    let (status, _) = send(
        &gate,
        Method::POST,
        "/api/mcp/client/zoo/reconnect",
        &json!({}),
    )
    .await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_adds(&gate, "zoo").await;
    let (status, _) = send(
        &gate,
        Method::POST,
        "/api/mcp/client/off/reconnect",
        &json!({}),
    )
    .await;
    assert_eq!(status, StatusCode::CONFLICT);

    let path = "/api/settings/mcp/tool-manager-config";
    assert_eq!(
        gate.json(path).await,
        json!({"max_agent_depth": 10, "tool_execution_timeout": "30s", "disable_auto_tool_inject": false, "code_mode_binding_level": "server"})
    );
    let (status, set) = send(
        &gate,
        Method::PUT,
        path,
        &json!({"tool_execution_timeout": "200ms"}),
    )
    .await;
    assert_eq!(
        (status, set["tool_execution_timeout"].as_str()),
        (StatusCode::OK, Some("200ms")),
        "{set}"
    );
    let message = gate.call("zoo_sleep", r#"{"ms":60000}"#).await;
    assert!(
        message["content"]
            .as_str()
            .unwrap()
            .contains("within 0.2 s"),
        "{message}"
    );
    for invalid in [
        json!({"max_agent_depth": 51}),
        json!({"max_agent_depth": 0}),
        json!({"depth": 3}),
    ] {
        assert_eq!(
            send(&gate, Method::PUT, path, &invalid).await.0,
            StatusCode::BAD_REQUEST,
            "{invalid}"
        );
    }
}

#[tokio::test]
async fn claude_desktop_config_can_be_imported() {
    let gate = TestGate::start(&zoo("here", &[]));
    let file = json!({"mcpServers": {
        "zoo": {"command": zoo_path(), "args": ["stdio"]},
        "here": {"command": "x"},
        "my server": {"type": "http", "url": "nowhere"},
    }});
    fs::write(
        gate.folder.path().join("claude_desktop_config.json"),
        file.to_string(),
    )
    .unwrap();
    let (output, stdout, stderr) = run(
        gate.folder.path(),
        &["import", "claude_desktop_config.json", "--url", &gate.url],
    );
    assert_eq!(
        output.status.code(),
        Some(1),
        "one server is invalid: {stderr}"
    );
    for expected in [
        "zoo: created",
        "here: exists",
        "my_server: invalid",
        "renamed from `my server`",
        "not a URL",
    ] {
        assert!(stdout.contains(expected), "{expected} in {stdout}");
    }
    assert_adds(&gate, "zoo").await;
    let (output, stdout, _) = run(
        gate.folder.path(),
        &["import", "claude_desktop_config.json", "--print"],
    );
    assert!(output.status.success());
    assert!(
        stdout.contains("[mcp_servers.zoo]") || stdout.contains("[[mcp.client_configs]]"),
        "{stdout}"
    );
    let (output, _, stderr) = run(gate.folder.path(), &["import", "toolgate.toml", "--print"]);
    assert!(
        !output.status.success() && stderr.contains("not valid JSON"),
        "{stderr}"
    );
}

#[tokio::test]
async fn tool_definitions_keep_version_history() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("server.sh");
    let write_server = |text: &str| {
        // A server with one tool whose description is `text`.
        let program = format!(
            r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"s\",\"version\":\"1\"}}}}}}";;
    *'"tools/list"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"tools\":[{{\"name\":\"t\",\"description\":\"{text}\",\"inputSchema\":{{\"type\":\"object\"}}}}]}}}}";;
    *'"ping"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{}}}}";;
  esac
done
"#
        );
        fs::write(&script, program).unwrap();
    };
    write_server("first");
    let toml = crate::gate::server("s", "sh", &[script.to_str().unwrap()]);
    let mut gate = TestGate::start(&toml);
    gate.wait_for_state("s", "healthy").await;
    let wait_for_versions = async |gate: &TestGate, expected: &[&str]| {
        eventually("the versions are recorded", WAIT_TIMEOUT, async || {
            let list = gate.json("/api/mcp/tools/s_t/versions").await;
            let texts: Vec<String> = list["versions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|version| {
                    version["definition"]["description"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                })
                .collect();
            (texts == expected).then_some(list)
        })
        .await
    };
    wait_for_versions(&gate, &["first"]).await;
    write_server("second");
    send(
        &gate,
        Method::POST,
        "/api/mcp/client/s/reconnect",
        &json!({}),
    )
    .await;
    let list = wait_for_versions(&gate, &["second", "first"]).await;
    assert_eq!(
        (
            list["versions"][0]["current"].as_bool(),
            list["versions"][1]["current"].as_bool()
        ),
        (Some(true), Some(false))
    );
    gate.restart().await;
    gate.wait_for_state("s", "healthy").await;
    wait_for_versions(&gate, &["second", "first"]).await;
    assert_eq!(
        gate.get("/api/mcp/tools/nothing/versions").await.status(),
        404
    );
}

#[tokio::test]
async fn statistics_and_fallbacks_are_reported() {
    let toml = "[mcp_servers.main]\ncommand = \"no-such-program\"\nfallback = \"spare\"\n"
        .to_owned()
        + &zoo("spare", &[]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("spare", "healthy").await;
    let message = gate.call("main_add", r#"{"a":1,"b":1}"#).await;
    assert_eq!(message["content"], "2");
    assert_eq!(
        message["fallback"],
        json!({"server": "spare", "instead_of": "main"})
    );
    assert!(
        gate.log()
            .contains("routing tool call to the fallback server")
    );
    gate.call("spare_fail", "{}").await;
    let stats = gate.json("/api/stats").await;
    let spare = stats["servers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["server"] == "spare")
        .unwrap();
    assert_eq!(
        (
            spare["figures"]["calls"].as_u64(),
            spare["figures"]["errors"].as_u64()
        ),
        (Some(2), Some(1)),
        "{stats}"
    );
    let tool = stats["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["tool"] == "add")
        .unwrap();
    assert!(
        tool["figures"]["p50_ms"].as_f64().unwrap() > 0.0 && tool["figures"]["bytes_sent"] == 13,
        "{tool}"
    );
    assert_eq!(
        gate.json("/api/mcp/client/spare").await["figures"]["calls"],
        2
    );
}

#[tokio::test]
async fn mutual_fallbacks_survive_restart() {
    let mut gate = TestGate::start("");
    for (name, fallback) in [("z", None), ("a", Some("z"))] {
        let mut new = server_entry(name, &[]);
        if let Some(fallback) = fallback {
            new["fallback"] = fallback.into();
        }
        assert_eq!(
            send(&gate, Method::POST, "/api/mcp/client", &new).await.0,
            StatusCode::CREATED
        );
    }
    send(
        &gate,
        Method::PUT,
        "/api/mcp/client/z",
        &json!({"fallback": "a"}),
    )
    .await;
    gate.restart().await;
    for name in ["a", "z"] {
        assert_adds(&gate, name).await;
    }
}

#[tokio::test]
async fn empty_file_during_replacement_removes_nothing() {
    let toml = zoo("a", &[]);
    let gate = TestGate::start(&toml);
    assert_adds(&gate, "a").await;
    send(
        &gate,
        Method::PUT,
        "/api/mcp/client/a",
        &json!({"tool_execution_timeout": 9}),
    )
    .await;
    edit_config(&gate, "");
    eventually("the empty file is noticed", WAIT_TIMEOUT, async || {
        gate.log()
            .contains("missing or empty; keeping the previous configuration")
            .then_some(())
    })
    .await;
    assert_eq!(gate.json("/api/mcp/client/a").await["source"], "file+api");
    edit_config(&gate, &(toml + "\n# a comment changes no entry\n"));
    eventually("the configuration is reloaded", WAIT_TIMEOUT, async || {
        gate.log().contains("configuration reloaded").then_some(())
    })
    .await;
    let entry = gate.json("/api/mcp/client/a").await;
    assert_eq!(
        (
            entry["source"].as_str(),
            entry["config"]["tool_execution_timeout"].as_str()
        ),
        (Some("file+api"), Some("9s"))
    );
}

#[tokio::test]
async fn slow_probe_does_not_block_other_changes() {
    let gate = TestGate::start(&zoo("a", &[]));
    assert_adds(&gate, "a").await;
    let silent = server_entry("x", &["--silent"]);
    let slow = send(&gate, Method::POST, "/api/mcp/client/test", &silent);
    let other = async {
        let (status, _) = send(
            &gate,
            Method::PUT,
            "/api/mcp/client/a",
            &json!({"tool_execution_timeout": 9}),
        )
        .await;
        assert_eq!(status, StatusCode::OK);
    };
    tokio::select! {
        _ = slow => panic!("the silent server answered"),
        () = other => {}
    }
}

#[tokio::test]
async fn data_directory_is_locked_by_one_gateway() {
    let gate = TestGate::start("");
    let (output, _, stderr) = run(
        gate.folder.path(),
        &["serve", "--port", "0", "--data-dir", "data"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("another gateway uses the data directory"),
        "{stderr}"
    );
}
