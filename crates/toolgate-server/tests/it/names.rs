//! Names in grants, rules and lists: what names nothing grants nothing, and is reported.

use std::fs;

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB};
use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};
use crate::mcp::{LegacySession, headers, names};

const UNRESTRICTED: &str = "key-without-any-restriction";
const ONLY_REMOVED: &str = "key-for-a-removed-server";

/// Asserts that a caller sees tools, resources, templates and prompts of the server `own`, and nothing
/// of `other`, at an MCP endpoint.
async fn assert_sees_only_own(gate: &TestGate, path: &str, key: &str) {
    let session = LegacySession::open(gate, path, Some(key)).await;
    for (method, list, name) in [
        ("tools/list", "tools", "name"),
        ("resources/list", "resources", "uri"),
        (
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
        ),
        ("prompts/list", "prompts", "name"),
    ] {
        let listed = names(&session.result(method, json!({})).await, list, name);
        assert!(listed.iter().any(|name| name.contains("own")), "{listed:?}");
        assert!(
            !listed.iter().any(|name| name.contains("other")),
            "{listed:?}"
        );
    }
    for (server, is_visible) in [("own", true), ("other", false)] {
        let uri = format!("toolgate://{server}/zoo://text");
        let prompt = json!({"name": format!("{server}.greet"), "arguments": {"who": "Ada"}});
        let tool = json!({"name": "ReadMcpResource", "arguments": {"uri": "zoo://text", "server": server}});
        for (method, params) in [
            ("resources/read", json!({"uri": uri})),
            ("prompts/get", prompt),
            ("tools/call", tool),
        ] {
            let (_, answer) = session.request(method, params).await;
            let result = answer.get("result");
            let is_read = result.is_some_and(|result| result["isError"] != true);
            assert_eq!(is_read, is_visible, "{method} {server}: {answer}");
        }
    }
}

