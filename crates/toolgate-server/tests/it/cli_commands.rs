//! Commands that operators use: on a terminal, for people, and piped, for programs.

use std::fs;

use reqwest::header::HeaderMap;
use serde_json::Value;
use toolgate_testkit::model::{Reply, ScriptedModel};
use toolgate_testkit::{eventually, zoo_path};

use crate::agent::{request, start_gate};
use crate::gate::{TestGate, WAIT_TIMEOUT, run, server, zoo};
use crate::terminal::{COLUMNS, Terminal, run_on_terminal};

const ASK: &str = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";

/// Runs a command against a gateway, and returns whether it succeeded, its output and its errors.
fn command(gate: &TestGate, args: &[&str]) -> (bool, String, String) {
    // `http://` may be left out.
    let url = gate.url.strip_prefix("http://").unwrap();
    let args = [args, &["--url", url]].concat();
    let (output, stdout, stderr) = run(gate.folder.path(), &args);
    (output.status.success(), stdout, stderr)
}

#[tokio::test]
async fn tables_are_for_people_on_terminals_and_for_programs_otherwise() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + ASK));
    gate.wait_for_state("zoo", "healthy").await;
    gate.call("zoo_echo", "{\"x\":1}").await;
    let (_, piped, _) = command(&gate, &["approvals", "list"]);
    let fields: Vec<&str> = piped.trim_end().split('\t').collect();
    let [
        id,
        "pending",
        "zoo_echo",
        "{\"x\":1}",
        "-",
        until,
        "permissions.rules[0]",
    ] = fields[..]
    else {
        panic!("{fields:?}");
    };
    assert_eq!(id.len(), 36);
    assert!(until.ends_with('Z'), "{until}");

    let args = ["approvals", "list", "--url", &gate.url];
    let (code, shown) = run_on_terminal(gate.folder.path(), &args).await;
    assert_eq!(code, Some(0), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].contains("ID") && lines[0].contains("ARGUMENTS"),
        "{shown}"
    );
    let short = &id[28..];
    assert!(lines[1].starts_with(short), "{shown}");
    assert!(lines[1].contains("\u{1b}[33mpending\u{1b}[0m"), "{shown}");
    // Nine hours ahead of UTC, without fractions of seconds.
    assert!(
        !lines[1].contains(&until[..19].replace('T', " ")),
        "{shown}"
    );
    assert!(!lines[1].contains('Z'), "{shown}");

    let (ok, decided, stderr) = command(&gate, &["approvals", "approve", short]);
    assert!(
        ok && decided.starts_with("approved zoo_echo"),
        "{decided}{stderr}"
    );
    let (ok, _, stderr) = command(&gate, &["approvals", "deny", "zzz"]);
    assert!(
        !ok && stderr.contains("no pending approval `zzz`"),
        "{stderr}"
    );

    let args = ["tools", "list", "--url", &gate.url];
    let (_, shown) = run_on_terminal(gate.folder.path(), &args).await;
    let visible = |line: &str| {
        let parts = line.split('\u{1b}');
        let text: String = parts
            .map(|part| part.split_once('m').map_or(part, |(_, text)| text))
            .collect();
        text.trim_end().chars().count()
    };
    let widths: Vec<usize> = shown.lines().skip(1).map(visible).collect();
    assert!(widths.iter().all(|width| *width <= COLUMNS), "{shown}");
}

