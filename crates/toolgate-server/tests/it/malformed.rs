//! Malformed definitions of a server do not hide the valid ones from any SDK, and those that can be
//! repaired can be used.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::eventually;

use crate::client_process;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp_sdk::{env_file, node};

/// The definitions of one kind.
#[derive(Deserialize)]
struct Definitions {
    valid: Vec<Box<RawValue>>,
    repaired: Vec<Box<RawValue>>,
    left_out: Vec<Box<RawValue>>,
}

/// Lists of the protocol, and the members that identify their items.
const LISTS: [(&str, &str); 4] = [
    ("tools", "name"),
    ("resources", "uri"),
    ("resourceTemplates", "uriTemplate"),
    ("prompts", "name"),
];

/// Servers of the eras that list the same definitions.
const SERVERS: [(&str, &str); 2] = [("odd", "legacy"), ("modern", "modern")];

fn definitions() -> BTreeMap<String, Definitions> {
    serde_json::from_str(include_str!("malformed.json")).unwrap()
}

/// Returns the number of definitions in each list that clients can use.
pub(crate) fn usable_definitions() -> BTreeMap<String, usize> {
    let counts = definitions().into_iter().map(|(list, definitions)| {
        let count = definitions.valid.len() + definitions.repaired.len();
        (list, count)
    });
    counts.collect()
}

fn key(definition: &RawValue, member: &str) -> String {
    let value: Value = serde_json::from_str(definition.get()).unwrap();
    value[member].as_str().unwrap().to_owned()
}

/// Writes the definitions to a file for the zoo: malformed ones before, between and after valid ones.
pub(crate) fn write_definitions(file: &Path) {
    let mut members = Vec::new();
    let mut results = serde_json::Map::new();
    for (list, member) in LISTS {
        let Definitions {
            valid,
            repaired,
            left_out,
        } = &definitions()[list];
        let all = left_out.iter().chain(valid).chain(repaired);
        let all: Vec<&str> = all.chain(left_out).map(|raw| raw.get()).collect();
        members.push(format!("{list:?}:[{}]", all.join(",")));
        for raw in valid.iter().chain(repaired) {
            let name = key(raw, member);
            let block = json!({"type": "text", "text": format!("result of {name}")});
            let result = match list {
                "tools" => json!({"content": [block], "structuredContent": {}}),
                _ => json!({"messages": [{"role": "user", "content": block}]}),
            };
            results.insert(name, result);
        }
    }
    let results = Value::Object(results);
    let text = format!("{{{},\"results\":{results}}}", members.join(","));
    std::fs::write(file, text).unwrap();
}

async fn start_gate() -> TestGate {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("definitions.json");
    write_definitions(&file);
    let servers = SERVERS.map(|(name, era)| {
        zoo(
            name,
            &["--tools-from", file.to_str().unwrap(), "--era", era],
        )
    });
    std::fs::write(folder.path().join("toolgate.toml"), servers.concat()).unwrap();
    let gate = TestGate::start_in(folder);
    for (name, _) in SERVERS {
        gate.wait_for_state(name, "healthy").await;
    }
    gate
}

/// Returns the keys that an endpoint must list, sorted.
fn expected_keys(list: &str, member: &str, path: &str) -> Vec<String> {
    let Definitions {
        valid, repaired, ..
    } = &definitions()[list];
    let keys = valid.iter().chain(repaired).map(|raw| key(raw, member));
    let keys: Vec<String> = keys.collect();
    let qualify = |server: &str, key: &str| match list {
        "tools" => format!("{server}_{key}"),
        "prompts" => format!("{server}.{key}"),
        _ => format!("toolgate://{server}/{key}"),
    };
    let mut expected: Vec<String> = if path == "/mcp" {
        let servers = SERVERS.iter();
        servers
            .flat_map(|(server, _)| keys.iter().map(|key| qualify(server, key)))
            .collect()
    } else {
        keys
    };
    expected.sort();
    expected
}