#[tokio::test]
async fn grant_of_a_removed_server_opens_nothing_else() {
    let toml = zoo("gh", &[])
        + &zoo("own", &[])
        + &zoo("other", &[])
        + &format!(
            "[keys.alice]\nkey = \"{ALICE}\"\ntools = [\"gh.*\", \"own.add\"]\n\
             [keys.bob]\nkey = \"{BOB}\"\nroles = [\"dev\"]\n\
             [roles.dev]\ntools = [\"gh_add\", \"own.*\"]\n\
             [keys.all]\nkey = \"{UNRESTRICTED}\"\n\
             [keys.only]\nkey = \"{ONLY_REMOVED}\"\ntools = [\"gh.*\"]\n\
             [virtual_servers.mine]\ntools = [\"gh.echo\", \"own.echo\"]\n"
        );
    let gate = TestGate::start(&toml);
    for server in ["gh", "own", "other"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let admin = gate.caller();
    admin.delete("/api/mcp/client/gh").await.expect_status(200);
    for (path, key) in [
        ("/mcp", ALICE),
        ("/mcp", BOB),
        ("/mcp/v/mine", UNRESTRICTED),
    ] {
        assert_sees_only_own(&gate, path, key).await;
    }
    let session = LegacySession::open(&gate, "/mcp", Some(ONLY_REMOVED)).await;
    for (method, list) in [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        let listed = session.result(method, json!({})).await;
        assert_eq!(listed[list], json!([]), "{method}");
    }
    let other = json!({"uri": "toolgate://other/zoo://text"});
    let (_, answer) = session.request("resources/read", other).await;
    assert!(answer.get("error").is_some(), "{answer}");

    for (path, owner) in [
        ("/api/keys/alice", "keys.alice.tools"),
        ("/api/roles/dev", "roles.dev.tools"),
    ] {
        let entry = gate.json(path).await;
        let problem = entry["problems"][0].as_str().unwrap();
        assert!(
            problem.contains("does not name a configured server"),
            "{entry}"
        );
        let log = gate.log();
        assert!(log.contains(owner), "the problem is in the log: {log}");
    }
    let virtual_servers = gate.json("/api/virtual-servers").await;
    assert_ne!(virtual_servers["virtual_servers"][0]["problems"], json!([]));
}

#[tokio::test]
async fn unknown_names_are_errors_where_they_are_written() {
    let toml = zoo("zoo", &[]) + "[roles.dev]\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let admin = gate.caller();
    for (text, expected) in [
        ("search", "`search` does not name a configured server"),
        ("zo.add", "`zo.add` does not name a configured server"),
        ("ZOO.add", "`ZOO.add` does not name a configured server"),
        (
            "zoo.ad",
            "`zoo.ad` names a tool that server `zoo` does not have",
        ),
        ("*.ad", "`*.ad` names a tool that"),
    ] {
        let tools = json!([text]);
        let rule = json!({"rules": [{"tool": text, "action": "deny"}]});
        for answer in [
            admin
                .post("/api/keys", &json!({"name": "k", "tools": tools}))
                .await,
            admin.put("/api/roles/r", &json!({"tools": tools})).await,
            admin
                .put("/api/virtual-servers/v", &json!({"tools": tools}))
                .await,
            admin.put("/api/permissions", &rule).await,
        ] {
            let error = answer.expect_status(400);
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
    for (rule, expected) in [
        (
            json!({"resource": "zo:zoo://text"}),
            "no configured server matches `zo`",
        ),
        (
            json!({"prompt": "zo.greet"}),
            "no configured server matches `zo`",
        ),
        (
            json!({"prompt": "zoo.gret"}),
            "`zoo.gret` names a prompt that server `zoo` does not have",
        ),
    ] {
        for action in ["allow", "ask", "deny"] {
            let mut rule = rule.clone();
            rule["action"] = json!(action);
            let rules = json!({"rules": [rule]});
            let refused = admin.put("/api/permissions", &rules).await;
            let error = refused.expect_status(400);
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains(expected), "{rule}: {message}");
        }
    }
    let known = json!({"rules": [
        {"prompt": "zoo.Greet", "action": "deny"},
        {"prompt": "zoo.gr*", "action": "allow"},
        {"resource": "zoo:zoo://not-listed", "action": "deny"},
    ]});
    admin
        .put("/api/permissions", &known)
        .await
        .expect_status(200);
    let unknown_role = json!({"rules": [{"tool": "zoo.*", "roles": ["ops"], "action": "deny"}]});
    let refused = admin.put("/api/permissions", &unknown_role).await;
    refused.expect_status(400);
    for tools in [json!(["zoo.add", "zoo-ec*", "*.add", "*"]), json!([])] {
        let role = json!({"tools": tools});
        admin.put("/api/roles/r", &role).await.expect_status(200);
    }
}

#[test]
fn check_reports_unknown_names_as_errors() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[mcp_servers.fs]\ncommand = \"x\"\n\
        [mcp]\nblocked_tools = [\"db.*\"]\n\
        [security]\nmcp_server_allowlist = [\"fs\", \"sf\"]\nmcp_server_denylist = [\"untrusted\"]\n\
        [roles.dev]\ntools = [\"search\"]\n\
        [virtual_servers.v]\ntools = [\"gh.*\", \"fs.*\"]\n\
        [[permissions.rules]]\nserver = \"hr\"\naction = \"deny\"\n";
    fs::write(folder.path().join("t.toml"), toml).unwrap();
    let (output, stdout, _) = run(folder.path(), &["check", "--config", "t.toml"]);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    for expected in [
        "mcp.blocked_tools[0]: error: `db.*` does not name",
        "security.mcp_server_allowlist[1]: error: no server named `sf`",
        "security.mcp_server_denylist[0]: warning: no server named `untrusted`",
        "roles.dev.tools[0]: error: `search` does not name",
        "virtual_servers.v.tools[0]: error: `gh.*` does not name",
        "permissions.rules[0]: error: no configured server matches `hr`",
        "5 errors",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}

/// Restrictions of the server `hr`.
const RESTRICTIONS: [&str; 4] = [
    "[mcp]\nblocked_tools = [\"hr.*\"]\n",
    "[[permissions.rules]]\ntool = \"hr.echo\"\naction = \"ask\"\n",
    "[[permissions.rules]]\nresource = \"hr:zoo://text\"\naction = \"deny\"\n",
    "[[permissions.rules]]\nprompt = \"hr.greet\"\naction = \"manual\"\n",
];

/// A file cannot say that a server was renamed: one is gone, and another is new.
#[tokio::test]
async fn renamed_server_does_not_escape_its_restrictions() {
    for rules in RESTRICTIONS {
        let gate = TestGate::start(&(zoo("hr", &[]) + rules));
        gate.wait_for_state("hr", "healthy").await;
        gate.edit(&(zoo("people", &[]) + rules));
        eventually("the change is rejected", WAIT_TIMEOUT, async || {
            gate.log().contains("escape this restriction").then_some(())
        })
        .await;
        let clients: Value = gate.json("/api/mcp/clients").await;
        assert_eq!(clients["clients"][0]["config"]["name"], "hr", "{clients}");
        gate.edit(&(zoo("people", &[]) + &rules.replace("hr", "people")));
        gate.wait_for_state("people", "healthy").await;
    }
}

#[tokio::test]
async fn server_renamed_while_the_gateway_was_stopped_does_not_escape_its_restrictions() {
    let serve = ["serve", "--port", "0", "--data-dir", "data"];
    for rules in RESTRICTIONS {
        let mut gate = TestGate::start(&(zoo("hr", &[]) + rules));
        gate.wait_for_state("hr", "healthy").await;
        gate.signal("-TERM");
        assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
        gate.edit(&(zoo("people", &[]) + rules));
        let (output, _, stderr) = run(gate.folder.path(), &serve);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("escape this restriction"), "{stderr}");
        gate.edit(&(zoo("people", &[]) + &rules.replace("hr", "people")));
        gate.relaunch();
        gate.wait_for_state("people", "healthy").await;
        // A server that is only removed escapes nothing; the rule stays as a problem.
        gate.edit(&rules.replace("hr", "people"));
        gate.restart().await;
        let permissions = gate.json("/api/permissions").await;
        assert_ne!(permissions["problems"], json!([]), "{permissions}");
    }
}

#[tokio::test]
async fn another_environment_may_have_other_servers() {
    let overlay = |environment: &str, server: &str| {
        let table = format!("[environments.{environment}.mcp_servers.{server}]");
        zoo(server, &[]).replace(&format!("[mcp_servers.{server}]"), &table)
    };
    let rule = "[[permissions.rules]]\nserver = \"books\"\naction = \"ask\"\n";
    let toml = rule.to_owned() + &overlay("production", "books") + &overlay("staging", "scratch");
    let variable = "TOOLGATE_ENVIRONMENT";
    let mut gate = TestGate::start_with(&toml, &[], &[(variable, "production")]);
    gate.wait_for_state("books", "healthy").await;
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
    gate.relaunch_with(&[(variable, "staging")]);
    gate.wait_for_state("scratch", "healthy").await;
}

#[tokio::test]
async fn argument_rules_apply_to_every_spelling() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.echo\"\narguments = { path = \"/etc/*\" }\naction = \"deny\"\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + rule));
    gate.wait_for_state("zoo", "healthy").await;
    for arguments in [
        json!({"path": "/srv/x", "Path": "/etc/passwd"}),
        json!({"Path": "/etc/passwd"}),
        json!({"path": "/srv/x", "path\0": "/etc/passwd"}),
        json!({"path": "/proc/self/root/etc/passwd"}),
        json!({"path": "file:/etc/passwd"}),
        json!({"path": "file://localhost/etc/passwd"}),
        json!({"path": "FILE:///etc/passwd"}),
        json!({"other": {"disk": 1, "di\u{17f}\u{212a}": 2}}),
    ] {
        let message = gate.call("zoo_echo", &arguments.to_string()).await;
        assert_eq!(message["is_error"], true, "{arguments}: {message}");
    }
    for arguments in [json!({"path": "/srv/x"}), json!({"Path": "/srv/x"})] {
        let message = gate.call("zoo_echo", &arguments.to_string()).await;
        assert_eq!(message["is_error"], Value::Null, "{arguments}: {message}");
    }
}

