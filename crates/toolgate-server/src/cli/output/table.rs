//! Tables and lists of details.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{Layout, print_line, print_note, write_line};

/// Width below which no column is shortened.
const MIN_COLUMN_WIDTH: usize = 8;
/// Blanks between columns.
const GAP: &str = "  ";

/// Rows under headers. `N` is the number of columns.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    headers: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

/// A value of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    align: Align,
    /// Whether the value is of no use if it is shortened.
    is_whole: bool,
}

/// What a value means to the reader, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
    Faint,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Align {
    #[default]
    Left,
    Right,
}

/// Named values of one item.
#[derive(Debug, Default)]
pub(crate) struct Details(Vec<[Cell; 2]>);

impl<const N: usize> Table<N> {
    pub(crate) fn new(headers: [&'static str; N]) -> Self {
        Self {
            headers,
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    /// Prints the table. If it has no rows, tells people so, but adds nothing to what programs read.
    pub(crate) fn print(&self, empty: &str) -> anyhow::Result<()> {
        let layout = Layout::of_stdout();
        if self.rows.is_empty() {
            return match layout {
                Layout::Terminal { .. } => print_line(empty),
                Layout::Plain => {
                    print_note(empty);
                    Ok(())
                }
            };
        }
        self.render(layout)
            .iter()
            .try_for_each(|line| write_line(line))
    }

    fn render(&self, layout: Layout) -> Vec<String> {
        let Layout::Terminal { width, colours } = layout else {
            return self.rows.iter().map(|row| plain_line(row)).collect();
        };
        let header = self
            .headers
            .map(|title| Cell::from(title).tone(Tone::Faint));
        let lines: Vec<&[Cell; N]> = std::iter::once(&header).chain(&self.rows).collect();
        let is_whole =
            std::array::from_fn(|column| self.rows.iter().any(|row| row[column].is_whole));
        let widths = fit(natural_widths(&lines), is_whole, width);
        let align = |column: usize| {
            self.rows
                .first()
                .map_or(Align::Left, |row| row[column].align)
        };
        lines
            .iter()
            .map(|row| {
                let cells = row.iter().enumerate().map(|(column, cell)| {
                    let is_last = column + 1 == N;
                    let cell_width = if is_last && align(column) == Align::Left {
                        cell.clean().width().min(widths[column])
                    } else {
                        widths[column]
                    };
                    cell.render(cell_width, align(column), colours)
                });
                let line = cells.collect::<Vec<_>>().join(GAP);
                line.trim_end().to_owned()
            })
            .collect()
    }
}

impl Details {
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Cell>) -> Self {
        self.0
            .push([Cell::from(name).tone(Tone::Faint), value.into()]);
        self
    }

    /// Adds a value unless it is absent.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<Cell>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Prints one value per line. Long values are not shortened.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let layout = Layout::of_stdout();
        let Layout::Terminal { colours, .. } = layout else {
            return self
                .0
                .iter()
                .try_for_each(|row| write_line(&plain_line(row)));
        };
        let lines: Vec<&[Cell; 2]> = self.0.iter().collect();
        let widths = natural_widths(&lines);
        for [name, value] in &self.0 {
            let name = name.render(widths[0], Align::Left, colours);
            let value = value.render(value.clean().width(), Align::Left, colours);
            write_line(&format!("{name}{GAP}{value}"))?;
        }
        Ok(())
    }
}

impl Cell {
    /// A number, aligned to the right.
    pub(crate) fn number(number: impl std::fmt::Display) -> Self {
        Self {
            text: number.to_string(),
            align: Align::Right,
            ..Self::default()
        }
    }

    /// A value that is never shortened, such as an id.
    pub(crate) fn whole(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_whole: true,
            ..Self::default()
        }
    }

