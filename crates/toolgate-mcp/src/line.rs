//! Lines of bounded length, and the id of a message whose line is too long to keep.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// A line over the limit, with the JSON-RPC id it had at its top level.
    TooLong {
        id: Option<u64>,
    },
}

/// Takes lines from a reader.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    kept: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(reader: R, limit: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            limit,
            kept: Vec::new(),
        }
    }

    /// The next line; none at the end.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut scanner: Option<IdScanner> = None;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(self.finish(scanner));
            }
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if let Some(scanner) = &mut scanner {
                scanner.feed(part);
            } else if self.kept.len() + part.len() > self.limit {
                let mut started = IdScanner::default();
                started.feed(&std::mem::take(&mut self.kept));
                started.feed(part);
                scanner = Some(started);
            } else {
                self.kept.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                let line = self.finish(scanner).unwrap_or(Line::Text(String::new()));
                return Ok(Some(line));
            }
        }
    }

    fn finish(&mut self, scanner: Option<IdScanner>) -> Option<Line> {
        if let Some(scanner) = scanner {
            return Some(Line::TooLong { id: scanner.id });
        }
        if self.kept.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.kept);
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(Line::Text(text))
    }
}

/// Finds the number after `"id":` at the top level of an object that passes by in pieces.
#[derive(Debug, Default)]
struct IdScanner {
    id: Option<u64>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last string at the top level, as far as it matters.
    word: Vec<u8>,
    /// Digits after `"id":`, while they last.
    digits: Option<u64>,
}

impl IdScanner {
    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            if self.in_string && self.depth == 1 && self.word.len() < 8 {
                self.word.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.word.clear();
            }
            b':' if self.depth == 1 && self.word == b"id" => self.digits = Some(0),
            b'0'..=b'9' => {
                if let Some(number) = &mut self.digits {
                    *number = number
                        .saturating_mul(10)
                        .saturating_add(u64::from(byte - b'0'));
                    self.id = Some(*number);
                }
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if !byte.is_ascii_digit() && byte != b':' && !byte.is_ascii_whitespace() {
            self.digits = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(text.as_bytes(), limit);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(line);
        }
        out
    }

    #[tokio::test]
    async fn short_lines_pass_long_ones_tell_their_id() {
        let text = concat!(
            "one\n\n",
            r#"{"jsonrpc":"2.0","id":41,"result":{"id":7,"text":"a very long text, \"id\":8,"}}"#,
            "\n",
            r#"{"result":{"content":[{"id":9,"text":"a very long text }}\\"}]},"jsonrpc":"2.0","id": 42}"#,
            "\n",
            r#"{"method":"x","params":{"id":5,"text":"a very long text without an id"}}"#,
            "\nlast"
        );
        let text_line = |text: &str| Line::Text(text.to_owned());
        assert_eq!(
            lines(text, 20).await,
            [
                text_line("one"),
                text_line(""),
                Line::TooLong { id: Some(41) },
                Line::TooLong { id: Some(42) },
                Line::TooLong { id: None },
                text_line("last"),
            ]
        );
    }
}