#[tokio::test]
async fn unknown_values_are_errors_with_suggestions() {
    let toml = zoo("zoo", &[]) + &server("broken", "sh", &["-c", "exit 3"]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("broken", "unavailable").await;
    for (args, expected) in [
        (
            &["approvals", "list", "--state", "pendin"][..],
            "similar value exists: 'pending'",
        ),
        (
            &["runs", "list", "--state", "runing"],
            "similar value exists: 'running'",
        ),
        (&["audit", "--kind", "tol"], "similar value exists: 'tool'"),
        (
            &["audit", "--outcome", "timeot"],
            "similar value exists: 'timeout'",
        ),
        (
            &["audit", "--server", "zooo"],
            "no server `zooo`; did you mean `zoo`?",
        ),
        (
            &["audit", "--caller", "ci"],
            "no key `ci`; list all with `toolgate keys list`",
        ),
        (
            &["audit", "--since", "yesterday"],
            "not a time; use a duration such as `1h`",
        ),
        (
            &["tools", "list", "--server", "zo"],
            "no server `zo`; did you mean `zoo`?",
        ),
        (&["tools", "describe", "zoo_ad"], "did you mean `zoo_add`?"),
        (
            &["servers", "restart", "brokn"],
            "no server `brokn`; did you mean `broken`?",
        ),
        (
            &["keys", "create", "a", "--budget-per", "day"],
            "needs --budget",
        ),
    ] {
        let (ok, stdout, stderr) = command(&gate, args);
        assert!(
            !ok && stderr.contains(expected),
            "{args:?}: {stdout}{stderr}"
        );
    }
    let (ok, stdout, _) = command(&gate, &["tools", "call", "zoo_ad"]);
    assert!(!ok && stdout.contains("did you mean `zoo_add`"), "{stdout}");
    // Servers that have nothing to do with a command stay out of its output.
    for args in [
        &["tools", "call", "zoo_fail"][..],
        &["tools", "list", "--server", "zoo"],
        &["tools", "describe", "zoo_add"],
        &["audit"],
    ] {
        let (_, stdout, stderr) = command(&gate, args);
        assert!(!(stdout + &stderr).contains("broken"), "{args:?}: {stderr}");
    }
    let (_, _, stderr) = command(&gate, &["tools", "call", "broken_x"]);
    assert!(
        stderr.contains("server `broken` is unavailable"),
        "{stderr}"
    );
}

#[tokio::test]
async fn servers_are_added_restarted_and_removed() {
    let gate = TestGate::start("");
    let program = zoo_path().display().to_string();
    let add = [
        "servers",
        "add",
        "mine",
        "--env",
        "NAME=value",
        "--",
        &program,
        "stdio",
    ];
    // The URL comes first: everything after `--` belongs to the command.
    let args = [&["servers", "--url", &gate.url], &add[1..]].concat();
    let (output, stdout, stderr) = run(gate.folder.path(), &args);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("`mine` is healthy, 15 tools"), "{stdout}");
    let (ok, stdout, _) = command(&gate, &["servers", "restart", "mine"]);
    assert!(ok && stdout.contains("`mine` is healthy"), "{stdout}");
    let (ok, stdout, _) = command(&gate, &["servers", "list"]);
    assert!(ok && stdout.starts_with("mine\thealthy\t15\t"), "{stdout}");
    let failing = [
        "servers", "--url", &gate.url, "add", "bad", "--", "sh", "-c", "exit 3",
    ];
    let (output, _, stderr) = run(gate.folder.path(), &failing);
    assert!(
        !output.status.success() && stderr.contains("could not connect"),
        "{stderr}"
    );
    let (ok, _, stderr) = command(&gate, &["servers", "remove", "bad"]);
    assert!(
        !ok && stderr.contains("no server `bad`"),
        "nothing was stored: {stderr}"
    );
    let noisy = [
        "servers",
        "--url",
        &gate.url,
        "add",
        "noisy",
        "--no-verify",
        "--",
        "sh",
        "-c",
        "echo oh no >&2; exit 3",
    ];
    assert!(run(gate.folder.path(), &noisy).0.status.success());
    gate.wait_for_state("noisy", "unavailable").await;
    let (ok, stdout, _) = command(&gate, &["servers", "logs", "noisy"]);
    assert!(ok && stdout.contains("oh no"), "{stdout}");
    let (ok, _, _) = command(&gate, &["servers", "remove", "mine"]);
    assert!(ok);
    let (_, stdout, _) = command(&gate, &["servers", "list"]);
    assert!(!stdout.contains("mine"), "{stdout}");
}

