//! An event stream from an HTTP server, and the state needed to resume it after a disconnect.

use std::collections::VecDeque;
use std::time::Duration;

use http::HeaderValue;
use reqwest::Response;
use toolgate_core::sse::{SseDecodeError, SseDecoder, SseEvent};

use super::errors::{lost_error, root_cause};
use crate::MAX_MESSAGE_BYTES;
use crate::transport::RequestError;

const DEFAULT_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_RESUME_ATTEMPTS: u32 = 5;

/// The events of a response body.
#[derive(Debug)]
pub(in crate::transport) struct EventStream {
    response: Response,
    decoder: SseDecoder,
    ready: VecDeque<SseEvent>,
}

/// State for resuming a stream that ends early.
#[derive(Debug, Default)]
pub(in crate::transport) struct ResumeState {
    last_event_id: Option<HeaderValue>,
    retry: Option<Duration>,
    attempts: u32,
}

impl EventStream {
    pub(in crate::transport) fn new(response: Response) -> Self {
        Self {
            response,
            decoder: SseDecoder::new(MAX_MESSAGE_BYTES),
            ready: VecDeque::new(),
        }
    }

    /// Returns the next message, skipping other events; `None` at the end of the stream.
    pub(in crate::transport) async fn next_message(
        &mut self,
        resume: &mut ResumeState,
    ) -> Result<Option<String>, RequestError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                resume.record(&event);
                if !event.data.is_empty() && matches!(event.name.as_str(), "" | "message") {
                    return Ok(Some(event.data));
                }
                continue;
            }
            if !self.read_chunk().await? {
                return Ok(None);
            }
        }
    }

    /// Returns the next event of any name.
    pub(in crate::transport) async fn next_event(
        &mut self,
    ) -> Result<Option<SseEvent>, RequestError> {
        while self.ready.is_empty() {
            if !self.read_chunk().await? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the next chunk; returns false at the end.
    async fn read_chunk(&mut self) -> Result<bool, RequestError> {
        let chunk = self
            .response
            .chunk()
            .await
            .map_err(|error| lost_error(&root_cause(&error)))?;
        let Some(chunk) = chunk else { return Ok(false) };
        let mut events = Vec::new();
        let result = self.decoder.feed(&chunk, &mut events);
        self.ready.extend(events);
        result.map_err(|error| match error {
            SseDecodeError::TooLarge(limit) => RequestError::TooLarge(limit),
            SseDecodeError::NotUtf8 => RequestError::Malformed(error.to_string()),
        })?;
        Ok(true)
    }
}

impl ResumeState {
    fn record(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            self.last_event_id = HeaderValue::from_str(id).ok();
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry).min(MAX_RETRY_DELAY));
        }
    }

    /// Waits as long as the server requested, then returns the last event id; `None` if the stream
    /// cannot be resumed.
    pub(super) async fn wait_retry(&mut self) -> Option<HeaderValue> {
        let last_event_id = self.last_event_id.clone()?;
        self.attempts += 1;
        if self.attempts > MAX_RESUME_ATTEMPTS {
            return None;
        }
        tokio::time::sleep(self.retry.unwrap_or(DEFAULT_RETRY_DELAY)).await;
        Some(last_event_id)
    }
}