#[tokio::test]
async fn filters_that_match_nothing_are_reported() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let filter = |text: &str| headers(&[("x-bf-mcp-include-tools", text)]);
    let call = r#"{"id": "c", "type": "function", "function": {"name": "zoo_add", "arguments": "{\"a\": 1, \"b\": 2}"}}"#;
    let list = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#;
    for (path, body) in [("/v1/mcp/tool/execute", call), ("/mcp", list)] {
        let response = gate.post(path, body, filter("ZOO-add")).await;
        let warning = response.headers()["x-toolgate-warning"].to_str().unwrap();
        assert_eq!(
            warning,
            "`ZOO-add` in `x-bf-mcp-include-tools` matches nothing; did you mean `zoo_add`?"
        );
        let response = gate.post(path, body, filter("zoo-add")).await;
        assert!(response.headers().get("x-toolgate-warning").is_none());
    }
    let explained = gate
        .json("/api/mcp/tools/explain?tool=zoo_add&include_tools=zoo.ad&exclude_clients=Zoo")
        .await;
    let expected = json!([
        {"header": "x-bf-mcp-exclude-clients", "name": "Zoo", "suggestion": "zoo"},
        {"header": "x-bf-mcp-include-tools", "name": "zoo.ad", "suggestion": "zoo_add"},
    ]);
    assert_eq!(explained["unmatched_filters"], expected, "{explained}");
}

