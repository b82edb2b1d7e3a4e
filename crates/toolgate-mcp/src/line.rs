//! Reads lines of bounded length. From a line that exceeds the limit only the JSON-RPC id is kept,
//! so that its request can fail at once instead of timing out.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageLine {
    Text(String),
    /// A line over the limit, with the JSON-RPC id at its top level if it is a response.
    TooLong {
        id: Option<u64>,
    },
}

/// Reads lines of bounded length.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: BufReader<R>,
    limit: usize,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(reader: R, limit: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            limit,
            buffer: Vec::new(),
        }
    }

    /// Returns the next line; `None` at the end.
    pub async fn next(&mut self) -> io::Result<Option<MessageLine>> {
        let mut scanner: Option<IdScanner> = None;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(self.finish(scanner));
            }
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let segment = &chunk[..end.unwrap_or(chunk.len())];
            if let Some(scanner) = &mut scanner {
                scanner.feed(segment);
            } else if self.buffer.len() + segment.len() > self.limit {
                let mut new_scanner = IdScanner::default();
                new_scanner.feed(&std::mem::take(&mut self.buffer));
                new_scanner.feed(segment);
                scanner = Some(new_scanner);
            } else {
                self.buffer.extend_from_slice(segment);
            }
            let used = segment.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                let line = self
                    .finish(scanner)
                    .unwrap_or(MessageLine::Text(String::new()));
                return Ok(Some(line));
            }
        }
    }

    fn finish(&mut self, scanner: Option<IdScanner>) -> Option<MessageLine> {
        if let Some(scanner) = scanner {
            return Some(MessageLine::TooLong {
                id: scanner.response_id(),
            });
        }
        if self.buffer.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.buffer);
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(MessageLine::Text(text))
    }
}

/// Maximum number of bytes kept of a string at the top level; more than any `u64` has digits.
const MAX_WORD_BYTES: usize = 24;

/// Finds the id at the top level of a message that arrives in chunks: a number, or a number in a
/// string, which some servers return.
#[derive(Debug, Default)]
struct IdScanner {
    id: Option<u64>,
    /// The message has a method, so it is not a response and its id is the server's.
    has_method: bool,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Start of the last string at the top level.
    word: Vec<u8>,
    /// Value of the digits after `"id":` read so far; `Some` only within or right before the id.
    digits: Option<u64>,
}

impl IdScanner {
    fn response_id(&self) -> Option<u64> {
        self.id.filter(|_| !self.has_method)
    }

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
                b'"' => self.end_string(),
                _ => {}
            }
            if self.in_string && self.depth == 1 && self.word.len() < MAX_WORD_BYTES {
                self.word.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.word.clear();
                return; // `digits` still tells whether this string is the id
            }
            b':' if self.depth == 1 && self.word == b"id" => self.digits = Some(0),
            b':' if self.depth == 1 && self.word == b"method" => self.has_method = true,
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

    fn end_string(&mut self) {
        self.in_string = false;
        if self.digits.take().is_some() {
            let text = std::str::from_utf8(&self.word).ok();
            self.id = text.and_then(|text| text.parse().ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, limit: usize) -> Vec<MessageLine> {
        let mut lines = LineReader::new(text.as_bytes(), limit);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(line);
        }
        out
    }

    #[tokio::test]
    async fn oversized_lines_are_replaced_by_their_id() {
        let text = concat!(
            "one\n\n",
            r#"{"jsonrpc":"2.0","id":41,"result":{"id":7,"text":"a very long text, \"id\":8,"}}"#,
            "\n",
            r#"{"result":{"content":[{"id":9,"text":"a very long text }}\\"}]},"jsonrpc":"2.0","id": 42}"#,
            "\n",
            r#"{"method":"x","params":{"id":5,"text":"a very long text without an id"}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id": "43","result":{"text":"a very long text","id":"7"}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":"43x","result":{"text":"a very long text"},"other":44}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":45,"method":"sampling/createMessage","params":{}}"#,
            "\nlast"
        );
        let text_line = |text: &str| MessageLine::Text(text.to_owned());
        assert_eq!(
            lines(text, 20).await,
            [
                text_line("one"),
                text_line(""),
                MessageLine::TooLong { id: Some(41) },
                MessageLine::TooLong { id: Some(42) },
                MessageLine::TooLong { id: None },
                MessageLine::TooLong { id: Some(43) },
                MessageLine::TooLong { id: None },
                MessageLine::TooLong { id: None },
                text_line("last"),
            ]
        );
    }
}
