//! `toolgate chat` on a terminal: editing prompts, deciding calls, commands, and interrupting answers.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{add_call, start_gate};
use crate::gate::{TestGate, WAIT_TIMEOUT};
use crate::terminal::Terminal;

fn open_chat(gate: &TestGate, term: &str, env: &[(&str, &str)]) -> Terminal {
    let url = gate.url.strip_prefix("http://").unwrap();
    let args = ["chat", "--url", url, "--model", "openai/m"];
    Terminal::open(gate.folder.path(), term, &args, env)
}

fn echo_call(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_echo", json!({"x": 1}))
}

const QUESTION: &str = "[r] no, with a reason: ";

#[tokio::test]
async fn user_decides_calls_and_interrupts_answers() {
    let long = "one two three four five six seven eight nine ten";
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([add_call("c1", 1), echo_call("c2")]).with_text("Adding."),
        Reply::text("Once."),
        Reply::calls([echo_call("c3")]),
        Reply::text("Not now."),
        Reply::calls([echo_call("c4")]),
        Reply::text("From now on."),
        Reply::calls([echo_call("c5")]),
        Reply::text("Unasked."),
        Reply::text(long).with_pause(Duration::from_secs(5)),
        Reply::text("Still here."),
    ]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let mut terminal = open_chat(&gate, "dumb", &[]);
    terminal.wait_for("> ").await;
    terminal.type_keys("first\n").await;
    let before = terminal.wait_for(QUESTION).await;
    assert!(before.contains("Adding."), "{before}");
    assert!(before.contains("[zoo_add {\"a\":1,\"b\":1}]"), "{before}");
    assert!(before.contains("zoo_echo {\"x\":1}"), "{before}");
    terminal.type_keys("y\n").await;
    terminal.wait_for("Once.").await;
    terminal.type_keys("second\n").await;
    terminal.wait_for(QUESTION).await;
    terminal.type_keys("what?\n").await;
    terminal.wait_for(QUESTION).await;
    terminal.type_keys("n\n").await;
    terminal.wait_for("Not now.").await;
    terminal.type_keys("third\n").await;
    terminal.wait_for(QUESTION).await;
    terminal.type_keys("s\n").await;
    terminal.wait_for("From now on.").await;
    terminal.type_keys("fourth\n").await;
    let before = terminal.wait_for("Unasked.").await;
    assert!(!before.contains("Run it?"), "{before}");
    terminal.type_keys("fifth\n").await;
    terminal.wait_for("one").await;
    terminal.type_keys("\x03").await;
    terminal.wait_for("(interrupted)").await;
    eventually("the model request is cancelled", WAIT_TIMEOUT, async || {
        (model.disconnects() > 0).then_some(())
    })
    .await;
    terminal.wait_for("> ").await;
    terminal.type_keys("sixth\n").await;
    terminal.wait_for("Still here.").await;
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("fourth") && !sent.contains("fifth"), "{sent}");
    terminal.wait_for("> ").await;
    terminal.type_keys("\x04").await;
    let (code, _) = terminal.finish().await;
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn prompts_are_edited_recalled_and_commands_run() {
    let long_text = "first line\nsecond line\nthird line";
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([("c1".to_owned(), "zoo_say", json!({"text": long_text}))]),
        Reply::text("Said."),
        Reply::text("Again."),
        Reply::calls([echo_call("c2")]),
        Reply::text("Edited."),
        Reply::calls([echo_call("c3")]),
        Reply::text("Refused."),
        Reply::text("Other."),
    ]);
    let gate = start_gate(&model, "[\"say\"]", "").await;
    let mut terminal = open_chat(&gate, "xterm", &[]);
    terminal.wait_for("> ").await;
    // Left three times: `helo` becomes `hello`.
    terminal.type_keys("helo\u{1b}[Dl\r").await;
    let before = terminal.wait_for("Said.").await;
    assert!(
        before.contains("first line… (3 lines; /result shows all)"),
        "{before}"
    );
    // Once, among the arguments.
    assert_eq!(before.matches("third line").count(), 1, "{before}");
    assert_eq!(last_prompt(&model), "hello");
    terminal.wait_for("> ").await;
    // Up recalls the prompt.
    terminal.type_keys("\u{1b}[A\r").await;
    terminal.wait_for("Again.").await;
    assert_eq!(last_prompt(&model), "hello");
    for (line, expected) in [
        ("/result", "third line"),
        ("/run", "is done (done); turns: 1"),
        ("/help", "/model [NAME]"),
        ("/tools add", "zoo_add"),
        ("/modle", "did you mean `/model`?"),
        ("/model", "openai/m"),
    ] {
        terminal.wait_for("> ").await;
        terminal.type_keys(&format!("{line}\r")).await;
        terminal.wait_for("\n").await;
        terminal.wait_for(expected).await;
    }
    terminal.wait_for("> ").await;
    terminal.type_keys("edit it\r").await;
    terminal.wait_for(QUESTION).await;
    terminal.type_keys("e\r").await;
    terminal.wait_for("Arguments: ").await;
    // Replaces what is there: Ctrl-U deletes to the beginning of the line.
    terminal.type_keys("\u{15}{\"x\": 2}\r").await;
    terminal.wait_for("Edited.").await;
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(
        sent.contains("\\\"x\\\": 2") || sent.contains("\\\"x\\\":2"),
        "{sent}"
    );
    terminal.wait_for("> ").await;
    terminal.type_keys("refuse it\r").await;
    terminal.wait_for(QUESTION).await;
    terminal.type_keys("r\r").await;
    terminal.wait_for("Reason: ").await;
    terminal.type_keys("not on Mondays\r").await;
    terminal.wait_for("Refused.").await;
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("not on Mondays"), "{sent}");
    terminal.wait_for("> ").await;
    terminal.type_keys("/new\r").await;
    terminal.wait_for("new conversation").await;
    terminal.wait_for("> ").await;
    // Ctrl-C clears the line, but does not quit.
    terminal.type_keys("never sent\u{3}").await;
    terminal.wait_for("press Ctrl-D to quit").await;
    terminal.wait_for("> ").await;
    terminal.type_keys("fresh\r").await;
    terminal.wait_for("Other.").await;
    let messages = model.turns().last().unwrap().body["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 1, "{messages}");
    terminal.wait_for("> ").await;
    terminal.type_keys("\u{4}").await;
    let (code, _) = terminal.finish().await;
    assert_eq!(code, Some(0));
}

