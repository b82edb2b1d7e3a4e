//! Runs commands on a pseudo-terminal, which `script` of util-linux provides, with a size and a zone.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::gate::{WAIT_TIMEOUT, toolgate};

/// Columns of the terminal.
pub(crate) const COLUMNS: usize = 100;

/// A command on a terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// Output that no `wait_for` has consumed yet.
    shown: String,
}

impl Terminal {
    /// Runs `toolgate` with these arguments, in a folder, on a terminal of this type.
    pub(crate) fn open(folder: &Path, term: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let words = args.iter().map(|word| format!(" '{word}'"));
        let command = format!(
            "stty cols {COLUMNS} rows 40; exec {}{}",
            env!("CARGO_BIN_EXE_toolgate"),
            words.collect::<String>()
        );
        // Takes over the clean environment of other commands.
        let clean = toolgate(folder);
        let variables = clean.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &command])
            .arg("/dev/null")
            .current_dir(folder)
            .env_clear()
            .envs(variables)
            .env("SHELL", "/bin/sh")
            .env("TERM", term)
            .env("TZ", "JST-9")
            .envs(env.iter().copied())
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
    pub(crate) async fn wait_for(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                if let Some(position) = self.shown.find(text) {
                    let before = self.shown[..position].to_owned();
                    self.shown.drain(..position + text.len());
                    return before;
                }
                assert!(
                    self.read_more().await,
                    "the program ended before {text:?}: {}",
                    self.shown
                );
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("{text:?} is not shown: {}", self.shown))
    }

    pub(crate) async fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    /// Waits until the program ends, and returns its exit code and the rest of its output.
    pub(crate) async fn finish(mut self) -> (Option<i32>, String) {
        let end = tokio::time::timeout(WAIT_TIMEOUT, async {
            while self.read_more().await {}
            self.child.wait().await.unwrap()
        });
        let status = end.await.expect("the program does not end");
        (status.code(), self.shown)
    }

    async fn read_more(&mut self) -> bool {
        let mut piece = [0; 4096];
        let read = self.screen.read(&mut piece).await.unwrap();
        self.shown += &String::from_utf8_lossy(&piece[..read]);
        read > 0
    }
}

/// Runs a command on a terminal to its end, and returns its exit code and output.
pub(crate) async fn run_on_terminal(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let terminal = Terminal::open(folder, "xterm", args, &[]);
    terminal.finish().await
}
