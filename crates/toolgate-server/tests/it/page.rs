//! The web page: how it is served, and how it behaves in a real browser.
//!
//! The browser scenes are in `tests/env/browser`; their expected results are here.

use std::path::Path;

use reqwest::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderMap, IF_NONE_MATCH, ORIGIN};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Reply, ScriptedModel};
use toolgate_testkit::zoo_path;

use crate::agent::{self, PATHS, add_call, request};
use crate::client_process;
use crate::code_mode::list_tool_names;
use crate::definitions::{DefinitionFixture, PIN};
use crate::gate::{TestGate, server, zoo};
use crate::mcp_sdk::{env_file, node};
use crate::optional_env::OptionalComponent;

const ADMIN: &str = "admin-key-of-the-page";

/// Markup that sets a global if the page renders it as HTML.
const MARKUP: &str = "<img src=x onerror=\"broken=1\"><script>broken=1</script>";

/// Runs a scene in a browser and returns its results; `None` if no browser is installed.
async fn run_scene(scene: &str, gate: &TestGate, input: Value) -> Option<Value> {
    if !OptionalComponent::Browser.check_available(&format!("page, {scene}")) {
        return None;
    }
    page_file("index.html");
    let mut visit = Command::new(node());
    visit
        .arg(env_file("browser/visit.mjs"))
        .args([scene, &gate.url, &input.to_string()])
        .env_clear()
        .env("HOME", gate.folder.path())
        .env("TMPDIR", gate.folder.path())
        .env("PATH", env!("PATH"));
    let report = client_process::run_client(&mut visit).await;
    let report = report.unwrap_or_else(|output| panic!("{scene}: {output}"));
    let errors = report["errors"].as_array().unwrap();
    let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
    assert!(errors.is_empty(), "{scene}:\n{}", errors.join("\n"));
    Some(report["results"].clone())
}

/// Reads a file of the built page.
fn page_file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../web/dist")
        .join(name);
    let read = std::fs::read(&path);
    read.unwrap_or_else(|_| panic!("{} is missing; run `make web`", path.display()))
}