    #[must_use]
    pub(crate) fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Returns the text as a single line without control characters.
    fn clean(&self) -> String {
        let text = self.text.trim();
        let replaced = text.chars().map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        });
        replaced.collect()
    }

    fn render(&self, width: usize, align: Align, colours: bool) -> String {
        let text = shorten(&self.clean(), width);
        let padding = " ".repeat(width.saturating_sub(text.width()));
        let style = self.tone.style().filter(|_| colours && !text.is_empty());
        let text = match style {
            Some(style) => format!("{style}{text}{style:#}"),
            None => text,
        };
        match align {
            Align::Left => text + &padding,
            Align::Right => padding + &text,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl Tone {
    /// Returns the tone of a state of a server, run, approval, call or key.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "healthy" | "ok" | "done" | "approved" | "enabled" | "ready" | "normal" | "allow" => {
                Self::Good
            }
            "connecting" | "degraded" | "waiting" | "pending" | "ask" | "executing" | "high"
            | "running" | "manual" | "limited" | "busy" => Self::Warning,
            "asleep" | "disabled" | "cancelled" | "expired" => Self::Faint,
            "unavailable" | "needs_auth" | "error" | "failed" | "denied" | "deny" | "timeout"
            | "tool_error" | "server" | "away" | "interrupted" | "critical" | "stopping"
            | "not_writable" | "overloaded" | "panicked" | "unauthorized" | "unrecorded" => {
                Self::Bad
            }
            _ => Self::Plain,
        }
    }

    fn style(self) -> Option<Style> {
        Some(match self {
            Self::Plain => return None,
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Faint => Style::new().dimmed(),
        })
    }
}

fn plain_line(row: &[Cell]) -> String {
    let cells: Vec<String> = row.iter().map(Cell::clean).collect();
    cells.join("\t")
}

fn natural_widths<const N: usize>(lines: &[&[Cell; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        let widths = lines.iter().map(|line| line[column].clean().width());
        widths.max().unwrap_or(0)
    })
}

/// Narrows the widest columns until all fit, but none so far that its values cannot be told apart.
fn fit<const N: usize>(mut widths: [usize; N], is_whole: [bool; N], total: usize) -> [usize; N] {
    let gaps = GAP.len() * N.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > total {
        let columns = widths.iter_mut().zip(is_whole);
        let shortened = columns.filter_map(|(width, is_whole)| (!is_whole).then_some(width));
        match shortened.max() {
            Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// Cuts a text to a width in terminal cells.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < width
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let mut table = Table::new(["NAME", "CALLS", "DESCRIPTION"]);
        table.push([
            "fs".into(),
            Cell::number(7),
            "Reads files,\nand writes them".into(),
        ]);
        table.push([
            "日本".into(),
            Cell::number(1234),
            Cell::from("\u{1b}[31mred").tone(Tone::Bad),
        ]);
        table
    }

    fn terminal(width: usize) -> Layout {
        Layout::Terminal {
            width,
            colours: false,
        }
    }

    #[test]
    fn columns_are_aligned_and_narrowed_to_the_terminal() {
        let wide = [
            "NAME  CALLS  DESCRIPTION",
            "fs        7  Reads files, and writes them",
            "日本   1234  \u{fffd}[31mred",
        ];
        assert_eq!(table().render(terminal(80)), wide);
        let narrow = table().render(terminal(26));
        assert_eq!(narrow[1], "fs        7  Reads files,…");
        assert!(narrow.iter().all(|line| line.width() <= 26), "{narrow:?}");
        let narrowest = table().render(terminal(1));
        assert_eq!(narrowest[1], "fs        7  Reads f…");
    }

    #[test]
    fn plain_rows_have_tabs_and_neither_headers_nor_colours() {
        let plain = [
            "fs\t7\tReads files, and writes them",
            "日本\t1234\t\u{fffd}[31mred",
        ];
        assert_eq!(table().render(Layout::Plain), plain);
        let coloured = table().render(Layout::Terminal {
            width: 80,
            colours: true,
        });
        assert!(coloured[2].ends_with("\u{1b}[31m\u{fffd}[31mred\u{1b}[0m"));
    }
}
