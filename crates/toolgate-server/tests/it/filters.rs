//! What exists for a request: filters in headers, blocked tools, environments, and their
//! explanation.

use serde_json::{Value, json};

use crate::caller::{
    ALICE, Caller, EXCLUDE_CLIENTS, EXCLUDE_TOOLS, EXECUTE, INCLUDE_CLIENTS, INCLUDE_TOOLS,
    is_unknown, text, tool_call,
};
use crate::gate::{TestGate, zoo};

async fn two() -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + &zoo("ape", &[])));
    gate.reaches("zoo", "healthy").await;
    gate.reaches("ape", "healthy").await;
    gate
}

/// Which of three tools a caller can call.
async fn callable(caller: &Caller<'_>) -> Vec<&'static str> {
    let mut found = Vec::new();
    for name in ["zoo_echo", "zoo_empty", "ape_echo"] {
        let message = caller.call(name, &json!({})).await;
        if !is_unknown(&message) {
            assert_eq!(message["is_error"], Value::Null, "{message}");
            found.push(name);
        }
    }
    found
}

const ALL: [&str; 3] = ["zoo_echo", "zoo_empty", "ape_echo"];

#[tokio::test]
async fn include_tools_in_every_spelling() {
    let gate = two().await;
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
        let caller = gate.caller().with(INCLUDE_TOOLS, value);
        assert_eq!(callable(&caller).await, expected, "`{value}`");
    }
}

#[tokio::test]
async fn exclude_tools_in_every_spelling() {
    let gate = two().await;
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
        let caller = gate.caller().with(EXCLUDE_TOOLS, value);
        assert_eq!(callable(&caller).await, expected, "`{value}`");
    }
}

#[tokio::test]
async fn clients_are_included_and_excluded() {
    let gate = two().await;
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
        let caller = gate.caller().with(header, value);
        assert_eq!(callable(&caller).await, expected, "{header}: `{value}`");
    }
}

#[tokio::test]
async fn filters_together_are_an_intersection() {
    let gate = two().await;
    let caller = gate
        .caller()
        .with(INCLUDE_CLIENTS, "zoo,ape")
        .with(EXCLUDE_CLIENTS, "ape")
        .with(INCLUDE_TOOLS, "*.echo,zoo_empty")
        .with(EXCLUDE_TOOLS, "zoo-empty");
    assert_eq!(callable(&caller).await, ["zoo_echo"]);
    let caller = gate
        .caller()
        .with(INCLUDE_CLIENTS, "ape")
        .with(INCLUDE_TOOLS, "zoo_echo");
    assert!(callable(&caller).await.is_empty());
}