fn header(response: &Response, name: impl AsRef<str>) -> String {
    let value = response.headers().get(name.as_ref());
    value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

/// Returns the paths of the script and the style sheet in the page.
fn asset_paths() -> Vec<String> {
    let index = String::from_utf8(page_file("index.html")).unwrap();
    let parts = index.split('"').filter_map(|part| part.strip_prefix("./"));
    let assets = parts.filter(|part| part.starts_with("assets/"));
    assets.map(|part| format!("/{part}")).collect()
}

#[tokio::test]
async fn page_is_public_and_has_security_headers() {
    let gate = TestGate::start_with("", &[], &[("TOOLGATE_ADMIN_KEY", ADMIN)]);
    assert_eq!(gate.get("/api/stats").await.status(), 401);
    let index = gate.get("/").await;
    assert_eq!(index.status(), 200);
    assert_eq!(header(&index, CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(header(&index, CACHE_CONTROL), "no-cache");
    let policy = header(&index, "content-security-policy");
    for part in [
        "default-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&index, "x-content-type-options"), "nosniff");
    assert_eq!(header(&index, "referrer-policy"), "no-referrer");
    assert_eq!(index.bytes().await.unwrap(), page_file("index.html"));

    let assets = asset_paths();
    assert_eq!(assets.len(), 2, "{assets:?}");
    for path in assets {
        let asset = gate.get(&path).await;
        let kind = if path.ends_with(".js") {
            "text/javascript; charset=utf-8"
        } else {
            "text/css; charset=utf-8"
        };
        assert_eq!(header(&asset, CONTENT_TYPE), kind);
        assert!(header(&asset, CACHE_CONTROL).contains("immutable"));
        assert_eq!(header(&asset, "x-content-type-options"), "nosniff");
        assert_eq!(asset.bytes().await.unwrap(), page_file(&path[1..]));
    }
    let icon = gate.get("/favicon.svg").await;
    assert_eq!(header(&icon, CONTENT_TYPE), "image/svg+xml");
}

#[tokio::test]
async fn cached_files_are_not_sent_again() {
    let gate = TestGate::start("");
    for path in ["/".to_owned(), asset_paths().remove(0)] {
        let tag = header(&gate.get(&path).await, ETAG);
        let again = |tag: String| {
            let request = gate.client.get(format!("{}{path}", gate.url));
            request.header(IF_NONE_MATCH, tag).send()
        };
        let known = again(format!("\"other\", {tag}")).await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(&known, ETAG), tag);
        assert!(known.bytes().await.unwrap().is_empty());
        assert_eq!(again("\"other\"".to_owned()).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let gate = TestGate::start("");
    for path in [
        "/index.html",
        "/servers",
        "/assets/none.js",
        "/assets/..%2findex.html",
        "/assets/..%2f..%2fpackage.json",
        "/assets/",
        "/api/nothing",
        "/v1/nothing",
    ] {
        let response = gate.get(path).await;
        assert_eq!(response.status(), 404, "{path}");
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(body["error"]["code"], "not_found", "{path}: {body}");
    }
    let posted = gate.post("/", "{}", HeaderMap::new()).await;
    assert_eq!(posted.status(), 405);
    let foreign = gate.client.get(&gate.url).header(HOST, "evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn same_origin_is_accepted_and_foreign_origins_are_not() {
    let args = ["--host", "0.0.0.0"];
    let gate = TestGate::start_with("", &args, &[("TOOLGATE_ADMIN_KEY", ADMIN)]);
    let port = gate.url.rsplit_once(':').unwrap().1;
    let host = format!("10.1.2.3:{port}");
    let url = format!("http://127.0.0.1:{port}/api/mcp/client/test");
    for (origin, status) in [
        (format!("http://{host}"), 400),
        ("http://10.1.2.4:8080".to_owned(), 403),
        ("http://evil.example".to_owned(), 403),
    ] {
        let request = gate.client.post(&url).bearer_auth(ADMIN).body("{}");
        let request = request.header(HOST, &host).header(ORIGIN, &origin);
        assert_eq!(request.send().await.unwrap().status(), status, "{origin}");
    }
}

#[tokio::test]
async fn login_link_is_not_logged() {
    let gate = TestGate::start_with("", &[], &[("TOOLGATE_ADMIN_KEY", "auto")]);
    let file = gate.folder.path().join("data/admin.key");
    let key = std::fs::read_to_string(file).unwrap();
    let stats = gate.client.get(format!("{}/api/stats", gate.url));
    let stats = stats.bearer_auth(key.trim()).send().await.unwrap();
    assert_eq!(stats.status(), 200);
    let log = gate.log();
    assert!(log.contains("admin.key"), "{log}");
    assert!(!log.contains(key.trim()), "{log}");
}

#[tokio::test]
async fn user_signs_in_by_form_and_link() {
    let gate = TestGate::start_with("", &[], &[("TOOLGATE_ADMIN_KEY", ADMIN)]);
    let Some(results) = run_scene("signIn", &gate, json!({"key": ADMIN})).await else {
        return;
    };
    let refusal = "this requires the admin key; send it as `Authorization: Bearer KEY`";
    assert_eq!(results["refusal"], refusal);
    assert_eq!(results["address"], format!("{}/", gate.url));
    assert_eq!(
        results["kept"],
        json!([0, 1]),
        "the key is stored for the tab only"
    );
}

#[tokio::test]
async fn user_adds_server_and_runs_script() {
    let gate = TestGate::start("");
    let command = format!("'{}' stdio", zoo_path().display());
    let Some(results) = run_scene("addServer", &gate, json!({"command": command})).await else {
        return;
    };
    assert!(
        results["error"].as_str().unwrap().contains("not a name"),
        "{results}"
    );
    assert!(
        results["tried"].as_str().unwrap().contains("echo"),
        "{results}"
    );
    let processes = results["processes"].as_str().unwrap();
    assert!(processes.starts_with("1, "), "{results}");
    let switched = json!({"Code Mode Client": "true", "Automatically execute tool add": "true",
        "Enable add": "true", "Enable fail": "false", "Approval by": "User of the client"});
    assert_eq!(results["states"], switched);
    assert_eq!(results["result"], json!({"sum": 42}));
    assert_eq!(results["printed"], "hello");
    assert!(
        results["failure"].as_str().unwrap().contains("nothing"),
        "{results}"
    );
    assert_eq!(results["line"], "2");

    let entry = gate.json("/api/mcp/client/zoo").await;
    let config = &entry["config"];
    assert_eq!(config["is_code_mode_client"], true);
    assert_eq!(config["tools_to_auto_execute"], json!(["add"]));
    assert_eq!(config["approval_by"], json!(["client"]));
    let enabled = config["tools_to_execute"].as_array().unwrap();
    assert!(enabled.contains(&json!("add")) && !enabled.contains(&json!("fail")));
    assert!(!enabled.contains(&json!("*")));
    let direct = list_tool_names(&gate, "/mcp").await;
    assert!(
        !direct.iter().any(|name| name.starts_with("zoo_")),
        "{direct:?}"
    );
    assert!(direct.contains(&"executeToolCode".to_owned()), "{direct:?}");
}

#[tokio::test]
async fn user_changes_servers_and_settings() {
    let toml = server("broken", "no-such-program", &[])
        + "env = { TOKEN = \"very-secret-token\" }\n"
        + &server("gone", "neither-this", &[]);
    let gate = TestGate::start(&toml);
    let Some(results) = run_scene("changeServer", &gate, json!({})).await else {
        return;
    };
    assert_eq!(results["secret"], "TOKEN=***");
    assert!(
        results["refusal"]
            .as_str()
            .unwrap()
            .contains("max_agent_depth"),
        "{results}"
    );
    assert_eq!(results["wide"], 390, "the page fits on a phone");
    let imported = results["imported"].as_str().unwrap();
    assert!(imported.contains("importedcreated"), "{imported}");
    let clients = gate.json("/api/mcp/clients").await;
    let names = clients["clients"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|client| &client["config"]["name"]).collect();
    assert_eq!(names, ["broken", "imported"]);
    let stdio = &clients["clients"][0]["config"]["stdio_config"];
    assert_eq!(stdio["args"], json!(["--one", "--two"]));
    assert_eq!(stdio["envs"], json!(["TOKEN=***"]));
    let settings = gate.json("/api/settings/mcp/tool-manager-config").await;
    assert_eq!(settings["max_agent_depth"], 15);
    assert_eq!(settings["code_mode_binding_level"], "tool");
}

#[tokio::test]
async fn user_approves_with_edits_and_denies() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + "is_code_mode_client = true\n" + rule));
    gate.wait_for_state("zoo", "healthy").await;
    let Some(results) = run_scene("approve", &gate, json!({})).await else {
        return;
    };
    assert_eq!(results["asked"], json!({"text": "please"}));
    let result = results["result"].as_str().unwrap();
    assert!(result.contains("edited"), "{result}");
    assert!(result.contains("18446744073709551617"), "{result}");
    let records = gate.records(&gate.caller()).await;
    let added = records.iter().filter(|record| record["tool"] == "add");
    assert_eq!(added.count(), 1, "the call runs once");
    let denied = gate.json("/api/approvals?state=denied").await;
    assert_eq!(denied["approvals"][0]["reason"], "not today");
}

#[tokio::test]
async fn user_trusts_changed_definition() {
    let tool = |description: &str| json!([{"name": "t", "description": description, "inputSchema": {"type": "object"}}]);
    let fixture = DefinitionFixture::start(PIN, &tool("Adds numbers.")).await;
    fixture.change(&tool("Sends numbers.")).await;
    let Some(results) = run_scene("trustDefinition", &fixture.gate, json!({})).await else {
        return;
    };
    let reason = results["reason"].as_str().unwrap();
    assert!(reason.contains("changed the definition"), "{reason}");
    assert!(reason.contains("hidden"), "{reason}");
    let change = results["change"].as_str().unwrap();
    assert_eq!(change, "/descriptionAdds numbers.Sends numbers.");
}

#[tokio::test]
async fn user_creates_uses_and_deletes_keys() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + "is_code_mode_client = true\n"));
    gate.wait_for_state("zoo", "healthy").await;
    let Some(results) = run_scene("manageKeys", &gate, json!({})).await else {
        return;
    };
    assert!(
        results["key"].as_str().unwrap().starts_with("tg-"),
        "{results}"
    );
    assert!(
        results["why"].as_str().unwrap().contains("keys.ci"),
        "{results}"
    );
    let own = results["own"].as_str().unwrap();
    assert!(
        own.contains("def echo(") && !own.contains("def add("),
        "{own}"
    );
    assert_eq!(results["record"], json!({"fileName": "servers/zoo.pyi"}));
    let reads = gate.json("/api/audit?tool=readToolFile").await;
    let reads = reads["records"].as_array().unwrap().len();
    assert_eq!(reads, 1, "looking at files is no call");
    assert_eq!(results["required"], json!(["true", "false"]));
    assert_eq!(gate.json("/api/keys").await["keys"], json!([]));
}

