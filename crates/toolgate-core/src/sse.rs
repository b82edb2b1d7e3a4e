//! Decodes server-sent events from a byte stream with arbitrary chunk boundaries.
//!
//! An event larger than the configured limit is an error; it is never buffered without bound.

/// A decoded event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// `event:` field; empty means `message`.
    pub name: String,
    pub data: String,
    pub id: Option<String>,
    /// `retry:` field in milliseconds.
    pub retry: Option<u64>,
}

/// Incremental decoder from bytes to events.
#[derive(Debug)]
pub struct SseDecoder {
    max_event_bytes: usize,
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last chunk ended in `\r`, so a `\n` at the start of the next one belongs to it.
    after_cr: bool,
    /// No line has ended yet, so the next one may start with a byte order mark.
    at_start: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseDecodeError {
    #[error("event in the stream is larger than {0} bytes")]
    TooLarge(usize),
    #[error("event stream is not valid UTF-8")]
    NotUtf8,
}

impl SseDecoder {
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Decodes a chunk and appends every completed event to `out`.
    pub fn feed(
        &mut self,
        mut chunk: &[u8],
        out: &mut Vec<SseEvent>,
    ) -> Result<(), SseDecodeError> {
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

    fn push(&mut self, bytes: &[u8]) -> Result<(), SseDecodeError> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.max_event_bytes {
            return Err(SseDecodeError::TooLarge(self.max_event_bytes));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<SseEvent>) -> Result<(), SseDecodeError> {
        let line = std::mem::take(&mut self.line);
        let mut text = std::str::from_utf8(&line).map_err(|_| SseDecodeError::NotUtf8)?;
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
        // A comment starts with `:`, so it is a field without a name.
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
            // An invalid value is ignored.
            "retry" => self.event.retry = value.parse().ok().or(self.event.retry),
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

    fn decode(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<SseEvent> {
        let (mut decoder, mut out) = (SseDecoder::new(1000), Vec::new());
        for chunk in chunks {
            decoder.feed(&chunk, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn events_do_not_depend_on_chunk_boundaries() {
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
        /// Arbitrary input never panics and decodes the same in pieces as in one chunk.
        #[test]
        fn arbitrary_input_decodes_the_same_in_pieces(
            lines in prop::collection::vec("(data|event|id|retry|x|)(:| :|: )?[ -~é]{0,12}(\r\n|\n|\r|\n\n)", 0..30),
            noise in prop::collection::vec(any::<u8>(), 0..40),
            cuts in prop::collection::vec(1..9usize, 1..200),
        ) {
            let mut bytes = lines.concat().into_bytes();
            bytes.extend(noise);
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            let (mut one, mut other) = (SseDecoder::new(1000), SseDecoder::new(1000));
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
    fn oversized_event_is_an_error() {
        let mut decoder = SseDecoder::new(10);
        let fed = decoder.feed(b"data: 1234567890", &mut Vec::new());
        assert_eq!(fed, Err(SseDecodeError::TooLarge(10)));
    }
}
