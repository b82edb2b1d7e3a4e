//! Tool visibility: filter headers, blocked tools, environments and `explain`.

use serde_json::{Value, json};

use crate::caller::{
    ALICE, Caller, EXCLUDE_CLIENTS, EXCLUDE_TOOLS, EXECUTE, INCLUDE_CLIENTS, INCLUDE_TOOLS,
    is_unknown_tool, text, tool_call,
};
use crate::gate::{TestGate, zoo};

async fn start_two_servers() -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + &zoo("ape", &[])));
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    gate
}

/// Returns which of three tools a caller can call.
async fn callable_tools(caller: &Caller<'_>) -> Vec<&'static str> {
    let mut found = Vec::new();
    for name in ["zoo_echo", "zoo_empty", "ape_echo"] {
        let message = caller.call(name, &json!({})).await;
        if !is_unknown_tool(&message) {
            assert_eq!(message["is_error"], Value::Null, "{message}");
            found.push(name);
        }
    }
    found
}

const ALL: [&str; 3] = ["zoo_echo", "zoo_empty", "ape_echo"];

#[tokio::test]
async fn include_tools_accepts_every_spelling() {
    let gate = start_two_servers().await;
    for (value, expected) in [
        ("zoo_echo", &["zoo_echo"][..]),
        ("zoo-echo", &["zoo_echo"]),
        ("mcp__zoo__echo", &["zoo_echo"]),
        ("zoo.echo", &["zoo_echo"]),
        ("  zoo.echo  ,\tape_echo ", &["zoo_echo", "ape_echo"]),
        (",zoo_echo,,", &["zoo_echo"]),
        ("zoo_e*", &["zoo_echo", "zoo_empty"]),
        ("zoo-ech?", &["zoo_echo"]),
        ("mcp__zoo__*", &["zoo_echo", "zoo_empty"]),
        ("zoo.*", &["zoo_echo", "zoo_empty"]),
        ("*.echo", &["zoo_echo", "ape_echo"]),
        ("*", &ALL),
        ("*_echo", &[]),
        ("z*", &[]),
        ("echo", &[]),
        ("ZOO_echo", &[]),
        ("", &[]),
        (",", &[]),
        (" , ,", &[]),
    ] {
        let caller = gate.caller().with_header(INCLUDE_TOOLS, value);
        assert_eq!(callable_tools(&caller).await, expected, "`{value}`");
    }
}

#[tokio::test]
async fn exclude_tools_accepts_every_spelling() {
    let gate = start_two_servers().await;
    for (value, expected) in [
        ("zoo_echo", &["zoo_empty", "ape_echo"][..]),
        ("zoo-echo", &["zoo_empty", "ape_echo"]),
        ("mcp__zoo__echo", &["zoo_empty", "ape_echo"]),
        ("zoo.e*", &["ape_echo"]),
        ("*.echo", &["zoo_empty"]),
        ("*", &[]),
        ("", &ALL),
        (",", &ALL),
        ("nothing_like_it", &ALL),
    ] {
        let caller = gate.caller().with_header(EXCLUDE_TOOLS, value);
        assert_eq!(callable_tools(&caller).await, expected, "`{value}`");
    }
}

#[tokio::test]
async fn servers_can_be_included_and_excluded() {
    let gate = start_two_servers().await;
    for (header, value, expected) in [
        (INCLUDE_CLIENTS, "zoo", &["zoo_echo", "zoo_empty"][..]),
        (INCLUDE_CLIENTS, "z*, a??", &ALL),
        (INCLUDE_CLIENTS, "*", &ALL),
        (INCLUDE_CLIENTS, "Zoo", &[]),
        (INCLUDE_CLIENTS, "", &[]),
        (INCLUDE_CLIENTS, ",", &[]),
        (EXCLUDE_CLIENTS, "zoo", &["ape_echo"]),
        (EXCLUDE_CLIENTS, "*", &[]),
        (EXCLUDE_CLIENTS, "", &ALL),
        (EXCLUDE_CLIENTS, ",", &ALL),
    ] {
        let caller = gate.caller().with_header(header, value);
        assert_eq!(
            callable_tools(&caller).await,
            expected,
            "{header}: `{value}`"
        );
    }
}

#[tokio::test]
async fn filters_combine_as_intersection() {
    let gate = start_two_servers().await;
    let caller = gate
        .caller()
        .with_header(INCLUDE_CLIENTS, "zoo,ape")
        .with_header(EXCLUDE_CLIENTS, "ape")
        .with_header(INCLUDE_TOOLS, "*.echo,zoo_empty")
        .with_header(EXCLUDE_TOOLS, "zoo-empty");
    assert_eq!(callable_tools(&caller).await, ["zoo_echo"]);
    let caller = gate
        .caller()
        .with_header(INCLUDE_CLIENTS, "ape")
        .with_header(INCLUDE_TOOLS, "zoo_echo");
    assert!(callable_tools(&caller).await.is_empty());
}

#[tokio::test]
async fn repeated_headers_form_one_list() {
    let gate = start_two_servers().await;
    let caller = gate
        .caller()
        .with_header(INCLUDE_TOOLS, "zoo_echo")
        .with_header(INCLUDE_TOOLS, "")
        .with_header(INCLUDE_TOOLS, "ape_echo");
    assert_eq!(callable_tools(&caller).await, ["zoo_echo", "ape_echo"]);
    let caller = gate
        .caller()
        .with_header(EXCLUDE_TOOLS, "zoo_echo")
        .with_header(EXCLUDE_TOOLS, "ape_echo");
    assert_eq!(callable_tools(&caller).await, ["zoo_empty"]);
}

#[tokio::test]
async fn invalid_filters_are_rejected() {
    let gate = start_two_servers().await;
    for header in [
        INCLUDE_CLIENTS,
        EXCLUDE_CLIENTS,
        INCLUDE_TOOLS,
        EXCLUDE_TOOLS,
    ] {
        let foreign = gate.caller().with_header_bytes(header, b"zoo_ech\xff");
        assert_eq!(foreign.call_status().await, 400, "{header}");
        let long = gate.caller().with_header(header, &"zoo_echo,".repeat(4000));
        assert_eq!(long.call_status().await, 400, "{header}");
        let half = "zoo_echo,".repeat(1500);
        let split = gate
            .caller()
            .with_header(header, &half)
            .with_header(header, &half);
        assert_eq!(split.call_status().await, 400, "{header}");
    }
}

#[tokio::test]
async fn ambiguous_include_allows_nothing() {
    let toml = zoo("zoo", &[]) + &zoo("zoo_a", &[]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("zoo_a", "healthy").await;
    let both = gate.caller().with_header(INCLUDE_TOOLS, "zoo_a_dd");
    let answer = both.execute("zoo_add", &json!({"a": 1, "b": 2})).await;
    assert!(
        answer.status == 400 || answer.body["is_error"] == true,
        "{answer:?}"
    );
    for clear in ["zoo_a.add", "zoo_a_add", "mcp__zoo_a__add"] {
        let caller = gate.caller().with_header(INCLUDE_TOOLS, clear);
        let sum = caller.call("zoo_a_add", &json!({"a": 1, "b": 2})).await;
        assert_eq!(text(&sum), "3", "{clear}");
        let message = caller.call("zoo_add", &json!({"a": 1, "b": 2})).await;
        assert!(is_unknown_tool(&message), "{clear}: {message}");
    }
    let glob = gate.caller().with_header(INCLUDE_TOOLS, "zoo_a*");
    let message = glob.call("zoo_echo", &json!({})).await;
    assert!(is_unknown_tool(&message), "{message}");
}

#[tokio::test]
async fn batched_calls_are_filtered() {
    let gate = start_two_servers().await;
    let calls = json!([
        tool_call("zoo_echo", &json!({})),
        tool_call("ape_echo", &json!({}))
    ]);
    let caller = gate.caller().with_header(EXCLUDE_CLIENTS, "ape");
    let answers = caller.post(EXECUTE, &calls).await.expect_status(200);
    assert_eq!(text(&answers[0]), "{}");
    assert!(is_unknown_tool(&answers[1]), "{answers}");
}

#[tokio::test]
async fn blocked_tools_are_hidden_from_everyone() {
    let toml = "[mcp]\nblocked_tools = [\"zoo_ec*\", \"*.add\"]\n".to_owned()
        + &zoo("zoo", &[])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &zoo("ape", &[])
        + "[[permissions.rules]]\ntool = \"*\"\naction = \"allow\"\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    assert_eq!(
        callable_tools(&gate.caller()).await,
        ["zoo_empty", "ape_echo"]
    );
    for name in ["zoo_add", "ape-add", "mcp__ape__add", "zoo.echo"] {
        let message = gate.caller().call(name, &json!({"a": 1, "b": 2})).await;
        assert!(is_unknown_tool(&message), "{name}: {message}");
    }
    let tools = gate.json("/api/mcp/tools?search=add").await;
    assert_eq!(tools["tools"], json!([]));
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["hidden_by"], "mcp.blocked_tools");
}

