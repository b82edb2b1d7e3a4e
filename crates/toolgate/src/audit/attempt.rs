//! A single attempt to call a tool, read a resource or get a prompt, which leaves exactly one record.

use std::io;
use std::time::{Duration, Instant};

use toolgate_core::name::ToolId;
use toolgate_core::secret::Masker;
use tracing::Span;

use tokio::sync::OwnedSemaphorePermit;

use super::chain::EntryKind;
use super::intent_log::{AppendedLine, IntentLog};
use super::record::byte_len;
use super::writer::{self, RecordUpdate};
use super::{AuditLog, AuditRecord, span};
use crate::call::{CallError, Outcome};

/// An attempt in flight. Dropping it unclosed records it as cancelled.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The record so far; boxed because it is moved repeatedly.
    pub(crate) record: Box<AuditRecord>,
    /// Masks the secrets of the called server.
    pub(crate) masker: Option<Masker>,
    /// The tracing span of the attempt.
    pub(crate) span: Span,
    started: Instant,
    audit: AuditLog,
    /// Whether the record was opened, because the call is about to be sent.
    is_open: bool,
    /// The log that has its opening; the settings may change before it is closed.
    intents: Option<IntentLog>,
    /// Whether the call may have reached its server. One that did not is not charged.
    is_sent: bool,
    is_closed: bool,
    /// Passed to the writer with the final update. `None` if there was none and calls go on without
    /// records; then nothing is written.
    slot: Option<OwnedSemaphorePermit>,
}

impl Attempt {
    pub(super) fn new(
        mut record: Box<AuditRecord>,
        span: Span,
        audit: AuditLog,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        writer::trim_content(&mut record.arguments);
        Self {
            record,
            masker: None,
            span,
            started: Instant::now(),
            audit,
            is_open: false,
            intents: None,
            is_sent: false,
            is_closed: false,
            slot,
        }
    }

    /// Sets the tool that the call resolved to.
    pub(crate) fn set_tool(&mut self, tool: &ToolId) {
        self.record.set_tool(tool);
        span::set_span_name(&self.span, tool.tool.as_str());
    }

    /// Records that the call is about to be sent. It must not be sent if this fails.
    pub(crate) async fn open(&mut self) -> Result<(), CallError> {
        if self.slot.is_none() {
            return Ok(());
        }
        // From here on, the call leaves a record of its own even if opening it fails or is cancelled.
        self.is_open = true;
        let update = RecordUpdate {
            kind: EntryKind::Opened,
            record: self.record.clone(),
            masker: self.masker.clone(),
            slot: None,
            intent: None,
        };
        self.intents = self.audit.intents().cloned();
        self.audit.open(update, &mut self.intents).await
    }

    /// Returns the time since the attempt began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Marks the call as sent, so that it is recorded as charged.
    pub(crate) fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Marks the call as not sent, since it certainly did not reach its server.
    pub(crate) fn mark_unsent(&mut self) {
        self.is_sent = false;
    }

    /// Closes the attempt. Its outcome survives the process when this returns.
    pub(crate) async fn close(mut self, answer: &Result<Outcome, CallError>) {
        match answer {
            Ok(outcome) => self.set_outcome(outcome),
            Err(error) => {
                error.code().clone_into(&mut self.record.outcome);
                self.record.error = Some(error.to_string());
            }
        }
        self.finish_and_write().await;
    }

    /// Closes the attempt of a request that is not a tool call.
    pub(crate) async fn close_request<T>(mut self, answer: &Result<T, CallError>, size: usize) {
        match answer {
            Ok(_) => "ok".clone_into(&mut self.record.outcome),
            Err(error) => {
                error.code().clone_into(&mut self.record.outcome);
                self.record.error = Some(error.to_string());
            }
        }
        self.record.bytes_out = i64::try_from(size).unwrap_or(i64::MAX);
        self.finish_and_write().await;
    }

    fn set_outcome(&mut self, outcome: &Outcome) {
        let code = if outcome.result.is_error() {
            "tool_error"
        } else {
            "ok"
        };
        let record = &mut self.record;
        code.clone_into(&mut record.outcome);
        record.set_tool(&outcome.tool);
        record.bytes_out = byte_len(outcome.result.raw().get());
        record.result = Some(outcome.result.raw().to_owned());
        writer::trim_content(&mut record.result);
        record.cached = outcome.cached;
    }

    async fn finish_and_write(&mut self) {
        let appended = self.finish();
        let (Some(appended), Some(intents)) = (appended, &self.intents) else {
            return;
        };
        let written = match appended {
            Ok(line) => intents.write(line, false).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            self.audit.report_unwritten_end(&error);
        }
    }

    /// Passes the final record to the writer. Returns its line of the intent log, if it has one.
    fn finish(&mut self) -> Option<io::Result<AppendedLine>> {
        let micros = i64::try_from(self.started.elapsed().as_micros());
        self.record.duration_us = Some(micros.unwrap_or(i64::MAX));
        if !self.is_sent {
            self.record.charged = false;
            self.record.cost_micro_usd = 0;
        }
        span::record_outcome(&self.span, &self.record);
        self.is_closed = true;
        if self.slot.is_none() {
            self.audit.count_unrecorded();
            return None;
        }
        let was_refused =
            !self.is_open && !matches!(self.record.outcome.as_str(), "ok" | "tool_error");
        let update = RecordUpdate {
            kind: if was_refused {
                EntryKind::Refused
            } else {
                EntryKind::Closed
            },
            record: std::mem::take(&mut self.record),
            masker: self.masker.clone(),
            slot: self.slot.take(),
            intent: None,
        };
        if self.is_open {
            return self.audit.close(update, self.intents.as_ref());
        }
        if was_refused {
            self.audit.refuse(update);
        } else {
            self.audit.enqueue(update);
        }
        None
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_closed {
            CallError::Cancelled
                .code()
                .clone_into(&mut self.record.outcome);
            self.record.error = Some(CallError::Cancelled.to_string());
            let appended = self.finish();
            if let (Some(appended), Some(intents)) = (appended, &self.intents)
                && let Err(error) = appended.and_then(|_| intents.try_write())
            {
                self.audit.report_unwritten_end(&error);
            }
        }
    }
}
