//! The web page: how it is served, and what people do on it, in a real browser.
//!
//! The scenes that the browser plays are in `tests/env/browser`; what has to come of them is here.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderMap, IF_NONE_MATCH, ORIGIN};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Model, Reply};
use toolgate_testkit::zoo_path;

use crate::agent::{self, PATHS, add, request};
use crate::code_mode::listed;
use crate::gate::{TestGate, server, zoo};
use crate::real_model::note;
use crate::sdk::{env_file, node};

/// Each step of a scene gives up long before.
const PATIENCE: Duration = Duration::from_secs(180);

const ADMIN: &str = "admin-key-of-the-page";

/// Markup that tells if a page takes it for such.
const MARKUP: &str = "<img src=x onerror=\"broken=1\"><script>broken=1</script>";

/// Plays a scene in a browser, and gives what was seen. Nothing where there is no browser.
async fn plays(scene: &str, gate: &TestGate, given: Value) -> Option<Value> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env/browser/node_modules/.browser.json");
    if !found.exists() {
        note(&format!(
            "SKIPPED page, {scene}: no browser in tests/env/browser; run `make test-env`"
        ));
        return None;
    }
    page_file("index.html");
    let visit = Command::new(node())
        .arg(env_file("browser/visit.mjs"))
        .args([scene, &gate.url, &given.to_string()])
        .env_clear()
        .env("HOME", gate.folder.path())
        .env("TMPDIR", gate.folder.path())
        .env("PATH", env!("PATH"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, visit).await;
    let output = output.expect("the scene ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    let told: Value =
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{scene}: {out}\n{error}"));
    let wrong = told["wrong"].as_array().unwrap();
    let wrong: Vec<&str> = wrong.iter().filter_map(Value::as_str).collect();
    assert!(wrong.is_empty(), "{scene}:\n{}", wrong.join("\n"));
    Some(told["seen"].clone())
}

/// A file of the page as it was built.
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

/// The paths of the script and the style that the page names.
fn assets() -> Vec<String> {
    let index = String::from_utf8(page_file("index.html")).unwrap();
    let parts = index.split('"').filter_map(|part| part.strip_prefix("./"));
    let assets = parts.filter(|part| part.starts_with("assets/"));
    assets.map(|part| format!("/{part}")).collect()
}

#[tokio::test]
async fn it_is_served_to_everyone_within_its_fences() {
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

    let assets = assets();
    assert_eq!(assets.len(), 2, "{assets:?}");
    for path in assets {
        let asset = gate.get(&path).await;
        let kind = match path.ends_with(".js") {
            true => "text/javascript; charset=utf-8",
            false => "text/css; charset=utf-8",
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
async fn what_a_browser_has_it_is_not_sent_again() {
    let gate = TestGate::start("");
    for path in ["/".to_owned(), assets().remove(0)] {
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
async fn other_paths_are_answered_as_before() {
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
async fn it_works_from_other_machines_and_other_pages_do_not() {
    let others = ["--host", "0.0.0.0", "--admin-key", ADMIN];
    let gate = TestGate::start_with("", &others, &[]);
    let port = gate.url.rsplit_once(':').unwrap().1;
    let host = format!("10.1.2.3:{port}");
    let url = format!("http://127.0.0.1:{port}/api/mcp/client/test");
    for (origin, status) in [
        (format!("http://{host}"), 400),
        ("http://10.1.2.4:8080".to_owned(), 403),
        ("http://evil.example".to_owned(), 403),
    ] {
        let asked = gate.client.post(&url).bearer_auth(ADMIN).body("{}");
        let asked = asked.header(HOST, &host).header(ORIGIN, &origin);
        assert_eq!(asked.send().await.unwrap().status(), status, "{origin}");
    }
}

#[tokio::test]
async fn the_login_link_is_for_a_terminal_alone() {
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
async fn one_signs_in_by_form_and_by_link() {
    let gate = TestGate::start_with("", &[], &[("TOOLGATE_ADMIN_KEY", ADMIN)]);
    let Some(seen) = plays("signIn", &gate, json!({"key": ADMIN})).await else {
        return;
    };
    let refusal = "this needs the admin key, as `Authorization: Bearer KEY`";
    assert_eq!(seen["refusal"], refusal);
    assert_eq!(seen["address"], format!("{}/", gate.url));
    assert_eq!(seen["kept"], json!([0, 1]), "for the tab alone");
}

#[tokio::test]
async fn a_server_is_added_and_scripted() {
    let gate = TestGate::start("");
    let command = format!("'{}' stdio", zoo_path().display());
    let Some(seen) = plays("addServer", &gate, json!({"command": command})).await else {
        return;
    };
    assert!(
        seen["error"].as_str().unwrap().contains("not a name"),
        "{seen}"
    );
    assert!(seen["tried"].as_str().unwrap().contains("echo"), "{seen}");
    let switched = json!({"Code Mode Client": "true", "Automatically execute tool add": "true",
        "Enable add": "true", "Enable fail": "false"});
    assert_eq!(seen["states"], switched);
    assert_eq!(seen["result"], json!({"sum": 42}));
    assert_eq!(seen["printed"], "hello");
    assert!(
        seen["failure"].as_str().unwrap().contains("nothing"),
        "{seen}"
    );
    assert_eq!(seen["line"], "2");

    let entry = gate.json("/api/mcp/client/zoo").await;
    let config = &entry["config"];
    assert_eq!(config["is_code_mode_client"], true);
    assert_eq!(config["tools_to_auto_execute"], json!(["add"]));
    let enabled = config["tools_to_execute"].as_array().unwrap();
    assert!(enabled.contains(&json!("add")) && !enabled.contains(&json!("fail")));
    assert!(!enabled.contains(&json!("*")));
    let direct = listed(&gate, "/mcp").await;
    assert!(
        !direct.iter().any(|name| name.starts_with("zoo_")),
        "{direct:?}"
    );
    assert!(direct.contains(&"executeToolCode".to_owned()), "{direct:?}");
}

#[tokio::test]
async fn servers_and_settings_are_changed() {
    let toml = server("broken", "no-such-program", &[])
        + "env = { TOKEN = \"very-secret-token\" }\n"
        + &server("gone", "neither-this", &[]);
    let gate = TestGate::start(&toml);
    let Some(seen) = plays("changeServer", &gate, json!({})).await else {
        return;
    };
    assert_eq!(seen["secret"], "TOKEN=***");
    assert!(
        seen["refusal"]
            .as_str()
            .unwrap()
            .contains("max_agent_depth"),
        "{seen}"
    );
    assert_eq!(seen["wide"], 390, "the page fits on a phone");
    let imported = seen["imported"].as_str().unwrap();
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
async fn a_waiting_call_is_approved_with_edits_and_another_denied() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + "is_code_mode_client = true\n" + rule));
    gate.reaches("zoo", "healthy").await;
    let Some(seen) = plays("approve", &gate, json!({})).await else {
        return;
    };
    assert_eq!(seen["asked"], json!({"text": "please"}));
    let result = seen["result"].as_str().unwrap();
    assert!(result.contains("edited"), "{result}");
    assert!(result.contains("18446744073709551617"), "{result}");
    let records = gate.json("/api/audit?tool=add").await;
    assert_eq!(records["records"].as_array().unwrap().len(), 1, "not twice");
    let denied = gate.json("/api/approvals?state=denied").await;
    assert_eq!(denied["approvals"][0]["reason"], "not today");
}

#[tokio::test]
async fn keys_are_made_used_and_deleted() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + "is_code_mode_client = true\n"));
    gate.reaches("zoo", "healthy").await;
    let Some(seen) = plays("manageKeys", &gate, json!({})).await else {
        return;
    };
    assert!(seen["key"].as_str().unwrap().starts_with("tg-"), "{seen}");
    assert!(seen["why"].as_str().unwrap().contains("keys.ci"), "{seen}");
    let own = seen["own"].as_str().unwrap();
    assert!(
        own.contains("def echo(") && !own.contains("def add("),
        "{own}"
    );
    assert_eq!(seen["record"], json!({"fileName": "servers/zoo.pyi"}));
    assert_eq!(gate.json("/api/keys").await["keys"], json!([]));
}

#[tokio::test]
async fn runs_are_watched_and_cut_off() {
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = Model::strict(vec![
        Reply::calls([add("c1", 1)]),
        Reply::text("It is two."),
        Reply::calls([slow]),
    ]);
    let gate = agent::gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false);
    agent::ask(&gate, PATHS[0].1, &body).await;
    let body = body.to_string();
    let cut_off = async {
        let answer = gate.post(PATHS[0].1, &body, HeaderMap::new());
        answer.await.status()
    };
    let looks = async {
        gate.works_on_a_call().await;
        let given = json!({"model": "openai/m"});
        let seen = plays("watchRuns", &gate, given).await;
        if seen.is_none() {
            // Somebody has to, or the other waits for ever.
            let runs = gate.json("/api/runs?state=running").await;
            let id = runs["runs"][0]["id"].as_str().unwrap();
            gate.post(&format!("/api/runs/{id}/cancel"), "", HeaderMap::new())
                .await;
        }
        seen
    };
    let (status, seen) = tokio::join!(cut_off, looks);
    assert_eq!(status, 424);
    if let Some(seen) = seen {
        let steps = json!([
            "The model calls zoo_add",
            "zoo_add",
            "The model answers",
            "Ended: done (done)"
        ]);
        assert_eq!(seen["steps"], steps);
    }
}

#[tokio::test]
async fn what_servers_say_stays_text() {
    let script = env_file("browser/hostile.mjs");
    let program = [script.to_str().unwrap(), MARKUP];
    let hostile = server("hostile", node().to_str().unwrap(), &program);
    let gate = TestGate::start(&(hostile + "is_code_mode_client = true\n"));
    gate.reaches("hostile", "healthy").await;
    let Some(seen) = plays("readHostile", &gate, json!({"markup": MARKUP})).await else {
        return;
    };
    assert!(seen["result"].as_str().unwrap().contains("<img"), "{seen}");
    assert_eq!(seen["made"], json!([null, 0]));
}