/// `fs_x-read` could be the tool `x-read` of `fs`, or `read` of `fs_x`.
#[tokio::test]
async fn spelling_of_two_tools_calls_neither() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + &zoo("zoo_a", &[])));
    for server in ["zoo", "zoo_a"] {
        gate.wait_for_state(server, "healthy").await;
    }
    // Only one server has a tool of that name.
    for name in ["zoo_a-add", "zoo_a_add", "zoo_a.add"] {
        let sum = gate.call(name, "{\"a\": 1, \"b\": 2}").await;
        assert_eq!(sum["content"], "3", "{name}: {sum}");
    }
    let include = headers(&[("x-bf-mcp-include-tools", "zoo_a-add")]);
    let call = r#"{"id": "c", "type": "function", "function": {"name": "zoo_a_add", "arguments": "{\"a\": 1, \"b\": 2}"}}"#;
    let response = gate.post("/v1/mcp/tool/execute", call, include).await;
    assert_eq!(response.status(), 200);
    let message: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(message["content"], "3", "{message}");
}

#[tokio::test]
async fn tool_lists_without_effect_are_reported() {
    let lists = "tools_to_execute = [\"echo\", \"nope\"]\ntools_to_auto_execute = [\"echo\"]\n";
    let empty = "tools_to_execute = []\ntools_to_auto_execute = [\"*\"]\n";
    let toml = zoo("zoo", &[]) + lists + &zoo("none", &[]) + empty;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.toml"), &toml).unwrap();
    let (output, stdout, _) = run(folder.path(), &["check", "--config", "t.toml"]);
    assert!(output.status.success(), "{stdout}");
    let gate = TestGate::start(&toml);
    let of_zoo = gate.wait_for_state("zoo", "healthy").await["problems"].clone();
    let of_none = gate.wait_for_state("none", "healthy").await["problems"].clone();
    let log = gate.log();
    for (problems, name, reason) in [
        (
            of_zoo,
            "nope",
            "`tools_to_execute` names `nope`, a tool that the server does not have",
        ),
        (
            of_none,
            "tools_to_execute",
            "`tools_to_auto_execute` has no effect",
        ),
    ] {
        let problem = problems.as_array().unwrap().last().unwrap();
        assert_eq!(
            (&problem["kind"], &problem["item"]),
            (&json!("list"), &json!(name))
        );
        assert!(
            problem["reason"].as_str().unwrap().contains(reason),
            "{problem}"
        );
        assert!(stdout.contains(reason), "{reason}\nin\n{stdout}");
        assert!(log.contains(reason), "{reason}\nin\n{log}");
    }
    let bare = r#"{"mcp": {"client_configs": [{"name": "a", "connection_type": "stdio", "stdio_config": {"command": "x"}}]}}"#;
    fs::write(folder.path().join("t.json"), bare).unwrap();
    let (_, stdout, _) = run(folder.path(), &["check", "--config", "t.json"]);
    assert!(
        stdout.contains("`tools_to_execute` is absent or empty"),
        "{stdout}"
    );
}

#[test]
fn check_finds_what_serve_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "admin_key = \"env.NO_ADMIN_KEY\"\n\
        [audit]\nseal_key = \"env.NO_SEAL_KEY\"\n\
        [mcp_servers.a]\nurl = \"https://h/\"\ntls = { ca_cert_pem = \"/no/such/file.pem\" }\n\
        [mcp_servers.b]\nurl = \"https://h/\"\ntls = { ca_cert_pem = \"env.NO_CA\" }\n\
        [providers.openai]\napi_key = \"env.NO_PROVIDER_KEY\"\n";
    fs::write(folder.path().join("t.toml"), toml).unwrap();
    let (output, stdout, _) = run(folder.path(), &["check", "--config", "t.toml"]);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    for expected in [
        "admin_key: error:",
        "`NO_ADMIN_KEY` is not set",
        "audit.seal_key: error:",
        "server `a`: error: `ca_cert_pem` contains no PEM certificate",
        "server `b`: error: `ca_cert_pem`:",
        "provider `openai`: warning:",
        "4 errors",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}
