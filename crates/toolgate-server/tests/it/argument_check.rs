//! The check of arguments against schemas: what is converted, on every surface, and that nothing
//! that looks at arguments can be evaded by writing them differently.

use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{PATHS, request, run_agent};
use crate::caller::{Caller, text};
use crate::gate::{TestGate, run, zoo};
use crate::mcp::{LegacySession, META, modern_request, modern_request_with_meta};

/// A gateway with the server `a`, whose tool `task` returns its arguments.
struct Fixture {
    gate: TestGate,
    _files: TempDir,
}

/// What a model writes, what the server receives, and what was converted.
struct Example {
    given: Value,
    sent: Value,
    converted: &'static str,
}

impl Fixture {
    /// Starts a gateway with settings of the server, followed by tables.
    async fn start(more: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let file = files.path().join("tools.json");
        let other = json!({"name": "other", "inputSchema": task_schema()});
        let task = json!({"name": "task", "inputSchema": task_schema()});
        std::fs::write(&file, json!({"tools": [task, other]}).to_string()).unwrap();
        let flags = ["--tools-from", file.to_str().unwrap()];
        let gate = TestGate::start(&(zoo("b", &flags) + &zoo("a", &flags) + more));
        for server in ["a", "b"] {
            gate.wait_for_state(server, "healthy").await;
        }
        Self {
            gate,
            _files: files,
        }
    }

    fn caller(&self) -> Caller<'_> {
        self.gate.caller()
    }

    /// Calls `task` and returns the text of the result.
    async fn call(&self, arguments: &Value) -> String {
        text(&self.caller().call("a_task", arguments).await).to_owned()
    }

    /// Returns the newest record of a tool call.
    async fn last_record(&self) -> Value {
        let records = self.gate.records(&self.caller()).await;
        records.last().unwrap().clone()
    }
}

fn task_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "force": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
            "options": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}},
            },
        },
        "required": ["count"],
    })
}

fn examples() -> [Example; 4] {
    let example = |given: Value, sent: Value, converted| Example {
        given,
        sent,
        converted,
    };
    [
        example(json!({"count": "5"}), json!({"count": 5}), "count"),
        example(
            json!({"count": 1, "force": "true"}),
            json!({"count": 1, "force": true}),
            "force",
        ),
        example(
            json!({"count": 1, "tags": "[\"a\", \"b\"]"}),
            json!({"count": 1, "tags": ["a", "b"]}),
            "tags",
        ),
        example(
            json!({"count": 1, "options": {"path": "x", "depth": null}}),
            json!({"count": 1, "options": {"path": "x"}}),
            "options.depth",
        ),
    ]
}

fn assert_recorded(
    record: &Value,
    Example {
        sent, converted, ..
    }: &Example,
) {
    assert_eq!(record["arguments"], *sent, "{record}");
    let detail = json!({"converted_arguments": [converted]});
    assert_eq!(record["detail"], detail, "{record}");
}

#[tokio::test]
async fn arguments_are_converted_for_mcp_clients_api_and_command_line() {
    let fixture = Fixture::start("").await;
    let gate = &fixture.gate;
    let session = LegacySession::open(gate, "/mcp", None).await;
    for Example { given, sent, .. } in examples() {
        let params = json!({"name": "a_task", "arguments": given});
        let (_, modern) = modern_request(gate, "/mcp", "tools/call", params.clone()).await;
        let received = &modern["result"]["structuredContent"]["arguments"];
        assert_eq!(*received, sent, "{modern}");
        let legacy = session.result("tools/call", params).await;
        let received = &legacy["structuredContent"]["arguments"];
        assert_eq!(*received, sent, "{legacy}");
        assert_eq!(fixture.call(&given).await, sent.to_string());
        let (url, given) = (&gate.url, given.to_string());
        let args = ["tools", "--url", url, "call", "a_task", "--args", &given];
        let (_, stdout, stderr) = run(gate.folder.path(), &args);
        assert_eq!(stdout.trim(), sent.to_string(), "{stderr}");
    }
    let records = gate.records(&fixture.caller()).await;
    assert_eq!(records.len(), 16, "{records:?}");
    for (records, example) in records.chunks(4).zip(examples()) {
        for record in records {
            assert_recorded(record, &example);
        }
    }
}

#[tokio::test]
async fn arguments_that_fit_keep_their_bytes() {
    let fixture = Fixture::start("").await;
    let given = r#"{ "count":5.0, "note":"5" ,"other":[ 1e400 ]}"#;
    let message = fixture.gate.call("a_task", given).await;
    assert_eq!(text(&message), given);
    let record = fixture.last_record().await;
    assert_eq!(record["detail"], Value::Null, "{record}");
}

