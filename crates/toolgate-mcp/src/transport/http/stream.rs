//! One event stream of an HTTP server, and how to go on when it breaks off.

use std::collections::VecDeque;
use std::time::Duration;

use http::HeaderValue;
use reqwest::Response;
use toolgate_core::sse::{DecodeError, Decoder, Event};

use super::failure::{cause, lost};
use crate::MAX_MESSAGE_BYTES;
use crate::transport::RequestError;

const DEFAULT_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 5;

/// Messages of a response body.
#[derive(Debug)]
pub(in crate::transport) struct Stream {
    response: Response,
    decoder: Decoder,
    ready: VecDeque<Event>,
}

/// What a server told us for the case that its stream ends early.
#[derive(Debug, Default)]
pub(in crate::transport) struct Resume {
    last: Option<HeaderValue>,
    retry: Option<Duration>,
    attempts: u32,
}

impl Stream {
    pub(in crate::transport) fn new(response: Response) -> Self {
        Self {
            response,
            decoder: Decoder::new(MAX_MESSAGE_BYTES),
            ready: VecDeque::new(),
        }
    }

    /// The next message; none at the end of the stream.
    pub(in crate::transport) async fn next(
        &mut self,
        resume: &mut Resume,
    ) -> Result<Option<String>, RequestError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                resume.note(&event);
                if !event.data.is_empty() && matches!(event.name.as_str(), "" | "message") {
                    return Ok(Some(event.data));
                }
                continue;
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// The next event, whatever its name.
    pub(in crate::transport) async fn event(&mut self) -> Result<Option<Event>, RequestError> {
        while self.ready.is_empty() {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads on; false at the end.
    async fn more(&mut self) -> Result<bool, RequestError> {
        let chunk = self
            .response
            .chunk()
            .await
            .map_err(|error| lost(&cause(&error)))?;
        let Some(chunk) = chunk else { return Ok(false) };
        let mut events = Vec::new();
        let fed = self.decoder.feed(&chunk, &mut events);
        self.ready.extend(events);
        fed.map_err(|error| match error {
            DecodeError::TooLarge(limit) => RequestError::TooLarge(limit),
            DecodeError::NotUtf8 => RequestError::Malformed(error.to_string()),
        })?;
        Ok(true)
    }
}

impl Resume {
    fn note(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            self.last = HeaderValue::from_str(id).ok();
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry).min(LONGEST_RETRY));
        }
    }

    /// Waits as the server asked, then says where to go on; none if that is not possible.
    pub(super) async fn again(&mut self) -> Option<HeaderValue> {
        let last = self.last.clone()?;
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            return None;
        }
        tokio::time::sleep(self.retry.unwrap_or(DEFAULT_RETRY)).await;
        Some(last)
    }
}
