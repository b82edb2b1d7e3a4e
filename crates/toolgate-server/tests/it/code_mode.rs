//! Code mode over every API: four tools instead of many, scripts whose calls obey the rules, and a
//! sandbox that no script escapes.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{
    ALICE, EXCLUDE_TOOLS, EXECUTE, INCLUDE_TOOLS, SESSION, is_unknown_tool, text, tool_call,
};
use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};
use crate::mcp::{META, headers, modern_request_with_meta};

const CODE_MODE_TOOLS: [&str; 4] = [
    "executeToolCode",
    "getToolDocs",
    "listToolFiles",
    "readToolFile",
];

/// Configures a code mode zoo with additional settings, and a direct zoo.
fn config(more: &str) -> String {
    zoo("zoo", &[])
        + "is_code_mode_client = true\n"
        + more
        + "\n"
        + &zoo("plain", &[])
        + "tools_to_execute = [\"add\"]\n"
}

async fn start_gate(more: &str, extra: &str) -> TestGate {
    let gate = TestGate::start(&(config(more) + extra));
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("plain", "healthy").await;
    gate
}

async fn run_script(gate: &TestGate, code: &str) -> Value {
    run_script_as(gate, "c1", code).await
}

async fn run_script_as(gate: &TestGate, id: &str, code: &str) -> Value {
    let arguments = json!({"code": code}).to_string();
    let body = json!({"id": id, "type": "function",
        "function": {"name": "executeToolCode", "arguments": arguments}});
    let response = gate
        .post("/v1/mcp/tool/execute", &body.to_string(), HeaderMap::new())
        .await;
    assert_eq!(response.status(), 200);
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// Runs a script and returns its result as JSON.
async fn script_result(gate: &TestGate, script: &str) -> Value {
    let message = run_script(gate, script).await;
    assert_eq!(message["is_error"], Value::Null, "{script}: {message}");
    let line = text(&message).lines().next().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{script}: {message}"))
}

/// Runs a failing script and returns its error text.
async fn script_error(gate: &TestGate, script: &str) -> String {
    let message = run_script(gate, script).await;
    assert_eq!(message["is_error"], true, "{script}: {message}");
    text(&message).to_owned()
}

pub(crate) async fn list_tool_names(gate: &TestGate, path: &str) -> Vec<String> {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let headers = headers(&[
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ]);
    let answer = gate.post(path, body, headers).await.text().await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[tokio::test]
async fn four_tools_replace_code_mode_server() {
    let gate = start_gate("", "").await;
    let mut expected: Vec<&str> = CODE_MODE_TOOLS.to_vec();
    expected.insert(3, "plain_add");
    assert_eq!(list_tool_names(&gate, "/mcp").await, expected);
    assert!(
        list_tool_names(&gate, "/mcp/zoo")
            .await
            .contains(&"add".to_owned())
    );

    let files = gate.call("listToolFiles", "{}").await;
    assert!(text(&files).starts_with("servers/\n  zoo.pyi"), "{files}");
    let file = gate
        .call("readToolFile", r#"{"fileName":"servers/zoo.pyi"}"#)
        .await;
    assert!(text(&file).contains("def add(a: int, b: int)"), "{file}");
    let lines = r#"{"fileName":"zoo.pyi","startLine":2,"endLine":2}"#;
    let line = gate.call("readToolFile", lines).await;
    assert!(text(&line).contains("def add("), "{line}");
    assert!(!text(&line).contains("def big("), "{line}");
    let docs = gate
        .call("getToolDocs", r#"{"server":"zoo","tool":"add"}"#)
        .await;
    assert!(text(&docs).contains("Adds two integers."), "{docs}");
    let missing = gate
        .call("readToolFile", r#"{"fileName":"servers/zo.pyi"}"#)
        .await;
    assert_eq!(missing["is_error"], true);
    assert!(text(&missing).contains("did you mean"), "{missing}");

    // The scripted tools stay callable by name.
    assert_eq!(text(&gate.call("zoo_add", r#"{"a":1,"b":2}"#).await), "3");
    // Without visible scripted tools, the four tools are hidden.
    let hidden = gate.caller().with_header(EXCLUDE_TOOLS, "zoo.*");
    for tool in CODE_MODE_TOOLS {
        assert!(
            is_unknown_tool(&hidden.call(tool, &json!({"code": "result = 1"})).await),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn stub_files_follow_binding_level() {
    let tool = "[mcp.tool_manager_config]\ncode_mode_binding_level = \"tool\"\n";
    let gate = start_gate("tools_to_execute = [\"add\", \"say\"]", tool).await;
    let files = gate.call("listToolFiles", "{}").await;
    assert_eq!(
        text(&files).trim(),
        "servers/\n  zoo/\n    add.pyi\n    say.pyi"
    );
    let file = gate
        .call("readToolFile", r#"{"fileName":"servers/zoo/say.pyi"}"#)
        .await;
    assert!(text(&file).contains("def say("), "{file}");
    assert!(!text(&file).contains("def add("), "{file}");
    let settings = gate.json("/api/settings/mcp/tool-manager-config").await;
    assert_eq!(settings["code_mode_binding_level"], "tool");
}

#[tokio::test]
async fn scripts_receive_tool_results_as_values() {
    let gate = start_gate("", "").await;
    for (script, expected) in [
        ("result = zoo.add(a=1, b=2)", json!({"sum": 3})),
        ("zoo.add(a=1, b=2)[\"sum\"] + 1", json!(4)),
        (
            "result = zoo.say(text='{\"z\": 1, \"a\": [12345678901234567890, 1.5, 5.0]}')",
            serde_json::from_str(r#"{"z": 1, "a": [12345678901234567890, 1.5, 5.0]}"#).unwrap(),
        ),
        ("result = zoo.say(text='plain text')", json!("plain text")),
        (
            "f = zoo.add\nresult = [f(a=i, b=i)[\"sum\"] for i in range(3)]",
            json!([0, 2, 4]),
        ),
        (
            "result = [x[\"sum\"] for x in parallel([(zoo.add, {\"a\": i, \"b\": 1}) for i in range(12)])]",
            json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ),
        (
            "r = attempt(lambda: zoo.fail())\nresult = r[\"ok\"]",
            json!(false),
        ),
        (
            "result = getattr(zoo, 'a' + 'dd')(a=2, b=2)[\"sum\"]",
            json!(4),
        ),
        (
            "def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nresult = f(10)",
            json!(55),
        ),
    ] {
        assert_eq!(script_result(&gate, script).await, expected, "{script}");
    }
    let printed = run_script(&gate, "for i in range(3):\n  print(i, 'x')").await;
    assert!(text(&printed).contains("0 x\n1 x\n2 x"), "{printed}");
    // Intermediate tool results are not returned.
    let quiet = run_script(&gate, "x = zoo.say(text='SECRET-DATA')\nresult = len(x)").await;
    assert!(!text(&quiet).contains("SECRET"), "{quiet}");
    assert!(text(&quiet).contains("calls: zoo.say"), "{quiet}");
}

#[tokio::test]
async fn script_errors_give_hints() {
    let gate = start_gate("", "").await;
    for (script, parts) in [
        (
            "x = 1\nresult = zo.add(a=1, b=2)",
            vec!["line 2", "`zoo`", "servers: zoo"],
        ),
        ("zoo.ad(a=1, b=2)", vec!["line 1", "`zoo.add`"]),
        (
            "zoo.add(a=1, c=2)",
            vec!["line 1", "def add(a: int, b: int)"],
        ),
        (
            "zoo.add(a=\"x\", b=2)",
            vec!["must be an integer", "def add(a: int, b: int)"],
        ),
        ("result = (1 +", vec!["syntax error", "line 1"]),
        (
            "zoo.add(a=1, b=1)\nzoo.say(text='x', fails=True)",
            vec!["line 2", "calls: zoo.add, zoo.say failed", "do not repeat"],
        ),
        ("import json", vec!["json"]),
        ("plain.add(a=1, b=1)", vec!["plain"]),
    ] {
        let error = script_error(&gate, script).await;
        for part in parts {
            assert!(error.contains(part), "{script}: {error}");
        }
    }
    let nothing = gate.call("executeToolCode", "{}").await;
    assert!(text(&nothing).contains("`code` is missing"), "{nothing}");
}

#[tokio::test]
async fn script_calls_are_recorded_as_children() {
    let gate = start_gate("", "").await;
    let caller = gate.caller();
    caller
        .clone()
        .with_header("x-request-id", "script-1")
        .call(
            "executeToolCode",
            &json!({"code": "zoo.add(a=1, b=2)\nresult = zoo.add(a=3, b=4)"}),
        )
        .await;
    let records = gate.records(&caller).await;
    let of = |id: &str| {
        records
            .iter()
            .find(|r| r["request_id"] == id)
            .unwrap()
            .clone()
    };
    let outer = of("script-1");
    assert_eq!(
        (&outer["server"], &outer["tool"]),
        (&json!("toolgate"), &json!("executeToolCode"))
    );
    assert!(
        outer["arguments"]["code"]
            .as_str()
            .unwrap()
            .contains("zoo.add")
    );
    assert_eq!(outer["script"]["calls"], 2);
    for id in ["script-1-call-1", "script-1-call-2"] {
        let inner = of(id);
        assert_eq!(
            (&inner["parent_id"], &inner["origin"]),
            (&json!("script-1"), &json!("script"))
        );
        assert_eq!(
            (&inner["server"], &inner["tool"]),
            (&json!("zoo"), &json!("add"))
        );
    }
}

#[tokio::test]
async fn rules_apply_to_every_spelling_of_a_call() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.say\"\naction = \"deny\"\n[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = start_gate("", rules).await;
    for script in [
        "zoo.say(text='x')",
        "f = zoo.say\nf(text='x')",
        "getattr(zoo, 's' + 'ay')(text='x')",
        "[s.say(text='x') for s in [zoo]]",
        "(lambda s: s.say(text='x'))(zoo)",
        "parallel([(getattr(zoo, 'say'), {'text': 'x'})])",
        "zoo.say(**{'text': 'x'})",
    ] {
        let error = script_error(&gate, script).await;
        assert!(error.contains("say"), "{script}: {error}");
    }
    assert_eq!(
        script_result(&gate, "result = 'say' in dir(zoo) or hasattr(zoo, 'say')").await,
        json!(false)
    );
    let files = gate.call("readToolFile", r#"{"fileName":"zoo"}"#).await;
    assert!(!text(&files).contains("def say"), "{files}");
    for script in [
        "zoo.echo(x=1)",
        "f = zoo.echo\nf(x=1)",
        "attempt(lambda: zoo.echo(x=1))\nzoo.add(a=1, b=1)",
        "parallel([(zoo.add, {'a': 1, 'b': 1}), (zoo.echo, {'x': 1})])",
    ] {
        let message = run_script(&gate, script).await;
        assert!(message["approval"]["id"].is_string(), "{script}: {message}");
    }
    let records = gate.records(&gate.caller()).await;
    let ran = |r: &&Value| r["tool"] == "echo" && r["outcome"] == "ok";
    assert_eq!(records.iter().filter(ran).count(), 0);
}

#[tokio::test]
async fn waiting_script_resumes_where_it_stopped() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let mut gate = start_gate("", rules).await;
    let script = "a = zoo.add(a=1, b=2)[\"sum\"]\nb = zoo.echo(n=a)\nc = zoo.add(a=a, b=10)\nresult = [a, b[\"arguments\"][\"n\"], c[\"sum\"]]";
    let waiting = run_script(&gate, script).await;
    assert!(text(&waiting).contains("line 2"), "{waiting}");
    assert!(
        text(&waiting).contains("so far calls: zoo.add"),
        "{waiting}"
    );
    let id = waiting["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        run_script(&gate, script).await["approval"]["id"],
        id,
        "it keeps waiting"
    );
    // The script also survives a restart.
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    let approve = json!({"decision": "approve"});
    gate.caller()
        .post(&format!("/api/approvals/{id}"), &approve)
        .await
        .expect_status(200);
    assert_eq!(script_result(&gate, script).await, json!([3, 3, 13]));
    let records = gate.records(&gate.caller()).await;
    let ran = |tool: &str| {
        let ran = |r: &&Value| r["tool"] == tool && r["outcome"] == "ok";
        records.iter().filter(ran).count()
    };
    assert_eq!((ran("add"), ran("echo")), (2, 1), "each call ran once");
    let other = run_script_as(&gate, "c2", script).await;
    assert!(other["approval"]["id"].is_string(), "{other}");
}

#[tokio::test]
async fn scripts_resume_only_in_their_session_and_scope() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = start_gate("", rules).await;
    let script = json!({"code": "zoo.add(a=1, b=1)\nresult = zoo.echo(x=1)"});
    let run_in_session = async |session: &str, filter: &str| {
        let caller = gate
            .caller()
            .with_header(SESSION, session)
            .with_header(INCLUDE_TOOLS, filter);
        caller.call("executeToolCode", &script).await
    };
    run_in_session("one", "zoo.*").await;
    run_in_session("two", "zoo.*").await;
    run_in_session("one", "zoo.add,zoo.echo").await;
    run_in_session("one", "zoo.*").await;
    let records = gate.records(&gate.caller()).await;
    let ran = |r: &&Value| r["tool"] == "add" && r["outcome"] == "ok";
    assert_eq!(
        records.iter().filter(ran).count(),
        3,
        "each session starts its own script, and the first one resumes"
    );
}

#[tokio::test]
async fn parallel_approvals_are_decided_together_and_denial_reports_calls() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.say\"\naction = \"ask\"\narguments = { text = \"danger*\" }\n";
    let script = "zoo.add(a=1, b=1)\nresult = parallel([(zoo.say, {'text': 'danger ' + str(i)}) for i in range(2)])";
    for (decision, expected) in [
        ("approve", "[\"danger 0\",\"danger 1\"]"),
        (
            "deny",
            "the call was denied: no reason given; so far calls: zoo.add",
        ),
    ] {
        let model =
            ScriptedModel::start_strict(vec![script_call("c1", script), Reply::text("done")]);
        let gate =
            start_agent_gate(&model, "tools_to_auto_execute = [\"add\", \"say\"]", rule).await;
        let answer = complete_chat(&gate, "/v1/chat/completions", &hello()).await;
        let inner = answer["toolgate"]["pending"][0]["inner"]
            .as_array()
            .unwrap();
        assert_eq!(inner.len(), 2, "{answer}");
        let run = answer["toolgate"]["run_id"].as_str().unwrap();
        let body = json!({"decisions": [{"id": "c1", "decision": decision}]});
        let path = format!("/api/runs/{run}/resume");
        gate.caller().post(&path, &body).await.expect_status(200);
        let last = model.turns()[1].body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert!(
            last["content"].as_str().unwrap().starts_with(expected),
            "{last}"
        );
        // A completed call of a run is never repeated.
        let again = run_script(&gate, script).await;
        if decision == "approve" {
            assert!(text(&again).contains("not run again"), "{again}");
        }
    }
}

#[tokio::test]
async fn identical_scripts_of_two_runs_are_separate() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.say\"\naction = \"ask\"\narguments = { text = \"danger*\" }\n";
    let script = "zoo.add(a=1, b=1)\nresult = zoo.say(text='dan' + 'ger')";
    let model = ScriptedModel::start_strict(vec![
        script_call("call_0", script),
        script_call("call_0", script),
        Reply::text("one"),
        Reply::text("two"),
    ]);
    let gate = start_agent_gate(&model, "tools_to_auto_execute = [\"add\", \"say\"]", rule).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let answer = complete_chat(&gate, "/v1/chat/completions", &hello()).await;
        assert_eq!(
            answer["toolgate"]["stop_reason"], "needs_approval",
            "{answer}"
        );
        runs.push(answer["toolgate"]["run_id"].as_str().unwrap().to_owned());
    }
    for (run, text) in runs.iter().zip(["one", "two"]) {
        let decided = json!({"decisions": [{"id": "call_0", "decision": "approve"}]});
        let path = format!("/api/runs/{run}/resume");
        let mut done = gate.caller().post(&path, &decided).await;
        if done.status == 409 {
            // Both runs requested the same approval, and the first run has used it.
            done = gate.caller().post(&path, &decided).await;
        }
        let done = done.expect_status(200);
        assert_eq!(done["choices"][0]["message"]["content"], text, "{done}");
    }
    let records = gate.records(&gate.caller()).await;
    let ran = |tool: &str| {
        let ran = |r: &&Value| r["tool"] == tool && r["outcome"] == "ok";
        records.iter().filter(ran).count()
    };
    assert_eq!(
        (ran("add"), ran("say")),
        (2, 2),
        "each run made its calls once"
    );
}

#[tokio::test]
async fn client_approval_shows_inner_call_not_script() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\napproval_by = [\"client\"]\n";
    let gate = start_gate("", rules).await;
    let meta = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
    let code = json!({"code": "n = zoo.add(a=20, b=22)[\"sum\"]\nresult = zoo.echo(amount=n)"});
    let params = json!({"name": "executeToolCode", "arguments": code});
    let (_, answer) = modern_request_with_meta(&gate, "/mcp", "tools/call", params, &meta).await;
    let question = &answer["result"]["inputRequests"]["toolgate_approval"]["params"]["message"];
    let question = question.as_str().unwrap_or_else(|| panic!("{answer}"));
    for part in ["`zoo_echo`", "{\"amount\":42}", "line 2"] {
        assert!(question.contains(part), "{question}");
    }
    assert!(!question.contains("zoo.add"), "{question}");
}

#[tokio::test]
async fn running_script_completes_before_shutdown() {
    let mut gate = start_gate("", "").await;
    let slow = tool_call(
        "executeToolCode",
        &json!({"code": "zoo.sleep(ms=1500)\nresult = 'slept'"}),
    );
    let slow = slow.to_string();
    let pid = gate.child.id();
    let interrupt = async {
        gate.wait_for_in_flight_call().await;
        let _ = std::process::Command::new("kill")
            .args(["-INT", &pid.to_string()])
            .status();
    };
    let (answer, ()) = tokio::join!(
        gate.post("/v1/mcp/tool/execute", &slow, HeaderMap::new()),
        interrupt
    );
    let answer = answer.text().await.unwrap();
    assert!(answer.contains("slept"), "{answer}");
    assert_eq!(gate.wait_for_exit().await, Some(0));
}

#[tokio::test]
async fn denied_call_raises_in_script() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = start_gate("", rules).await;
    let script = "r = attempt(lambda: zoo.echo(n=1))\nresult = r[\"error\"]";
    let id = run_script(&gate, script).await["approval"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let deny = json!({"decision": "deny", "reason": "not today"});
    gate.caller()
        .post(&format!("/api/approvals/{id}"), &deny)
        .await
        .expect_status(200);
    let error = script_result(&gate, script).await;
    assert!(error.as_str().unwrap().contains("not today"), "{error}");
}

/// Starts a gateway in front of a scripted model.
async fn start_agent_gate(model: &ScriptedModel, more: &str, extra: &str) -> TestGate {
    let provider = format!(
        "[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"k\"\nmax_retries = 0\n",
        model.url()
    );
    start_gate(more, &(provider + extra)).await
}

fn script_call(id: &str, code: &str) -> Reply {
    Reply::calls([(id.to_owned(), "executeToolCode", json!({"code": code}))])
}

async fn complete_chat(gate: &TestGate, path: &str, body: &Value) -> Value {
    let answer = gate.post(path, &body.to_string(), headers(&[])).await;
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

fn hello() -> Value {
    json!({"model": "openai/m", "messages": [{"role": "user", "content": "hello"}]})
}

#[tokio::test]
async fn model_runs_script_and_gets_result() {
    let steps = vec![
        Reply::calls([("c1", "listToolFiles", json!({}))]),
        Reply::calls([("c2", "readToolFile", json!({"fileName": "servers/zoo.pyi"}))]),
        script_call(
            "c3",
            "result = sum([zoo.add(a=i, b=1)[\"sum\"] for i in range(4)])",
        ),
        Reply::text("It is 10."),
    ];
    let model = ScriptedModel::start_strict(steps);
    let gate = start_agent_gate(&model, "tools_to_auto_execute = [\"add\"]", "").await;
    let answer = complete_chat(&gate, "/v1/chat/completions", &hello()).await;
    assert_eq!(
        answer["choices"][0]["message"]["content"], "It is 10.",
        "{answer}"
    );
    let turns = model.turns();
    let tools = turns[0].body["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools
        .iter()
        .map(|t| t["function"]["name"].as_str().unwrap())
        .collect();
    names.retain(|name| !name.contains("Mcp"));
    assert_eq!(
        names
            .iter()
            .filter(|name| CODE_MODE_TOOLS.contains(name))
            .count(),
        4,
        "{names:?}"
    );
    assert!(
        names.contains(&"plain_add") && !names.contains(&"zoo_add"),
        "{names:?}"
    );
    let result = turns[3].body["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["content"]
        .clone();
    assert!(result.as_str().unwrap().starts_with("10\n"), "{result}");
    let run = answer["toolgate"]["run_id"].clone();
    let records = gate.records(&gate.caller()).await;
    let inner: Vec<&Value> = records.iter().filter(|r| r["origin"] == "script").collect();
    assert_eq!(inner.len(), 4);
    assert!(inner.iter().all(|r| r["run_id"] == run), "{inner:?}");
    let saved = eventually("saved tokens are counted", WAIT_TIMEOUT, async || {
        complete_chat(&gate, "/v1/chat/completions", &hello()).await;
        let saved = gate.json("/api/stats").await["saved_tokens"]
            .as_u64()
            .unwrap();
        (saved > 0).then_some(saved)
    });
    assert!(saved.await > 0);
    assert!(
        gate.get("/metrics")
            .await
            .text()
            .await
            .unwrap()
            .contains("toolgate_code_mode_saved_tokens_total")
    );
}

#[tokio::test]
async fn script_with_non_auto_executed_tools_needs_approval() {
    for script in [
        "zoo.add(a=1, b=1)\nzoo.say(text='x')",
        "f = zoo.say",
        "y = zoo\ny.add(a=1, b=1)",
        "[s.add(a=1, b=1) for s in [zoo]]",
        "getattr(zoo, 'sa' + 'y')(text='x')",
    ] {
        let model = ScriptedModel::start_strict(vec![script_call("c1", script)]);
        let gate = start_agent_gate(&model, "tools_to_auto_execute = [\"add\"]", "").await;
        let answer = complete_chat(&gate, "/v1/chat/completions", &hello()).await;
        let call = &answer["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(
            call["function"]["name"], "executeToolCode",
            "{script}: {answer}"
        );
        assert_eq!(
            answer["toolgate"]["stop_reason"], "needs_approval",
            "{script}"
        );
        assert_eq!(answer["toolgate"]["executed"], json!([]), "{script}");
        let records = gate.records(&gate.caller()).await;
        assert!(records.iter().all(|r| r["tool"] != "add"), "nothing ran");
    }
}

#[tokio::test]
async fn run_resumes_with_waiting_script() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.say\"\naction = \"ask\"\narguments = { text = \"danger\" }\n";
    let script = "a = zoo.add(a=1, b=1)[\"sum\"]\nb = zoo.say(text='dan' + 'ger')\nresult = [a, b]";
    let model = ScriptedModel::start_strict(vec![script_call("c1", script), Reply::text("done")]);
    let mut gate =
        start_agent_gate(&model, "tools_to_auto_execute = [\"add\", \"say\"]", rule).await;
    let answer = complete_chat(&gate, "/v1/chat/completions", &hello()).await;
    let note = &answer["toolgate"];
    assert_eq!(note["stop_reason"], "needs_approval", "{answer}");
    let pending = &note["pending"][0];
    assert_eq!(
        (&pending["id"], &pending["name"]),
        (&json!("c1"), &json!("executeToolCode"))
    );
    let inner = &pending["inner"][0];
    assert_eq!(
        (&inner["tool"], &inner["line"]),
        (&json!("zoo.say"), &json!(2)),
        "{pending}"
    );
    assert_eq!(inner["arguments"], r#"{"text":"danger"}"#);
    let approval = inner["approval_id"].as_str().unwrap().to_owned();
    let run = note["run_id"].as_str().unwrap().to_owned();
    // Kill the gateway once its records are on disk, and start it again.
    gate.records(&gate.caller()).await;
    gate.child.kill().unwrap();
    gate.child.wait().unwrap();
    gate.relaunch();
    gate.wait_for_state("zoo", "healthy").await;
    let approve = json!({"decision": "approve"});
    gate.caller()
        .post(&format!("/api/approvals/{approval}"), &approve)
        .await
        .expect_status(200);
    let path = format!("/api/runs/{run}/resume");
    let edited = json!({"decisions": [{"id": "c1", "decision": "approve", "arguments": {"code": "result = 1"}}]});
    let refused = gate.caller().post(&path, &edited).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    let resume = json!({"decisions": [{"id": "c1", "decision": "approve"}]});
    let done = gate.caller().post(&path, &resume).await.expect_status(200);
    assert_eq!(done["choices"][0]["message"]["content"], "done", "{done}");
    let result = model.turns()[1].body["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["content"]
        .clone();
    assert!(
        result.as_str().unwrap().starts_with("[2,\"danger\"]"),
        "{result}"
    );
    let records = gate.records(&gate.caller()).await;
    let ran = |tool: &str| {
        records
            .iter()
            .filter(|r| r["tool"] == tool && r["outcome"] == "ok")
            .count()
    };
    assert_eq!((ran("add"), ran("say")), (1, 1), "each call ran once");
}

#[tokio::test]
async fn hostile_scripts_hit_limits_without_side_effects() {
    let bounds = "[code_mode]\nmax_own_time = \"1s\"\nmax_time = \"20s\"\nmax_calls = 10\nmax_result_bytes = 2000\n";
    let gate = start_gate("", bounds).await;
    let deep = |open: &str, close: &str, count: usize| {
        format!("result = {}1{}", open.repeat(count), close.repeat(count))
    };
    let nested_if: String = (0..300)
        .map(|depth| format!("{}if True:\n", " ".repeat(depth)))
        .collect();
    let scripts = [
        ("for i in range(2000000000):\n  pass".to_owned(), "time"),
        ("x = 3\nfor i in range(40):\n  x = x * x".to_owned(), "time"),
        ("result = max(range(1000000000))".to_owned(), ""),
        (
            "x = [1]\nfor i in range(60):\n  x = x + x".to_owned(),
            "memory",
        ),
        (
            "x = 'a'\nfor i in range(60):\n  x = x + x".to_owned(),
            "memory",
        ),
        ("x = 'a' * 1000000000".to_owned(), "memory"),
        ("x = [0] * 1000000000".to_owned(), "memory"),
        (
            "d = {}\nfor i in range(100000000):\n  d[i] = i".to_owned(),
            "",
        ),
        (
            "x = []\nfor i in range(40):\n  x = [x, x]\nresult = x".to_owned(),
            "",
        ),
        (
            "x = []\nfor i in range(40):\n  x = [x, x]\nresult = str(x)".to_owned(),
            "",
        ),
        (
            "x = ()\nfor i in range(100000):\n  x = (x,)\nresult = {x: 1}".to_owned(),
            "",
        ),
        (deep("(", ")", 20_000), "depth"),
        (deep("[", "]", 20_000), "depth"),
        (deep("-", "", 20_000), "depth"),
        (deep("not ", "", 10_000), "depth"),
        (deep("lambda: ", "", 5_000), "depth"),
        (format!("result = 1{}", "+1".repeat(20_000)), "depth"),
        (format!("{nested_if}{}pass", " ".repeat(300)), "depth"),
        ("def f(n):\n  return f(n + 1)\nf(0)".to_owned(), ""),
        (
            "for i in range(50):\n  zoo.add(a=i, b=i)".to_owned(),
            "calls",
        ),
        (
            "for i in range(100000):\n  print('x' * 1000)".to_owned(),
            "printed",
        ),
        (format!("result = 1 # {}", "x".repeat(70_000)), "source"),
        ("result = 'x' * 20000".to_owned(), "result"),
    ];
    for (script, limit) in scripts {
        let head: String = script.chars().take(60).collect();
        let (error, concurrent) = tokio::join!(
            script_error(&gate, &script),
            script_result(&gate, "result = zoo.add(a=1, b=1)")
        );
        assert_eq!(concurrent, json!({"sum": 2}), "{head}");
        let expected = format!("stopped ({limit})");
        assert!(
            limit.is_empty() || error.contains(&expected),
            "{head}: {error}"
        );
        assert!(error.len() < 20_000, "{head}: {} bytes", error.len());
    }
    assert_eq!(script_result(&gate, "result = 1").await, json!(1));
    let health = gate.get("/health").await;
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn script_is_cancelled_when_client_disconnects() {
    let gate = start_gate("", "").await;
    let slow = json!({"id": "c1", "type": "function", "function": {"name": "executeToolCode",
        "arguments": json!({"code": "zoo.sleep(ms=60000)"}).to_string()}});
    let slow = slow.to_string();
    let answering = gate.post("/v1/mcp/tool/execute", &slow, HeaderMap::new());
    tokio::select! {
        _ = answering => panic!("the script should still sleep"),
        () = gate.wait_for_in_flight_call() => {}
    }
    let caller = gate.caller();
    eventually("both are recorded as cancelled", WAIT_TIMEOUT, async || {
        let records = gate.records(&caller).await;
        let of = |tool: &str| {
            records
                .iter()
                .any(|r| r["tool"] == tool && r["outcome"] == "cancelled")
        };
        (of("sleep") && of("executeToolCode")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn scripts_run_through_api_and_cli() {
    let gate = start_gate(
        "",
        &format!("[keys.alice]\nkey = {ALICE:?}\ntools = [\"plain.*\"]\n"),
    )
    .await;
    let run_code = async |body: Value| gate.caller().post("/api/code/run", &body).await;
    let done = run_code(json!({"code": "result = zoo.add(a=2, b=2)"}))
        .await
        .expect_status(200);
    assert!(text(&done).starts_with("{\"sum\":4}"), "{done}");
    let hidden = run_code(json!({"code": "result = 1", "key": "alice"}))
        .await
        .expect_status(200);
    assert!(is_unknown_tool(&hidden), "{hidden}");
    assert_eq!(run_code(json!({"kode": "x"})).await.status, 400);
    let files = gate.json("/api/code/files").await;
    assert!(text(&files).contains("zoo.pyi"), "{files}");
    let file = gate.json("/api/code/files?name=servers/zoo.pyi").await;
    assert!(text(&file).contains("def add(a: int, b: int)"), "{file}");
    let hidden = gate.json("/api/code/files?key=alice").await;
    assert!(is_unknown_tool(&hidden), "{hidden}");

    let gate = self::start_gate("", "").await;
    let folder = gate.folder.path();
    std::fs::write(
        folder.join("job.py"),
        "print('hi')\nresult = zoo.add(a=1, b=1)\n",
    )
    .unwrap();
    let url = gate.url.as_str();
    let (output, stdout, stderr) = run(folder, &["code", "--url", url, "run", "job.py"]);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.starts_with("{\"sum\":2}"), "{stdout}");
    let (_, stubs, _) = run(folder, &["code", "--url", url, "stubs", "zoo"]);
    assert!(stubs.contains("def add(a: int, b: int)"), "{stubs}");
    let (output, _, stderr) = run(folder, &["code", "--url", url, "run", "missing.py"]);
    assert!(
        !output.status.success() && stderr.contains("missing.py"),
        "{stderr}"
    );
}

#[tokio::test]
async fn reading_files_for_display_leaves_no_trace() {
    let key = format!("[keys.alice]\nkey = {ALICE:?}\nrate_limit = \"1/hour\"\n");
    let gate = start_gate("", &key).await;
    for path in [
        "/api/code/files",
        "/api/code/files?name=servers/zoo.pyi",
        "/api/code/files?key=alice",
        "/api/code/files?key=alice&name=servers/zoo.pyi",
        "/api/code/files?name=servers/nothing.pyi",
    ] {
        let message = gate.json(path).await;
        let is_unknown = path.contains("nothing");
        assert_eq!(message["is_error"].as_bool(), is_unknown.then_some(true));
        assert!(text(&message).contains("zoo"), "{path}: {message}");
    }
    let alice = gate.with_key(ALICE);
    let first = alice.call("listToolFiles", &json!({})).await;
    assert_eq!(first["is_error"], Value::Null, "the key's rate is unused");
    let outcomes = gate.outcomes(&alice).await;
    assert_eq!(outcomes, ["ok"], "only the call is recorded");
    let stats = gate.json("/api/stats").await;
    let called: u64 = stats["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["figures"]["calls"].as_u64().unwrap())
        .sum();
    assert_eq!(called, 1, "{stats}");
}

#[tokio::test]
async fn script_in_an_array_counts_its_own_calls() {
    let key = format!("[keys.alice]\nkey = {ALICE:?}\nrate_limit = \"3/hour\"\n");
    let gate = start_gate("", &key).await;
    let script = "result = [zoo.add(a=n, b=n)['sum'] for n in range(3)]";
    let array = json!([tool_call("executeToolCode", &json!({"code": script}))]);
    let answers = gate.with_key(ALICE).post(EXECUTE, &array).await;
    let answers = answers.expect_status(200);
    assert!(text(&answers[0]).contains("rate limit"), "{answers}");
    let caller = gate.with_key(ALICE);
    let records = gate.records(&caller).await;
    let added = records.iter().filter(|record| record["name"] == "add");
    let outcomes: Vec<&str> = added.map(|r| r["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "ok", "limited"]);
}

#[tokio::test]
async fn undecided_calls_are_no_errors() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.say\"\naction = \"manual\"\narguments = { text = \"danger\" }\n\
        [[permissions.rules]]\ntool = \"plain.add\"\naction = \"ask\"\n";
    let script = "result = zoo.say(text='dan' + 'ger')";
    let model = ScriptedModel::start_strict(vec![script_call("c1", script)]);
    let gate = start_agent_gate(&model, "tools_to_auto_execute = [\"say\"]", rules).await;
    complete_chat(&gate, "/v1/chat/completions", &hello()).await;
    let caller = gate.caller();
    caller.call("plain_add", &json!({"a": 1, "b": 2})).await;
    caller.call("plain_add", &json!({"a": "x"})).await;
    let outcomes = gate.outcomes(&caller).await;
    let of = |outcome: &str| outcomes.iter().filter(|known| *known == outcome).count();
    let counts = (of("manual"), of("ask"), of("bad_arguments"));
    assert_eq!(counts, (2, 1, 1), "{outcomes:?}");

    let stats = gate.json("/api/stats").await;
    let figures = |tool: &str| {
        let tools = stats["tools"].as_array().unwrap();
        let found = tools.iter().find(|entry| entry["tool"] == tool);
        let figures = &found.unwrap_or_else(|| panic!("{tool}: {stats}"))["figures"];
        ["calls", "errors"].map(|name| figures[name].as_u64().unwrap())
    };
    assert_eq!(figures("say"), [1, 0], "must be executed by the caller");
    assert_eq!(figures("executeToolCode"), [1, 0], "suspended");
    assert_eq!(figures("add"), [2, 1], "one waits, one failed");
}

#[tokio::test]
async fn code_mode_can_be_enabled_through_the_api() {
    let gate = start_gate("", "").await;
    assert!(
        list_tool_names(&gate, "/mcp")
            .await
            .contains(&"plain_add".to_owned())
    );
    let patch = json!({"is_code_mode_client": true});
    let path = "/api/mcp/client/plain";
    gate.caller()
        .send(reqwest::Method::PUT, path, &patch)
        .await
        .expect_status(200);
    eventually("only the four tools are listed", WAIT_TIMEOUT, async || {
        (list_tool_names(&gate, "/mcp").await == CODE_MODE_TOOLS).then_some(())
    })
    .await;
    assert_eq!(
        script_result(&gate, "result = plain.add(a=1, b=1)").await,
        json!({"sum": 2})
    );
}