#[tokio::test]
async fn error_is_about_the_arguments_as_sent() {
    let fixture = Fixture::start("").await;
    for given in [
        json!({"count": "05"}),
        json!({"count": " 5"}),
        json!({"count": "5.0"}),
        json!({"count": "1e3"}),
        json!({"count": null}),
        json!({"count": "5", "force": "yes"}),
        json!({"count": 5, "tags": "a, b"}),
        json!({"count": 5, "tags": ["a", null]}),
    ] {
        let refused = fixture.call(&given).await;
        let expected = "the arguments do not match the tool's schema: `";
        assert!(refused.starts_with(expected), "{given}: {refused}");
    }
    let refused = fixture.call(&json!({"count": "5", "force": "yes"})).await;
    assert!(refused.contains("`count` must be an integer"), "{refused}");
}

#[tokio::test]
async fn arguments_are_converted_in_agent_runs() {
    for (dialect, path) in PATHS {
        let calls = examples().into_iter().enumerate();
        let calls = calls.map(|(index, example)| (format!("c{index}"), "a_task", example.given));
        let model = ScriptedModel::start_strict(vec![Reply::calls(calls), Reply::text("Done.")]);
        let provider = format!(
            "[providers.p]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = {dialect:?}\nmax_retries = 0\n",
            model.url()
        );
        let auto = format!("tools_to_auto_execute = [\"task\"]\n{provider}");
        let fixture = Fixture::start(&auto).await;
        let answer = run_agent(&fixture.gate, path, &request(dialect, "p/m", false)).await;
        assert_eq!(answer.text, "Done.", "{dialect}");
        let executed = answer.note["executed"].as_array().unwrap();
        let records = fixture.gate.records(&fixture.caller()).await;
        for (index, example) in examples().iter().enumerate() {
            let result = &executed[index]["result"];
            assert_eq!(*result, example.sent.to_string(), "{dialect}");
            let record = records.iter().find(|r| r["arguments"] == example.sent);
            assert_recorded(record.unwrap(), example);
        }
    }
}

#[tokio::test]
async fn arguments_are_converted_in_scripts() {
    let rules = "[[permissions.rules]]\ntool = \"a.task\"\narguments = { force = \"true\" }\naction = \"deny\"\n";
    let fixture = Fixture::start(&format!("is_code_mode_client = true\n{rules}")).await;
    let code = "result = a.task(count=\"5\", tags=\"[\\\"x\\\"]\")";
    let arguments = json!({"code": code}).to_string();
    let message = fixture.gate.call("executeToolCode", &arguments).await;
    let sent = r#"{"count":5,"tags":["x"]}"#;
    assert!(text(&message).contains(sent), "{message}");
    let records = fixture.gate.records(&fixture.caller()).await;
    let call = records.iter().find(|record| record["tool"] == "task");
    let detail = json!({"converted_arguments": ["count", "tags"]});
    assert_eq!(call.unwrap()["detail"], detail);
    let code = json!({"code": "result = a.task(count=1, force=\"true\")"}).to_string();
    let message = fixture.gate.call("executeToolCode", &code).await;
    assert!(text(&message).contains("permissions.rules[0]"), "{message}");
}

#[tokio::test]
async fn rules_and_scanner_see_converted_arguments() {
    let rules = r#"
        [scanner]
        path_traversal = "deny"
        [[permissions.rules]]
        tool = "a.task"
        arguments = { "options.path" = "/etc/*" }
        action = "deny"
        [[permissions.rules]]
        tool = "a.task"
        arguments = { force = "true", count = "7" }
        action = "deny"
        [[permissions.rules]]
        tool = "a.task"
        arguments = { tags = "secret" }
        action = "deny"
    "#;
    let fixture = Fixture::start(rules).await;
    let nested = json!({"path": "/etc/passwd"}).to_string();
    for (given, rule) in [
        (
            json!({"count": 1, "options": {"path": "/etc/passwd"}}),
            "permissions.rules[0]",
        ),
        (
            json!({"count": 1, "options": nested}),
            "permissions.rules[0]",
        ),
        (
            json!({"count": 1, "options": "{\"pa\\u0074h\": \"\\u002fetc/passwd\"}"}),
            "permissions.rules[0]",
        ),
        (
            json!({"count": "7", "force": "true"}),
            "permissions.rules[1]",
        ),
        (
            json!({"count": 1, "tags": "[\"a\", \"s\\u0065cret\"]"}),
            "permissions.rules[2]",
        ),
        (
            json!({"count": 1, "options": "{\"path\": \"a/../../b\"}"}),
            "scanner.path_traversal",
        ),
    ] {
        let refused = fixture.call(&given).await;
        assert!(
            refused.contains(&format!("(`{rule}`)")),
            "{given}: {refused}"
        );
    }
    let outcomes = fixture.gate.outcomes(&fixture.caller()).await;
    assert_eq!(outcomes, ["denied"; 6]);
    let sent = json!({"count": 6, "force": true});
    assert_eq!(
        fixture.call(&json!({"count": "6", "force": "true"})).await,
        sent.to_string()
    );
}

