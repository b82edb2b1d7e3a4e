//! `toolgate chat` at a terminal, which `script` plays: somebody decides about calls and interrupts.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Model, Reply};

use crate::agent::{add, gate};
use crate::gate::{SOON, TestGate};

struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// What was shown and not looked for yet.
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
            .expect("`script`, of util-linux, is there");
        Self {
            keys: child.stdin.take().unwrap(),
            screen: child.stdout.take().unwrap(),
            child,
            shown: String::new(),
        }
    }

    /// Waits until this is shown, and gives what was shown before it.
    async fn shows(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(SOON, async {
            loop {
                if let Some(at) = self.shown.find(text) {
                    let before = self.shown[..at].to_owned();
                    self.shown.drain(..at + text.len());
                    return before;
                }
                let mut piece = [0; 4096];
                let read = self.screen.read(&mut piece).await.unwrap();
                assert!(read > 0, "it ended before {text:?}: {}", self.shown);
                self.shown += &String::from_utf8_lossy(&piece[..read]);
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("{text:?} is not shown: {}", self.shown))
    }

    async fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }
}

fn echo(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_echo", json!({"x": 1}))
}

const QUESTION: &str = "Run it? [y] once, [s] always in this conversation, [n] no: ";

#[tokio::test]
async fn somebody_decides_about_calls_and_interrupts() {
    let long = "one two three four five six seven eight nine ten";
    let model = Model::strict(vec![
        Reply::calls([add("c1", 1), echo("c2")]).with_text("Adding."),
        Reply::text("Once."),
        Reply::calls([echo("c3")]),
        Reply::text("Not now."),
        Reply::calls([echo("c4")]),
        Reply::text("From now on."),
        Reply::calls([echo("c5")]),
        Reply::text("Unasked."),
        Reply::text(long).slow(Duration::from_secs(5)),
        Reply::text("Still here."),
    ]);
    let gate = gate(&model, "[\"add\"]", "").await;
    let mut terminal = Terminal::open(&gate);
    terminal.shows("> ").await;
    terminal.types("first\n").await;
    let before = terminal.shows(QUESTION).await;
    assert!(before.contains("Adding."), "{before}");
    assert!(before.contains("[zoo_add {\"a\":1,\"b\":1}]"), "{before}");
    assert!(before.contains("zoo_echo {\"x\":1}"), "{before}");
    terminal.types("y\n").await;
    terminal.shows("Once.").await;
    terminal.types("second\n").await;
    terminal.shows(QUESTION).await;
    terminal.types("what?\n").await;
    terminal.shows(QUESTION).await;
    terminal.types("n\n").await;
    terminal.shows("Not now.").await;
    terminal.types("third\n").await;
    terminal.shows(QUESTION).await;
    terminal.types("s\n").await;
    terminal.shows("From now on.").await;
    terminal.types("fourth\n").await;
    let before = terminal.shows("Unasked.").await;
    assert!(!before.contains("Run it?"), "{before}");
    terminal.types("fifth\n").await;
    terminal.shows("one").await;
    terminal.types("\x03").await;
    terminal.shows("(interrupted)").await;
    eventually("the model is hung up on", SOON, async || {
        (model.disconnects() > 0).then_some(())
    })
    .await;
    terminal.shows("> ").await;
    terminal.types("sixth\n").await;
    terminal.shows("Still here.").await;
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("fourth") && !sent.contains("fifth"), "{sent}");
    terminal.shows("> ").await;
    terminal.types("\x04").await;
    let ended = tokio::time::timeout(SOON, terminal.child.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
}
