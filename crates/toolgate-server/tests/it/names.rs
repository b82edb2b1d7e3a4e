//! Names in grants, rules and lists: what names nothing grants nothing, and is reported.

use std::fs;

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB};
use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};
use crate::mcp::LegacySession;

/// Counts the tools, resources, templates and prompts that a key sees at an MCP endpoint, and checks
/// that resources and prompts can be used only if they are listed.
async fn count_visible(gate: &TestGate, path: &str, key: &str) -> [usize; 4] {
    let session = LegacySession::open(gate, path, Some(key)).await;
    let mut counts = [0; 4];
    for (count, (method, list)) in counts.iter_mut().zip([
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ]) {
        let result = session.result(method, json!({})).await;
        *count = result[list].as_array().unwrap().len();
    }
    let uri = json!({"uri": "toolgate://other/zoo://text"});
    let prompt = json!({"name": "other.greet", "arguments": {"who": "Ada"}});
    for (method, params, is_listed) in [
        ("resources/read", uri, counts[1] > 0),
        ("prompts/get", prompt, counts[3] > 0),
    ] {
        let (_, answer) = session.request(method, params).await;
        assert_eq!(
            answer.get("result").is_some(),
            is_listed,
            "{method}: {answer}"
        );
    }
    counts
}

#[tokio::test]
async fn grant_of_a_removed_server_opens_nothing_else() {
    let toml = zoo("gh", &[])
        + &zoo("other", &[])
        + &format!(
            "[keys.alice]\nkey = \"{ALICE}\"\ntools = [\"gh.*\"]\n\
             [keys.bob]\nkey = \"{BOB}\"\nroles = [\"dev\"]\n\
             [roles.dev]\ntools = [\"gh_add\"]\n\
             [keys.all]\nkey = \"key-without-any-restriction\"\n\
             [virtual_servers.mine]\ntools = [\"gh.echo\"]\n"
        );
    let gate = TestGate::start(&toml);
    for server in ["gh", "other"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let callers = [
        ("/mcp", ALICE),
        ("/mcp", BOB),
        ("/mcp/v/mine", "key-without-any-restriction"),
    ];
    let sees_other = count_visible(&gate, "/mcp", "key-without-any-restriction").await;
    assert!(sees_other.iter().all(|count| *count > 0), "{sees_other:?}");

    let admin = gate.caller();
    admin.delete("/api/mcp/client/gh").await.expect_status(200);
    for (path, key) in callers {
        assert_eq!(
            count_visible(&gate, path, key).await,
            [0; 4],
            "{path} {key}"
        );
    }
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
        ("*.ad", "`*.ad` names a tool that no server has"),
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
        "security.mcp_server_allowlist[1]: error: no server named `sf`; did you mean `fs`?",
        "security.mcp_server_denylist[0]: warning: no server named `untrusted`",
        "roles.dev.tools[0]: error: `search` does not name",
        "virtual_servers.v.tools[0]: error: `gh.*` does not name",
        "permissions.rules[0]: error: no configured server matches `hr`",
        "5 errors",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}

/// A file cannot say that a server was renamed: one is gone, and another is new.
#[tokio::test]
async fn renamed_server_does_not_escape_its_restrictions() {
    let rules = "[mcp]\nblocked_tools = [\"hr.*\"]\n";
    let gate = TestGate::start(&(zoo("hr", &[]) + rules));
    gate.wait_for_state("hr", "healthy").await;
    gate.edit(&(zoo("people", &[]) + rules));
    eventually("the change is rejected", WAIT_TIMEOUT, async || {
        gate.log().contains("escape this restriction").then_some(())
    })
    .await;
    let clients: Value = gate.json("/api/mcp/clients").await;
    assert_eq!(clients["clients"][0]["config"]["name"], "hr", "{clients}");
    gate.edit(&(zoo("people", &[]) + "[mcp]\nblocked_tools = [\"people.*\"]\n"));
    gate.wait_for_state("people", "healthy").await;
}