#[tokio::test]
async fn disabled_mcp_hides_all_tools() {
    let gate = TestGate::start(&("[mcp]\nenabled = false\n".to_owned() + &zoo("zoo", &[])));
    let message = gate.caller().call("zoo_echo", &json!({})).await;
    assert!(is_unknown_tool(&message), "{message}");
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["visible"], false, "{explained}");
    let step = step(&explained, "mcp.enabled");
    assert_eq!(step["passes"], false, "{explained}");
}

fn environments_config() -> String {
    "environment = \"staging\"\n".to_owned()
        + &zoo("zoo", &[])
        + "[[permissions.rules]]\ntool = \"zoo_kinds\"\nenvironment = \"production\"\naction = \"deny\"\n"
        + "[environments.production.mcp]\nblocked_tools = [\"zoo_echo\"]\n"
        + "[[environments.production.permissions.rules]]\ntool = \"zoo_empty\"\naction = \"deny\"\n"
        + "[environments.staging.mcp]\nblocked_tools = [\"zoo_add\"]\n"
}

async fn visible_tools(gate: &TestGate) -> Vec<&'static str> {
    gate.wait_for_state("zoo", "healthy").await;
    let mut found = Vec::new();
    for tool in ["echo", "empty", "add", "kinds"] {
        let path = format!("/api/mcp/tools/explain?tool=zoo.{tool}");
        let explained = gate.json(&path).await;
        let message = gate.caller().call(&format!("zoo_{tool}"), &json!({})).await;
        assert_eq!(
            explained["visible"] == true,
            !is_unknown_tool(&message),
            "{tool}"
        );
        if explained["visible"] == true {
            found.push(tool);
        }
    }
    found
}

