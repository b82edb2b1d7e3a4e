//! What commands print. On a terminal: tables with headers and colours that fit its width, short ids and
//! local times. Otherwise, for programs: one line per item with fields separated by tabs, full ids and
//! times as the API sends them.

mod id;
mod table;
mod time;

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
pub(super) use id::{find_by_id, format_id};
pub(super) use table::{Cell, Details, Table, Tone};
pub(super) use time::{format_time, parse_future_time, parse_past_time};

/// Width of a terminal that does not tell its size.
const DEFAULT_WIDTH: usize = 80;

/// The form of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// For people.
    Terminal { width: usize, colours: bool },
    /// For programs.
    Plain,
}

impl Layout {
    /// Returns the layout for standard output.
    fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::Plain;
        }
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        Self::Terminal {
            width: width.filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH),
            colours: AutoStream::choice(&stdout) != ColorChoice::Never,
        }
    }
}

/// Prints a line to standard output.
pub(super) fn print_line(text: &str) -> anyhow::Result<()> {
    write_line(&sanitize_for_terminal(
        text,
        std::io::stdout().is_terminal(),
    ))
}

/// Prints an error and its causes to standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    print_note(&format!("error: {error:#}"));
}

/// Prints a line to standard error.
pub(super) fn print_note(text: &str) {
    let text = sanitize_for_terminal(text, std::io::stderr().is_terminal());
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Replaces control characters if the output is a terminal, so that text from servers and tools cannot
/// send escape sequences to it.
pub(super) fn sanitize_for_terminal(text: &str, terminal: bool) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && c != '\n' && c != '\t';
    if terminal && text.contains(is_unsafe) {
        Cow::Owned(text.replace(is_unsafe, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Writes text that is safe for a terminal, and a line break.
fn write_line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
