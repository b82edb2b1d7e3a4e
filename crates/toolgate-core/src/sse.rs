//! Server-sent events, decoded from bytes as they arrive in any chunking.
//!
//! One event may be at most `limit` bytes; what is larger is an error, not a hang.

/// One decoded event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field; empty means `message`.
    pub name: String,
    pub data: String,
    pub id: Option<String>,
    /// The `retry:` field in milliseconds.
    pub retry: Option<u64>,
}

/// Decodes a byte stream into events.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    after_cr: bool,
    at_start: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("an event of the stream is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the stream is not valid UTF-8")]
    NotUtf8,
}

impl Decoder {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes a chunk and appends every event that it completes to `out`.
    pub fn feed(&mut self, mut chunk: &[u8], out: &mut Vec<Event>) -> Result<(), DecodeError> {
        if let Some(first) = chunk.first() {
            let is_second_half = *first == b'\n' && self.after_cr;
            self.after_cr = false;
            chunk = &chunk[usize::from(is_second_half)..];
        }
        while let Some(end) = chunk.iter().position(|&b| b == b'\n' || b == b'\r') {
            self.push(&chunk[..end])?;
            let carriage_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if carriage_return {
                match chunk.first() {
                    Some(b'\n') => chunk = &chunk[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(out)?;
        }
        self.push(chunk)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.limit {
            return Err(DecodeError::TooLarge(self.limit));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<Event>) -> Result<(), DecodeError> {
        let line = std::mem::take(&mut self.line);
        let mut text = std::str::from_utf8(&line).map_err(|_| DecodeError::NotUtf8)?;
        if std::mem::take(&mut self.at_start) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry.is_some() {
                out.push(event);
            }
            return Ok(());
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = "\u{feff}: hello\n\nevent: ping\r\ndata: a\r\ndata:b\r\n\nid: 7\rretry: 20\r\rdata: é\n\n\ndata\n\n";

    fn decode(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<Event> {
        let (mut decoder, mut out) = (Decoder::new(1000), Vec::new());
        for chunk in chunks {
            decoder.feed(&chunk, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn the_same_events_at_every_chunking() {
        let whole = decode([STREAM.as_bytes().to_vec()].into_iter());
        let data: Vec<_> = whole
            .iter()
            .map(|e| (e.name.as_str(), e.data.as_str(), e.id.as_deref(), e.retry))
            .collect();
        assert_eq!(
            data,
            [
                ("ping", "a\nb", None, None),
                ("", "", Some("7"), Some(20)),
                ("", "é", None, None),
                ("", "", None, None)
            ]
        );
        for size in 1..STREAM.len() {
            let chunks = STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec);
            assert_eq!(decode(chunks), whole, "chunks of {size}");
        }
    }

    proptest! {
        /// Whatever comes, in whatever pieces: no panic, and the same events as in one piece.
        #[test]
        fn anything_at_any_chunking(
            lines in prop::collection::vec("(data|event|id|retry|x|)(:| :|: )?[ -~é]{0,12}(\r\n|\n|\r|\n\n)", 0..30),
            noise in prop::collection::vec(any::<u8>(), 0..40),
            cuts in prop::collection::vec(1..9usize, 1..200),
        ) {
            let mut bytes = lines.concat().into_bytes();
            bytes.extend(noise);
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            let (mut one, mut other) = (Decoder::new(1000), Decoder::new(1000));
            let fed = one.feed(&bytes, &mut whole);
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            let mut refed = Ok(());
            while at < bytes.len() && refed.is_ok() {
                let to = (at + cuts.next().unwrap()).min(bytes.len());
                refed = other.feed(&bytes[at..to], &mut pieces);
                at = to;
            }
            prop_assert_eq!(fed.is_ok(), refed.is_ok());
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn an_oversized_event_is_an_error() {
        let mut decoder = Decoder::new(10);
        let fed = decoder.feed(b"data: 1234567890", &mut Vec::new());
        assert_eq!(fed, Err(DecodeError::TooLarge(10)));
    }
}