#[tokio::test]
async fn keys_are_created_with_limits_and_relative_expiry() {
    let gate = TestGate::start("");
    let args = [
        "keys",
        "create",
        "ci",
        "--budget",
        "2.5",
        "--budget-calls",
        "7",
        "--budget-per",
        "day",
    ];
    let limits = [
        "--max-in-flight",
        "3",
        "--rate-limit",
        "60/min",
        "--expires",
        "30d",
    ];
    let (ok, key, stderr) = command(&gate, &[&args[..], &limits].concat());
    assert!(ok && key.starts_with("tg-"), "{stderr}");
    let entry = gate.json("/api/keys/ci").await;
    assert_eq!(
        entry["budget"],
        serde_json::json!({"calls": 7, "usd": 2.5, "per": "day"})
    );
    assert_eq!(
        (&entry["max_in_flight"], &entry["rate_limit"]),
        (&3.into(), &"60/minute".into())
    );
    assert!(
        entry["expires_at"].is_string() && entry["expired"] == false,
        "{entry}"
    );
    let (_, stdout, _) = command(&gate, &["keys", "list"]);
    assert!(
        stdout.contains("60/minute, 3 in flight, $2.5/day, 7 calls/day"),
        "{stdout}"
    );
}

#[tokio::test]
async fn runs_status_and_statistics_are_shown() {
    let model = ScriptedModel::start_strict(vec![Reply::calls([(
        "c1".to_owned(),
        "zoo_echo",
        serde_json::json!({"x": 1}),
    )])]);
    let gate = start_gate(&model, "[\"*\"]", ASK).await;
    let body = request("openai", "openai/m", false).to_string();
    let response = gate
        .post("/v1/chat/completions", &body, HeaderMap::new())
        .await;
    assert_eq!(response.status(), 200);
    let (_, stdout, _) = command(&gate, &["runs", "list"]);
    let fields: Vec<&str> = stdout.trim_end().split('\t').collect();
    assert_eq!(fields[2..4], ["waiting", "needs_approval"], "{stdout}");
    let id = fields[0];
    let (ok, shown, stderr) = command(&gate, &["runs", "show", &id[id.len() - 6..]]);
    assert!(ok, "{stderr}");
    assert!(
        shown.contains(id) && shown.contains("call_waits\tzoo_echo\twaits for approval"),
        "{shown}"
    );
    let (ok, _, stderr) = command(&gate, &["runs", "cancel", id]);
    assert!(
        !ok && stderr.contains("is waiting, not running"),
        "{stderr}"
    );
    let details = gate.json(&format!("/api/runs/{id}")).await;
    assert_eq!(details["approvals"][0]["state"], "pending");

    let (ok, stdout, stderr) = command(&gate, &["status"]);
    assert!(ok, "{stderr}");
    for line in [
        "servers\t1 healthy",
        "tools\t15",
        "approvals waiting\t1",
        "runs\t0",
        "load\tnormal",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    let (_, stats, _) = command(&gate, &["stats"]);
    assert!(stats.contains("openai/m\t1\t0\t"), "{stats}");
    let (_, rules, _) = command(&gate, &["rules"]);
    assert!(
        rules.starts_with("permissions.rules[0]\task\ttool zoo.echo"),
        "{rules}"
    );
    let (ok, _, stderr) = command(&gate, &["roles"]);
    assert!(ok && stderr.contains("no roles"), "{stderr}");
    let (ok, _, stderr) = command(&gate, &["results", "nothing"]);
    assert!(!ok && stderr.contains("no result is stored"), "{stderr}");
}

#[tokio::test]
async fn init_asks_three_questions_and_its_file_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut terminal = Terminal::open(path, "xterm", &["init"], &[]);
    terminal.wait_for("Folder whose files models may use").await;
    terminal.type_keys("\n").await;
    terminal.wait_for("Another MCP server").await;
    terminal.type_keys("npx -y @scope/server-github\n").await;
    terminal.wait_for("without asking").await;
    terminal.type_keys("everything\n").await;
    terminal.wait_for("is not one of").await;
    terminal.type_keys("read-only\n").await;
    let (code, shown) = terminal.finish().await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("toolgate serve"), "{shown}");
    let text = fs::read_to_string(path.join("toolgate.toml")).unwrap();
    for part in [
        "[mcp_servers.filesystem]",
        "server-github",
        "hint = \"read_only\"",
        "default = \"ask\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without `--config`, as users run it.
    let mut check = crate::gate::toolgate(path);
    let check = check
        .arg("check")
        .env_remove("TOOLGATE_CONFIG")
        .output()
        .unwrap();
    let stdout = String::from_utf8(check.stdout).unwrap();
    assert!(
        stdout.contains("is valid: 2 servers") && !stdout.contains("not trusted"),
        "{stdout}"
    );
    let (output, _, stderr) = run(path, &["init", "--yes"]);
    assert!(
        !output.status.success() && stderr.contains("exists already"),
        "{stderr}"
    );
    let (output, _, stderr) = run(path, &["init", "--force"]);
    assert!(
        !output.status.success() && stderr.contains("--yes"),
        "{stderr}"
    );
    let args = [
        "init",
        "--force",
        "--yes",
        "--folder",
        "none",
        "--server",
        "https://mcp.example.com/x",
        "--allow",
        "all",
    ];
    assert!(run(path, &args).0.status.success());
    let text = fs::read_to_string(path.join("toolgate.toml")).unwrap();
    assert!(
        text.contains("url = \"https://mcp.example.com/x\"") && !text.contains("permissions"),
        "{text}"
    );
}