#[tokio::test]
async fn a_header_sent_several_times_is_one_list() {
    let gate = two().await;
    let caller = gate
        .caller()
        .with(INCLUDE_TOOLS, "zoo_echo")
        .with(INCLUDE_TOOLS, "")
        .with(INCLUDE_TOOLS, "ape_echo");
    assert_eq!(callable(&caller).await, ["zoo_echo", "ape_echo"]);
    let caller = gate
        .caller()
        .with(EXCLUDE_TOOLS, "zoo_echo")
        .with(EXCLUDE_TOOLS, "ape_echo");
    assert_eq!(callable(&caller).await, ["zoo_empty"]);
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_refused() {
    let gate = two().await;
    for header in [
        INCLUDE_CLIENTS,
        EXCLUDE_CLIENTS,
        INCLUDE_TOOLS,
        EXCLUDE_TOOLS,
    ] {
        let foreign = gate.caller().with_bytes(header, b"zoo_ech\xff");
        assert_eq!(foreign.knock().await, 400, "{header}");
        let long = gate.caller().with(header, &"zoo_echo,".repeat(4000));
        assert_eq!(long.knock().await, 400, "{header}");
        let half = "zoo_echo,".repeat(1500);
        let split = gate.caller().with(header, &half).with(header, &half);
        assert_eq!(split.knock().await, 400, "{header}");
    }
}

#[tokio::test]
async fn an_include_that_fits_two_servers_opens_nothing() {
    let toml = zoo("zoo", &[]) + &zoo("zoo_a", &[]);
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    gate.reaches("zoo_a", "healthy").await;
    let both = gate.caller().with(INCLUDE_TOOLS, "zoo_a_dd");
    let answer = both.execute("zoo_add", &json!({"a": 1, "b": 2})).await;
    assert!(
        answer.status == 400 || answer.body["is_error"] == true,
        "{answer:?}"
    );
    for clear in ["zoo_a.add", "zoo_a_add", "mcp__zoo_a__add"] {
        let caller = gate.caller().with(INCLUDE_TOOLS, clear);
        let sum = caller.call("zoo_a_add", &json!({"a": 1, "b": 2})).await;
        assert_eq!(text(&sum), "3", "{clear}");
        let message = caller.call("zoo_add", &json!({"a": 1, "b": 2})).await;
        assert!(is_unknown(&message), "{clear}: {message}");
    }
    let glob = gate.caller().with(INCLUDE_TOOLS, "zoo_a*");
    let message = glob.call("zoo_echo", &json!({})).await;
    assert!(is_unknown(&message), "{message}");
}

#[tokio::test]
async fn an_array_of_calls_is_filtered_too() {
    let gate = two().await;
    let calls = json!([
        tool_call("zoo_echo", &json!({})),
        tool_call("ape_echo", &json!({}))
    ]);
    let caller = gate.caller().with(EXCLUDE_CLIENTS, "ape");
    let answers = caller.post(EXECUTE, &calls).await.expect(200);
    assert_eq!(text(&answers[0]), "{}");
    assert!(is_unknown(&answers[1]), "{answers}");
}

#[tokio::test]
async fn blocked_tools_are_gone_for_everyone() {
    let toml = "[mcp]\nblocked_tools = [\"zoo_ec*\", \"*.add\"]\n".to_owned()
        + &zoo("zoo", &[])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &zoo("ape", &[])
        + "[[permissions.rules]]\ntool = \"*\"\naction = \"allow\"\n";
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    gate.reaches("ape", "healthy").await;
    assert_eq!(callable(&gate.caller()).await, ["zoo_empty", "ape_echo"]);
    for name in ["zoo_add", "ape-add", "mcp__ape__add", "zoo.echo"] {
        let message = gate.caller().call(name, &json!({"a": 1, "b": 2})).await;
        assert!(is_unknown(&message), "{name}: {message}");
    }
    let tools = gate.json("/api/mcp/tools?search=add").await;
    assert_eq!(tools["tools"], json!([]));
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["hidden_by"], "mcp.blocked_tools");
}

#[tokio::test]
async fn tools_are_off_for_everyone() {
    let gate = TestGate::start(&("[mcp]\nenabled = false\n".to_owned() + &zoo("zoo", &[])));
    let message = gate.caller().call("zoo_echo", &json!({})).await;
    assert!(is_unknown(&message), "{message}");
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["visible"], false, "{explained}");
    let step = step(&explained, "mcp.enabled");
    assert_eq!(step["passes"], false, "{explained}");
}

fn production() -> String {
    "environment = \"staging\"\n".to_owned()
        + &zoo("zoo", &[])
        + "[[permissions.rules]]\ntool = \"zoo_kinds\"\nenvironment = \"production\"\naction = \"deny\"\n"
        + "[environments.production.mcp]\nblocked_tools = [\"zoo_echo\"]\n"
        + "[[environments.production.permissions.rules]]\ntool = \"zoo_empty\"\naction = \"deny\"\n"
        + "[environments.staging.mcp]\nblocked_tools = [\"zoo_add\"]\n"
}

async fn visible(gate: &TestGate) -> Vec<&'static str> {
    gate.reaches("zoo", "healthy").await;
    let mut found = Vec::new();
    for tool in ["echo", "empty", "add", "kinds"] {
        let path = format!("/api/mcp/tools/explain?tool=zoo.{tool}");
        let explained = gate.json(&path).await;
        let message = gate.caller().call(&format!("zoo_{tool}"), &json!({})).await;
        assert_eq!(
            explained["visible"] == true,
            !is_unknown(&message),
            "{tool}"
        );
        if explained["visible"] == true {
            found.push(tool);
        }
    }
    found
}

