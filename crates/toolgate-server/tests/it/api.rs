//! The admin API under `/api`.

use serde_json::Value;

use crate::gate::{TestGate, zoo};

#[tokio::test]
async fn servers_are_shown_with_config_and_capabilities() {
    let toml = zoo("zoo", &["--instructions", "Be kind.", "--malformed"])
        + "env = { TOKEN = \"hunter2hunter2\", OTHER = \"env.HOME\" }\ntools_to_execute = [\"echo\", \"add\"]\ntools_to_auto_execute = [\"add\"]\ntimeout = 45\n"
        + "[mcp_servers.web]\nurl = \"http://user:hunter2@127.0.0.1:9/mcp?key=hunter2\"\nheaders = { Authorization = \"Bearer hunter2\" }\nenabled = false\n";
    let gate = TestGate::start(&toml);
    let entry = gate.wait_for_state("zoo", "healthy").await;
    let config = &entry["config"];
    assert_eq!(config["connection_type"], "stdio");
    assert_eq!(config["tool_execution_timeout"], "45s");
    assert_eq!(
        config["stdio_config"]["envs"],
        serde_json::json!(["TOKEN=***", "OTHER=env.HOME"])
    );
    assert_eq!(entry["protocol_version"], "2025-11-25");
    assert_eq!(entry["instructions"], "Be kind.");
    assert_eq!(entry["source"], "file");
    assert!(entry["server_info"]["name"].is_string());
    assert_eq!(entry["resources"].as_array().unwrap().len(), 3);
    assert!(entry["problems"].as_array().unwrap().len() >= 4);
    let verdict = |name: &str| {
        let tools = entry["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["verdict"].clone()
    };
    assert_eq!(
        (verdict("add"), verdict("echo"), verdict("fail")),
        ("allow".into(), "manual".into(), "hidden".into())
    );

    let web = gate.json("/api/mcp/client/web").await;
    assert_eq!(
        (web["state"].as_str(), web["config"]["disabled"].as_bool()),
        (Some("disabled"), Some(true))
    );
    assert_eq!(
        web["config"]["connection_string"],
        "http://***@127.0.0.1:9/mcp?***"
    );
    let everything = gate.get("/api/mcp/clients").await.text().await.unwrap();
    assert!(!everything.contains("hunter2"), "{everything}");
    assert_eq!(gate.get("/api/mcp/client/nobody").await.status(), 404);
}

#[tokio::test]
async fn server_is_found_by_id_or_name() {
    let toml = format!(
        "[[mcp.client_configs]]\nname = \"zoo\"\nclient_id = \"id-7\"\nconnection_type = \"stdio\"\nstdio_config = {{ command = {:?}, args = [\"stdio\"] }}\ntools_to_execute = [\"*\"]\n",
        toolgate_testkit::zoo_path()
    );
    let gate = TestGate::start(&toml);
    for id in ["id-7", "zoo"] {
        assert_eq!(
            gate.wait_for_state(id, "healthy").await["config"]["client_id"],
            "id-7"
        );
    }
}

#[tokio::test]
async fn tools_are_paginated_with_original_definitions() {
    let gate = TestGate::start(&zoo("zoo", &["--tools", "30"]));
    gate.wait_for_state("zoo", "healthy").await;
    let mut aliases = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = gate.json(&format!("/api/mcp/tools?limit=7{cursor}")).await;
        let tools = page["tools"].as_array().unwrap();
        assert!(tools.len() <= 7);
        aliases.extend(
            tools
                .iter()
                .map(|tool| tool["alias"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut sorted = aliases.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(aliases, sorted, "sorted and unique");
    assert!(aliases.len() >= 40);

    let found = gate.json("/api/mcp/tools?search=ECHO&server=zoo").await;
    let echo: &Value = &found["tools"][0];
    assert_eq!(
        (echo["alias"].as_str(), echo["verdict"].as_str()),
        (Some("zoo_echo"), Some("manual"))
    );
    assert_eq!(echo["because"], "tools_to_execute");
    assert_eq!(echo["hash"].as_str().unwrap().len(), 64);
    for field in [
        "title",
        "description",
        "input_schema",
        "output_schema",
        "annotations",
        "icons",
        "_meta",
    ] {
        assert!(!echo[field].is_null(), "{field}");
    }
    let raw = gate
        .get("/api/mcp/tools?search=echo")
        .await
        .text()
        .await
        .unwrap();
    assert!(
        raw.contains("\"x-hint\":1.50"),
        "numbers keep their text: {raw}"
    );
    assert_eq!(
        gate.json("/api/mcp/tools?server=other").await["tools"],
        serde_json::json!([])
    );
    for invalid in ["limit=0", "limit=5000", "limit=x"] {
        assert_eq!(
            gate.get(&format!("/api/mcp/tools?{invalid}"))
                .await
                .status(),
            400,
            "{invalid}"
        );
    }
}

#[tokio::test]
async fn openapi_paths_exist() {
    let gate = TestGate::start("");
    let document = gate.json("/api/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 8, "{paths:?}");
    for (path, operations) in paths {
        if operations.get("get").is_some() && !path.contains('{') {
            let response = gate.get(path).await;
            let exists = response.status() != 404;
            assert!(exists, "{path} answers {}", response.status());
        }
    }
    let missing = gate.get("/api/nothing").await;
    assert_eq!(missing.status(), 404);
    assert!(missing.text().await.unwrap().contains("/api/openapi.json"));
    assert_eq!(
        gate.client
            .delete(format!("{}/health", gate.url))
            .send()
            .await
            .unwrap()
            .status(),
        405
    );
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let gate = TestGate::start("");
    let response = gate.get("/health").await;
    assert_eq!(response.headers()["x-request-id"].len(), 36);
    let response = gate
        .client
        .get(format!("{}/health", gate.url))
        .header("x-request-id", "mine-7")
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine-7");
}