#[tokio::test]
async fn first_contact_names_servers_and_ends_with_the_page() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("toolgate.toml"),
        zoo("zoo", &["--slow-start", "500"]),
    )
    .unwrap();
    let args = ["serve", "--port", "0", "--data-dir", "data"];
    let mut terminal = Terminal::open(folder.path(), "xterm", &args, &[]);
    let before = terminal.wait_for("listening on http://").await;
    let url = terminal.wait_for("\r\n").await;
    // The list waits for the server instead of reporting it.
    let list = ["tools", "list", "--url", &url];
    let (output, stdout, stderr) = run(folder.path(), &list);
    assert!(
        output.status.success() && stdout.contains("zoo_add"),
        "{stdout}{stderr}"
    );
    assert!(!stderr.contains("zoo"), "{stderr}");
    let log = before + &terminal.wait_for("open http://").await;
    let starting = log.find("starting server").expect(&log);
    let connected = log.find("server connected").expect(&log);
    assert!(starting < connected, "{log}");
    assert!(log.contains("toolgate-zoo stdio"), "{log}");
    terminal.type_keys("\u{3}").await;
    let (code, _) = terminal.finish().await;
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn switched_off_tools_start_no_server() {
    let marker = tempfile::tempdir().unwrap();
    let file = marker.path().join("started").display().to_string();
    let script = format!("echo x > {file}; exec cat");
    let gate = TestGate::start(
        &("[mcp]\nenabled = false\n".to_owned() + &server("sh", "sh", &["-c", &script])),
    );
    let entry = gate.wait_for_state("sh", "disabled").await;
    assert!(
        entry["reason"].as_str().unwrap().contains("mcp.enabled"),
        "{entry}"
    );
    assert!(!fs::exists(&file).unwrap());
}

#[tokio::test]
async fn reload_errors_name_the_place_and_misplaced_keys_their_table() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let broken = "\n[tool_manager_config]\nmax_agent_depth = 3\n";
    gate.edit(broken);
    let expected = "toolgate.toml:2:2: tool_manager_config: `tool_manager_config` is a key of `mcp`; move it there, as `mcp.tool_manager_config`";
    eventually("the problem is reported", WAIT_TIMEOUT, async || {
        let problems = gate.json("/api/problems").await;
        let problems = problems["problems"].as_array().cloned().unwrap();
        let text: Vec<String> = problems.iter().map(Value::to_string).collect();
        text.join("\n").contains(expected).then_some(())
    })
    .await;
    assert!(gate.log().contains(expected), "{}", gate.log());
}