#[tokio::test]
async fn environment_precedence_is_flag_variable_file() {
    let toml = environments_config();
    let gate = TestGate::start(&toml);
    assert_eq!(visible_tools(&gate).await, ["echo", "empty", "kinds"]);
    let variable = [("TOOLGATE_ENVIRONMENT", "production")];
    let gate = TestGate::start_with(&toml, &[], &variable);
    assert_eq!(
        visible_tools(&gate).await,
        ["add"],
        "the variable beats the file"
    );
    let gate = TestGate::start_with(&toml, &["--environment", "staging"], &variable);
    assert_eq!(
        visible_tools(&gate).await,
        ["echo", "empty", "kinds"],
        "the flag beats the variable"
    );
}

#[tokio::test]
async fn environment_changes_with_the_file() {
    let toml = environments_config();
    let gate = TestGate::start(&toml);
    assert_eq!(visible_tools(&gate).await, ["echo", "empty", "kinds"]);
    gate.edit(&toml.replace("\"staging\"", "\"production\""));
    toolgate_testkit::eventually(
        "production is in effect",
        crate::gate::WAIT_TIMEOUT,
        async || {
            let message = gate.caller().call("zoo_echo", &json!({})).await;
            is_unknown_tool(&message).then_some(())
        },
    )
    .await;
    assert_eq!(visible_tools(&gate).await, ["add"]);
}

