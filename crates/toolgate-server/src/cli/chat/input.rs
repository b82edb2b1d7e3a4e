//! Lines that the user types: with editing and history on a terminal, otherwise plain.

use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::stream::print_now;
use crate::files;

/// File with the prompts of earlier conversations, in the user's data directory.
const HISTORY_FILE: &str = "chat_history";
const MAX_HISTORY_LINES: usize = 1000;

/// Where lines come from.
pub(super) enum ChatInput {
    Terminal(Box<LineEditor>),
    /// A pipe, or a terminal that cannot move its cursor.
    Plain(Lines<BufReader<Stdin>>),
}

/// A line editor. It blocks while it reads, so it is handed to another thread for that.
pub(super) struct LineEditor {
    editor: Option<DefaultEditor>,
    history: Option<PathBuf>,
}

/// What the user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the end of a pipe.
    End,
}

impl ChatInput {
    pub(super) fn open() -> anyhow::Result<Self> {
        let environment = files::environment();
        let term = environment.get("TERM").unwrap_or_default();
        let can_edit = std::io::stdin().is_terminal() && !matches!(term.as_str(), "" | "dumb");
        if !can_edit {
            return Ok(Self::Plain(BufReader::new(tokio::io::stdin()).lines()));
        }
        let mut editor =
            DefaultEditor::with_config(Config::default()).context("cannot read the terminal")?;
        editor.set_max_history_size(MAX_HISTORY_LINES)?;
        let history = files::user_data_dir(&environment);
        let history = history.map(|folder| folder.join(HISTORY_FILE));
        if let Some(file) = &history {
            // There is none at first.
            let _ = editor.load_history(file);
        }
        Ok(Self::Terminal(Box::new(LineEditor {
            editor: Some(editor),
            history,
        })))
    }

    /// Reads a prompt, which is added to the history.
    pub(super) async fn read_prompt(&mut self, prompt: &str) -> anyhow::Result<TypedLine> {
        let line = self.read_line(prompt, "").await?;
        if let (Self::Terminal(editor), TypedLine::Text(text)) = (&mut *self, &line) {
            editor.remember(text);
        }
        Ok(line)
    }

    /// Reads a line that starts with a text which the user may edit.
    pub(super) async fn read_line(
        &mut self,
        prompt: &str,
        initial: &str,
    ) -> anyhow::Result<TypedLine> {
        match self {
            Self::Terminal(editor) => editor.read(prompt.to_owned(), initial.to_owned()).await,
            Self::Plain(lines) => {
                print_now(prompt);
                tokio::select! {
                    line = lines.next_line() => Ok(line?.map_or(TypedLine::End, TypedLine::Text)),
                    _ = tokio::signal::ctrl_c() => Ok(TypedLine::Interrupt),
                }
            }
        }
    }
}

impl LineEditor {
    async fn read(&mut self, prompt: String, initial: String) -> anyhow::Result<TypedLine> {
        let mut editor = self.editor.take().context("the terminal is being read")?;
        let reading = tokio::task::spawn_blocking(move || {
            let line = editor.readline_with_initial(&prompt, (&initial, ""));
            (editor, line)
        });
        let (editor, line) = reading.await?;
        self.editor = Some(editor);
        match line {
            Ok(text) => Ok(TypedLine::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(TypedLine::Interrupt),
            Err(ReadlineError::Eof) => Ok(TypedLine::End),
            Err(error) => Err(error).context("cannot read the terminal"),
        }
    }

    fn remember(&mut self, text: &str) {
        let Some(editor) = &mut self.editor else {
            return;
        };
        // The history is a convenience: a conversation goes on without it.
        if !text.trim().is_empty()
            && editor.add_history_entry(text).unwrap_or(false)
            && let Some(file) = &self.history
        {
            let _ = file.parent().map(create_private_folder);
            let _ = editor.append_history(file);
        }
    }
}

fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}
