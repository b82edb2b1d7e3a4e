//! `toolgate chat` in a terminal emulated by `script`: deciding calls and interrupting answers.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{add_call, start_gate};
use crate::gate::{TestGate, WAIT_TIMEOUT};

struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// Output that no `wait_for` has consumed yet.
    shown: String,
}

impl Terminal {
    fn open(gate: &TestGate) -> Self {
        let toolgate = env!("CARGO_BIN_EXE_toolgate");
        let command = format!("exec {toolgate} chat --url {} --model openai/m", gate.url);
        let mut child = Command::new("script")
            .args([
                "--quiet",
                "--flush",
                "--return",
                "--command",
                &command,
                "/dev/null",
            ])
            .env_clear()
            .env("PATH", env!("PATH"))
            .env("HOME", gate.folder.path())
            .env("SHELL", "/bin/sh")
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("`script` of util-linux is not installed");
        Self {
            keys: child.stdin.take().unwrap(),
            screen: child.stdout.take().unwrap(),
            child,
            shown: String::new(),
        }
    }

    /// Waits until the text is shown and returns the output before it.
    async fn wait_for(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                if let Some(position) = self.shown.find(text) {
                    let before = self.shown[..position].to_owned();
                    self.shown.drain(..position + text.len());
                    return before;
                }
                let mut piece = [0; 4096];
                let read = self.screen.read(&mut piece).await.unwrap();
                assert!(
                    read > 0,
                    "the program ended before {text:?}: {}",
                    self.shown
                );
                self.shown += &String::from_utf8_lossy(&piece[..read]);
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("{text:?} is not shown: {}", self.shown))
    }

    async fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }
}

fn echo_call(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_echo", json!({"x": 1}))
}

const QUESTION: &str = "Run it? [y] once, [s] always in this conversation, [n] no: ";

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
    let mut terminal = Terminal::open(&gate);
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
    let ended = tokio::time::timeout(WAIT_TIMEOUT, terminal.child.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
}