#[tokio::test]
async fn agent_leaves_converted_call_to_the_caller_if_a_rule_says_so() {
    let call = json!({"count": 1, "tags": "[\"secret\"]"});
    let model = ScriptedModel::start_strict(vec![Reply::calls([("c1", "a_task", call)])]);
    let more = format!(
        "tools_to_auto_execute = [\"task\"]\n[providers.p]\nbase_url = \"{}/v1\"\napi_key = \"k\"\n\
         [[permissions.rules]]\ntool = \"a.task\"\narguments = {{ tags = \"secret\" }}\naction = \"manual\"\n",
        model.url()
    );
    let fixture = Fixture::start(&more).await;
    let answer = run_agent(&fixture.gate, PATHS[0].1, &request("openai", "p/m", false)).await;
    assert_eq!(answer.calls, ["a_task"], "{answer:?}");
    assert_eq!(answer.note["stop_reason"], "needs_approval", "{answer:?}");
}

#[tokio::test]
async fn parsed_texts_cannot_smuggle_keys_or_nesting() {
    let fixture = Fixture::start("").await;
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(99), "]".repeat(99));
    for (options, expected) in [
        (r#"{"path": "/srv", "Path": "/etc"}"#, "could be taken for"),
        (r#"{"PATH": "/etc"}"#, "could be taken for"),
        (r#"{"x": {"y": 1, "Y": 2}}"#, "could be taken for"),
        (
            r#"{"path": "/srv", "path": "/etc"}"#,
            "`options` must be an object",
        ),
        (
            r#"{"x": {"y": 1, "\u0079": 2}}"#,
            "`options` must be an object",
        ),
        (
            r#"{"$serde_json::private::RawValue": "{}"}"#,
            "`options` must be an object",
        ),
        (&deep, "`options` must be an object"),
    ] {
        let refused = fixture.call(&json!({"count": 1, "options": options})).await;
        assert!(refused.contains(expected), "{options}: {refused}");
    }
    let outcomes = fixture.gate.outcomes(&fixture.caller()).await;
    assert!(!outcomes.contains(&"ok".to_owned()), "{outcomes:?}");
}

const ASK: &str = "[[permissions.rules]]\ntool = \"a.task\"\naction = \"ask\"\napproval_by = [\"admin\", \"client\"]\n";

#[tokio::test]
async fn approval_is_for_the_converted_arguments() {
    let fixture = Fixture::start(ASK).await;
    let caller = fixture.caller();
    let pending = caller
        .call("a_task", &json!({"count": "5", "note": null}))
        .await;
    let id = pending["approval"]["id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    assert_eq!(
        fixture.gate.json(&path).await["arguments"],
        json!({"count": 5})
    );
    let approve = json!({"decision": "approve"});
    caller.post(&path, &approve).await.expect_status(200);
    let other = caller.call("a_task", &json!({"count": "6"})).await;
    assert!(other["approval"]["expires_at"].is_string(), "{other}");
    // The same arguments in another spelling are the same call.
    assert_eq!(fixture.call(&json!({"count": 5})).await, r#"{"count":5}"#);
}

#[tokio::test]
async fn client_is_shown_the_converted_arguments() {
    let fixture = Fixture::start(ASK).await;
    let meta = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
    let call = json!({"name": "a_task", "arguments": {"count": "5", "tags": "[\"x\"]"}});
    let call_tool = async |params: Value| {
        let answer = modern_request_with_meta(&fixture.gate, "/mcp", "tools/call", params, &meta);
        answer.await.1["result"].clone()
    };
    let asked = call_tool(call.clone()).await;
    let question = &asked["inputRequests"]["toolgate_approval"]["params"]["message"];
    let shown = r#"Arguments: {"count":5,"tags":["x"]}"#;
    assert!(question.as_str().unwrap().ends_with(shown), "{asked}");
    let mut repeated = call;
    repeated["requestState"] = asked["requestState"].clone();
    repeated["inputResponses"] = json!({"toolgate_approval": {"action": "accept", "content": {}}});
    let ran = call_tool(repeated).await;
    let received = &ran["structuredContent"]["arguments"];
    assert_eq!(*received, json!({"count": 5, "tags": ["x"]}), "{ran}");
}

#[tokio::test]
async fn edited_arguments_are_converted_before_they_are_stored() {
    let fixture = Fixture::start(ASK).await;
    let caller = fixture.caller();
    let call = json!({"count": "5"});
    let pending = caller.call("a_task", &call).await;
    let path = format!(
        "/api/approvals/{}",
        pending["approval"]["id"].as_str().unwrap()
    );
    for bad in [
        json!({"count": "x"}),
        json!({"count": 1, "options": "{\"path\": 1, \"Path\": 2}"}),
        json!({"count": 1, "Count": 2}),
    ] {
        let edit = json!({"decision": "approve", "arguments": bad});
        caller.post(&path, &edit).await.expect_status(400);
    }
    let edit =
        json!({"decision": "approve", "arguments": {"count": "8", "force": "false", "note": null}});
    let decided = caller.post(&path, &edit).await.expect_status(200);
    let sent = json!({"count": 8, "force": false});
    assert_eq!(decided["edited_arguments"], sent, "{decided}");
    assert_eq!(fixture.call(&call).await, sent.to_string());
    let record = fixture.last_record().await;
    assert_eq!(
        (&record["arguments"], &record["detail"]),
        (&sent, &Value::Null),
        "{record}"
    );
}

#[tokio::test]
async fn cached_result_is_found_by_the_converted_arguments() {
    let fixture = Fixture::start("[mcp_servers.a.tools.task]\ncache_ttl = \"10m\"\n").await;
    for given in [
        json!({"count": "5"}),
        json!({"count": 5}),
        json!({"count": "5", "note": null}),
    ] {
        assert_eq!(fixture.call(&given).await, r#"{"count":5}"#);
    }
    let records = fixture.gate.records(&fixture.caller()).await;
    let cached: Vec<&Value> = records.iter().map(|record| &record["cached"]).collect();
    assert_eq!(cached, [false, true, true]);
}

#[tokio::test]
async fn tool_setting_overrides_that_of_server_and_default() {
    let settings = |global: &str, server: &str, tool: &str| {
        let line = |value: &str| match value {
            "" => String::new(),
            value => format!("argument_check = {value:?}\n"),
        };
        let (global, server, tool) = (line(global), line(server), line(tool));
        format!("{server}[mcp_servers.a.tools.task]\n{tool}[mcp]\n{global}")
    };
    for (more, task, other_tool, other_server) in [
        (settings("", "", ""), "coerce", "coerce", "coerce"),
        (settings("strict", "", ""), "strict", "strict", "strict"),
        (settings("strict", "off", ""), "off", "off", "strict"),
        (
            settings("strict", "off", "coerce"),
            "coerce",
            "off",
            "strict",
        ),
        (
            settings("off", "coerce", "strict"),
            "strict",
            "coerce",
            "off",
        ),
        (settings("", "", "off"), "off", "coerce", "coerce"),
    ] {
        let fixture = Fixture::start(&more).await;
        for (tool, expected) in [
            ("a_task", task),
            ("a_other", other_tool),
            ("b_task", other_server),
        ] {
            let message = fixture.caller().call(tool, &json!({"count": "5"})).await;
            let shown = text(&message);
            let found = match shown {
                r#"{"count":5}"# => "coerce",
                r#"{"count":"5"}"# => "off",
                _ if shown.contains("`count` must be an integer") => "strict",
                _ => "unknown",
            };
            assert_eq!(found, expected, "{tool} with {more}: {message}");
            // Keys that a server may confuse are refused in any case.
            let confusing = fixture
                .caller()
                .call(tool, &json!({"count": 1, "Count": 2}))
                .await;
            assert!(
                text(&confusing).contains("could be taken for"),
                "{confusing}"
            );
        }
        let path = "/api/mcp/tools/explain?tool=a_task";
        let explanation = fixture.gate.json(path).await.to_string();
        assert_eq!(
            explanation.contains("argument_check"),
            task == "off",
            "{explanation}"
        );
    }
}