fn last_prompt(model: &ScriptedModel) -> String {
    let turns = model.turns();
    let messages = turns.last().unwrap().body["messages"].as_array().cloned();
    let is_user = |message: &&Value| message["role"] == "user";
    let messages = messages.unwrap();
    let prompt = messages.iter().rev().find(is_user).unwrap();
    prompt["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn caller_who_may_not_approve_waits_for_the_approver() {
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([echo_call("c1")]),
        Reply::text("Allowed."),
        Reply::calls([("c2".to_owned(), "zoo_echo", json!({"x": 2}))]),
        Reply::text("Not allowed."),
    ]);
    let key = "tg-a-caller-that-is-no-approver-00000000000000";
    let extra = format!(
        "[keys.alice]\nkey = {key:?}\n[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n"
    );
    let gate = start_gate(&model, "[\"*\"]", &extra).await;
    let mut terminal = open_chat(&gate, "xterm", &[("TOOLGATE_KEY", key)]);
    for (decision, answer) in [
        (json!({"decision": "approve"}), "Allowed."),
        (
            json!({"decision": "deny", "reason": "too early"}),
            "Not allowed.",
        ),
    ] {
        terminal.wait_for("> ").await;
        terminal.type_keys("go\r").await;
        let before = terminal.wait_for("waits for an approver; approval ").await;
        assert!(!before.contains("Run it?"), "{before}");
        let id = terminal.wait_for("]").await;
        let path = format!("/api/approvals/{id}");
        let decided = gate
            .post(&path, &decision.to_string(), Default::default())
            .await;
        assert_eq!(decided.status(), 200);
        terminal.wait_for(answer).await;
    }
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("too early"), "{sent}");
    terminal.wait_for("> ").await;
    terminal.type_keys("\u{4}").await;
    assert_eq!(terminal.finish().await.0, Some(0));
}