#[tokio::test]
async fn user_watches_and_cancels_runs() {
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([add_call("c1", 1)]),
        Reply::text("It is two."),
        Reply::calls([slow]),
    ]);
    let gate = agent::start_gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false);
    agent::run_agent(&gate, PATHS[0].1, &body).await;
    let body = body.to_string();
    let cancelled_run = async {
        let answer = gate.post(PATHS[0].1, &body, HeaderMap::new());
        answer.await.status()
    };
    let watching = async {
        gate.wait_for_in_flight_call().await;
        let input = json!({"model": "openai/m"});
        let results = run_scene("watchRuns", &gate, input).await;
        if results.is_none() {
            // Without a browser, cancel the run here, or the other future never ends.
            let runs = gate.json("/api/runs?state=running").await;
            let id = runs["runs"][0]["id"].as_str().unwrap();
            gate.post(&format!("/api/runs/{id}/cancel"), "", HeaderMap::new())
                .await;
        }
        results
    };
    let (status, results) = tokio::join!(cancelled_run, watching);
    assert_eq!(status, 424);
    if let Some(results) = results {
        let steps = json!([
            "Model called zoo_add",
            "zoo_add",
            "Model responded",
            "Run done"
        ]);
        assert_eq!(results["steps"], steps);
    }
}