fn step<'a>(explained: &'a Value, key: &str) -> &'a Value {
    let steps = explained["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["key"] == key);
    found.unwrap_or_else(|| panic!("no step `{key}`: {explained}"))
}

fn rules_config() -> String {
    zoo("zoo", &[])
        + "tools_to_execute = [\"echo\", \"empty\", \"add\", \"kinds\", \"fail\", \"say\"]\n"
        + "tools_to_auto_execute = [\"add\"]\n"
        + &zoo("ape", &[])
        + "[[permissions.rules]]\ntool = \"zoo_kinds\"\naction = \"deny\"\n"
        + "[[permissions.rules]]\ntool = \"zoo_empty\"\naction = \"ask\"\n"
        + "[[permissions.rules]]\ntool = \"zoo_fail\"\nroles = [\"intern\"]\naction = \"deny\"\n"
        + "[roles.intern]\ntools = [\"zoo.*\"]\n"
        + &format!(
            "[keys.alice]\nkey = \"{ALICE}\"\nroles = [\"intern\"]\ntools = [\"*.e*\", \"zoo_add\", \"zoo_fail\", \"zoo.kinds\"]\n"
        )
}

#[tokio::test]
async fn explain_names_the_hiding_step() {
    let gate = TestGate::start(&rules_config());
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    for (query, hidden_by, verdict) in [
        ("tool=zoo_add", None, Some("allow")),
        ("tool=mcp__zoo__echo", None, Some("manual")),
        ("tool=zoo-empty", None, Some("ask")),
        ("tool=zoo.fail", None, Some("manual")),
        ("tool=zoo.sleep", Some("tools_to_execute"), None),
        ("tool=zoo.kinds", Some("permissions.rules[0]"), None),
        ("tool=zoo.add&key=alice", None, Some("allow")),
        (
            "tool=zoo.fail&key=alice",
            Some("permissions.rules[2]"),
            None,
        ),
        ("tool=zoo.say&key=alice", Some("keys.alice.tools"), None),
        ("tool=ape.echo&key=alice", Some("roles.intern.tools"), None),
        ("tool=zoo.add&include_tools=", Some(INCLUDE_TOOLS), None),
        ("tool=zoo.add&include_tools=,", Some(INCLUDE_TOOLS), None),
        (
            "tool=zoo.add&exclude_tools=zoo-*",
            Some(EXCLUDE_TOOLS),
            None,
        ),
        (
            "tool=zoo.add&include_clients=ape",
            Some(INCLUDE_CLIENTS),
            None,
        ),
        (
            "tool=zoo.add&exclude_clients=zoo",
            Some(EXCLUDE_CLIENTS),
            None,
        ),
    ] {
        let explained = gate.json(&format!("/api/mcp/tools/explain?{query}")).await;
        assert_eq!(
            explained["hidden_by"].as_str(),
            hidden_by,
            "{query}: {explained}"
        );
        assert_eq!(
            explained["verdict"].as_str(),
            verdict,
            "{query}: {explained}"
        );
        assert_eq!(explained["visible"], hidden_by.is_none(), "{query}");
        if let Some(key) = hidden_by {
            assert_eq!(step(&explained, key)["passes"], false);
        }
    }
}