#[tokio::test]
async fn an_environment_from_file_variable_and_flag() {
    let toml = production();
    let gate = TestGate::start(&toml);
    assert_eq!(visible(&gate).await, ["echo", "empty", "kinds"]);
    let variable = [("TOOLGATE_ENVIRONMENT", "production")];
    let gate = TestGate::start_with(&toml, &[], &variable);
    assert_eq!(visible(&gate).await, ["add"], "the variable beats the file");
    let gate = TestGate::start_with(&toml, &["--environment", "staging"], &variable);
    assert_eq!(
        visible(&gate).await,
        ["echo", "empty", "kinds"],
        "the flag beats the variable"
    );
}

#[tokio::test]
async fn an_environment_changes_with_the_file() {
    let toml = production();
    let gate = TestGate::start(&toml);
    assert_eq!(visible(&gate).await, ["echo", "empty", "kinds"]);
    gate.edit(&toml.replace("\"staging\"", "\"production\""));
    toolgate_testkit::eventually("production is in force", crate::gate::SOON, async || {
        let message = gate.caller().call("zoo_echo", &json!({})).await;
        is_unknown(&message).then_some(())
    })
    .await;
    assert_eq!(visible(&gate).await, ["add"]);
}

fn step<'a>(explained: &'a Value, key: &str) -> &'a Value {
    let steps = explained["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["key"] == key);
    found.unwrap_or_else(|| panic!("no step `{key}`: {explained}"))
}

fn guarded() -> String {
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
async fn explain_names_the_step_that_hides_a_tool() {
    let gate = TestGate::start(&guarded());
    gate.reaches("zoo", "healthy").await;
    gate.reaches("ape", "healthy").await;
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
    let gate = TestGate::start(&guarded());
    gate.reaches("zoo", "healthy").await;
    gate.reaches("ape", "healthy").await;
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
            let caller = gate.with_key(ALICE).with(header, value);
            let message = caller.call(tool, &json!({"text": "x"})).await;
            let query = format!("tool={tool}&key=alice&{parameter}={value}");
            let explained = gate.json(&format!("/api/mcp/tools/explain?{query}")).await;
            assert_eq!(
                explained["visible"] == true,
                !is_unknown(&message),
                "{query}: {explained} {message}"
            );
            assert_eq!(
                explained["verdict"] == "ask",
                message.get("approval").is_some(),
                "{query}"
            );
            let with_header = gate.caller().with(header, value);
            let sent = with_header
                .get(&format!("/api/mcp/tools/explain?tool={tool}&key=alice"))
                .await;
            assert_eq!(sent.expect(200), explained, "headers are honoured too");
        }
    }
}

#[tokio::test]
async fn explain_of_a_server() {
    let toml = guarded()
        + &zoo("gone", &[])
        + "enabled = false\n"
        + "[security]\nmcp_server_denylist = [\"ape\"]\n";
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
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
            "why it gives none: {explained}"
        );
    }
}

#[tokio::test]
async fn explain_answers_what_it_cannot_explain() {
    let gate = TestGate::start(&guarded());
    gate.reaches("zoo", "healthy").await;
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
async fn an_environment_brings_keys_servers_and_lists() {
    let toml = zoo("zoo", &[])
        + &zoo("ape", &[])
        + "[environments.production.mcp_servers.ape]\ncommand = \"nothing\"\nenabled = false\n"
        + &format!("[environments.production.keys.alice]\nkey = \"{ALICE}\"\n")
        + "[environments.production.security]\nmcp_server_denylist = [\"zoo\"]\n";
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    gate.reaches("ape", "healthy").await;
    assert_eq!(callable(&gate.caller()).await, ALL);
    let gate = TestGate::start_with(&toml, &["--environment", "production"], &[]);
    assert_eq!(gate.caller().knock().await, 401);
    assert!(callable(&gate.with_key(ALICE)).await.is_empty());
    for server in ["zoo", "ape"] {
        let explained = gate
            .json(&format!("/api/mcp/tools/explain?tool={server}_echo"))
            .await;
        assert_eq!(explained["visible"], false, "{explained}");
    }
}