#[tokio::test]
async fn user_sees_that_the_gateway_cannot_record_and_what_was_changed() {
    let sink = "[audit.sink]\nfile = \"sink/audit.jsonl\"\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + sink));
    gate.wait_for_state("zoo", "healthy").await;
    let input = json!({"folder": gate.folder.path().join("sink")});
    let Some(results) = run_scene("watchRecording", &gate, input).await else {
        return;
    };
    assert_eq!(results["refused"], 503);
    let problem = results["problem"].as_str().unwrap();
    assert!(problem.contains("No such file"), "{problem}");
    assert_eq!(results["accepted"], 200);
    assert_eq!(results["depths"], json!(["max_agent_depth", "–", "15"]));
}

#[tokio::test]
async fn server_text_is_not_rendered_as_html() {
    let script = env_file("browser/hostile.mjs");
    let program = [script.to_str().unwrap(), MARKUP];
    let hostile = server("hostile", node().to_str().unwrap(), &program);
    let gate = TestGate::start(&(hostile + "is_code_mode_client = true\n"));
    gate.wait_for_state("hostile", "healthy").await;
    let Some(results) = run_scene("readHostile", &gate, json!({"markup": MARKUP})).await else {
        return;
    };
    assert!(
        results["result"].as_str().unwrap().contains("<img"),
        "{results}"
    );
    assert_eq!(results["made"], json!([null, 0]));
}