#[tokio::test]
async fn explain_agrees_with_calls() {
    let gate = TestGate::start(&rules_config());
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    let filters = [
        (INCLUDE_TOOLS, "include_tools", "*.e*"),
        (EXCLUDE_TOOLS, "exclude_tools", "zoo_echo"),
        (INCLUDE_CLIENTS, "include_clients", ","),
        (EXCLUDE_CLIENTS, "exclude_clients", "ap?"),
    ];
    for (header, parameter, value) in filters {
        for tool in [
            "zoo_echo",
            "zoo_empty",
            "zoo_kinds",
            "zoo_fail",
            "ape_echo",
            "ape_say",
        ] {
            let caller = gate.with_key(ALICE).with_header(header, value);
            let message = caller.call(tool, &json!({"text": "x"})).await;
            let query = format!("tool={tool}&key=alice&{parameter}={value}");
            let explained = gate.json(&format!("/api/mcp/tools/explain?{query}")).await;
            assert_eq!(
                explained["visible"] == true,
                !is_unknown_tool(&message),
                "{query}: {explained} {message}"
            );
            assert_eq!(
                explained["verdict"] == "ask",
                message.get("approval").is_some(),
                "{query}"
            );
            let with_header = gate.caller().with_header(header, value);
            let sent = with_header
                .get(&format!("/api/mcp/tools/explain?tool={tool}&key=alice"))
                .await;
            assert_eq!(
                sent.expect_status(200),
                explained,
                "filter headers apply to explain too"
            );
        }
    }
}

#[tokio::test]
async fn explain_summarizes_a_server() {
    let toml = rules_config()
        + &zoo("gone", &[])
        + "enabled = false\n"
        + "[security]\nmcp_server_denylist = [\"ape\"]\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let explain = async |query: &str| gate.json(&format!("/api/mcp/tools/explain?{query}")).await;
    let zoo = explain("server=zoo").await;
    assert_eq!(
        (zoo["offered"].as_u64(), zoo["visible"].as_u64()),
        (Some(15), Some(5)),
        "{zoo}"
    );
    assert_eq!(
        zoo["hidden_by"],
        json!({"permissions.rules[0]": 1, "tools_to_execute": 9})
    );
    let none = explain("server=zoo&include_clients=").await;
    assert_eq!(none["visible"], 0, "{none}");
    let key = explain("server=zoo&key=alice").await;
    assert_eq!(key["visible"], 3, "{key}");
    for (server, because) in [("gone", "disabled"), ("ape", "mcp_server_denylist")] {
        let explained = explain(&format!("server={server}")).await;
        assert_eq!(explained["visible"], 0);
        assert!(
            explained.to_string().contains(because),
            "the reason is given: {explained}"
        );
    }
}

#[tokio::test]
async fn explain_handles_unknown_subjects() {
    let gate = TestGate::start(&rules_config());
    gate.wait_for_state("zoo", "healthy").await;
    for (query, status) in [
        ("", 400),
        ("tool=zoo.add&key=nobody", 404),
        ("server=nothing", 404),
    ] {
        let answer = gate
            .caller()
            .get(&format!("/api/mcp/tools/explain?{query}"))
            .await;
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
    }
    for tool in ["zoo.nothing", "other_tool"] {
        let explained = gate
            .json(&format!("/api/mcp/tools/explain?tool={tool}"))
            .await;
        assert_eq!(
            (&explained["visible"], &explained["alias"]),
            (&json!(false), &Value::Null)
        );
        assert!(
            !explained["steps"].as_array().unwrap().is_empty(),
            "{explained}"
        );
    }
}

#[tokio::test]
async fn environment_overrides_keys_servers_and_lists() {
    let toml = zoo("zoo", &[])
        + &zoo("ape", &[])
        + "[environments.production.mcp_servers.ape]\ncommand = \"nothing\"\nenabled = false\n"
        + &format!("[environments.production.keys.alice]\nkey = \"{ALICE}\"\n")
        + "[environments.production.security]\nmcp_server_denylist = [\"zoo\"]\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    assert_eq!(callable_tools(&gate.caller()).await, ALL);
    let gate = TestGate::start_with(&toml, &["--environment", "production"], &[]);
    assert_eq!(gate.caller().call_status().await, 401);
    assert!(callable_tools(&gate.with_key(ALICE)).await.is_empty());
    for server in ["zoo", "ape"] {
        let explained = gate
            .json(&format!("/api/mcp/tools/explain?tool={server}_echo"))
            .await;
        assert_eq!(explained["visible"], false, "{explained}");
    }
}