/// Lists and uses everything with a client, at the endpoint of all servers and of a single one.
async fn check_client(program: &Path, script: &str, kinds: &[&str]) {
    let gate = start_gate().await;
    let paths = ["/mcp", "/mcp/odd"];
    let urls = paths.map(|path| format!("{}{path}", gate.url));
    let mut mismatches = Vec::new();
    for kind in kinds {
        let mut client = Command::new(program);
        client
            .arg(env_file(script))
            .arg(kind)
            .args(&urls)
            .env_clear()
            .env("HOME", gate.folder.path())
            .env("PATH", env!("PATH"));
        let results = client_process::run_client(&mut client).await;
        let results = results.unwrap_or_else(|output| panic!("{kind}: {output}"));
        for (path, url) in paths.iter().zip(&urls) {
            let results = &results[url];
            for (list, member) in LISTS {
                // The error of the SDK names the definition by its position in the sorted list.
                let expected = json!(expected_keys(list, member, path));
                if results[list] != expected {
                    let listed = &results[list];
                    mismatches.push(format!(
                        "{kind}, {list} of {path}: {listed}, not {expected}"
                    ));
                }
            }
            if results["errors"] != json!({}) {
                mismatches.push(format!("{kind}, uses at {path}: {}", results["errors"]));
            }
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[tokio::test]
async fn python_sdk_v1_lists_and_uses_repaired_definitions() {
    let python = env_file("python/.venv1/bin/python");
    check_client(&python, "python/lists.py", &["v1"]).await;
}

#[tokio::test]
async fn python_sdk_v2_lists_and_uses_repaired_definitions() {
    let python = env_file("python/.venv/bin/python");
    check_client(&python, "python/lists.py", &["legacy", "2026-07-28"]).await;
}

#[tokio::test]
async fn typescript_sdk_v1_lists_and_uses_repaired_definitions() {
    check_client(&node(), "node/lists.mjs", &["v1"]).await;
}

#[tokio::test]
async fn typescript_sdk_v2_lists_and_uses_repaired_definitions() {
    let kinds = ["v2-legacy", "v2-2026-07-28"];
    check_client(&node(), "node/lists.mjs", &kinds).await;
}

#[tokio::test]
async fn administrators_see_what_was_repaired_and_left_out() {
    let gate = start_gate().await;
    let clients = gate.json("/api/mcp/clients").await;
    let mut clients = clients["clients"].as_array().unwrap().iter();
    let client = clients.find(|client| client["config"]["name"] == "odd");
    let problems = client.unwrap()["problems"].as_array().unwrap();
    let with_outcome = |outcome: &str| {
        let problems = problems.iter();
        let problems = problems.filter(|problem| problem["outcome"] == outcome);
        problems.collect::<Vec<_>>()
    };
    let repaired = with_outcome("repaired");
    let definitions = definitions();
    for (list, member) in LISTS {
        for raw in &definitions[list].repaired {
            let (item, sent) = (key(raw, member), compact(raw));
            let is_reported = |problem: &&&Value| {
                problem["item"] == item && problem["sent"] == sent && problem["reason"] != ""
            };
            assert!(
                repaired.iter().any(|problem| is_reported(&problem)),
                "{raw}"
            );
        }
    }
    let all = |part: fn(&Definitions) -> usize| definitions.values().map(part).sum::<usize>();
    assert_eq!(repaired.len(), all(|one| one.repaired.len()));
    // They are listed twice.
    let left_out = with_outcome("left_out");
    assert_eq!(left_out.len(), 2 * all(|one| one.left_out.len()));
    assert!(left_out.iter().all(|problem| problem["reason"] != ""));

    let everything = definitions["tools"].repaired.last().unwrap();
    let sent: Value = serde_json::from_str(everything.get()).unwrap();
    let tools = gate.json("/api/mcp/tools?server=odd&limit=1000").await;
    let tools = tools["tools"].as_array().unwrap();
    let find = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(find("everything")["sent"], sent);
    let schema = json!({"type": "object", "properties": {"a": {}}});
    assert_eq!(find("everything")["input_schema"], schema);
    assert_eq!(find("full").get("sent"), None);
    // Definitions are stored after they are in use.
    let version = eventually("the definition is stored", WAIT_TIMEOUT, async || {
        let list = gate.json("/api/mcp/tools/odd_everything/versions").await;
        list["versions"].get(0).cloned()
    })
    .await;
    assert_eq!(version["definition"], sent);
    assert_eq!(version["hash"], find("everything")["hash"]);
}

/// Removes the white space of JSON whose texts contain none that matters here.
fn compact(raw: &RawValue) -> String {
    raw.get().replace(": ", ":").replace(", ", ",")
}
