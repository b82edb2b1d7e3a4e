//! A single attempt to call a tool, read a resource or get a prompt, which leaves exactly one record.

use std::time::Instant;

use toolgate_core::name::ToolId;
use toolgate_core::secret::Masker;
use tracing::Span;

use tokio::sync::OwnedSemaphorePermit;

use super::chain::EntryKind;
use super::intent_log::IntentLog;
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
    /// Where it was opened first; the settings may change before it is closed.
    intents: Option<IntentLog>,
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
        self.audit.open(update, self.intents.as_ref()).await
    }

    pub(crate) fn close(mut self, answer: &Result<Outcome, CallError>) {
        match answer {
            Ok(outcome) => self.set_outcome(outcome),
            Err(error) => {
                error.code().clone_into(&mut self.record.outcome);
                self.record.error = Some(error.to_string());
            }
        }
        self.finish();
    }

    /// Closes the attempt of a request that is not a tool call.
    pub(crate) fn close_request<T>(mut self, answer: &Result<T, CallError>, size: usize) {
        match answer {
            Ok(_) => "ok".clone_into(&mut self.record.outcome),
            Err(error) => {
                error.code().clone_into(&mut self.record.outcome);
                self.record.error = Some(error.to_string());
            }
        }
        self.record.bytes_out = i64::try_from(size).unwrap_or(i64::MAX);
        self.finish();
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

    fn finish(&mut self) {
        let micros = i64::try_from(self.started.elapsed().as_micros());
        self.record.duration_us = Some(micros.unwrap_or(i64::MAX));
        span::record_outcome(&self.span, &self.record);
        self.is_closed = true;
        if self.slot.is_none() {
            self.audit.count_unrecorded();
            return;
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
            self.audit.close(update, self.intents.as_ref());
        } else if was_refused {
            self.audit.refuse(update);
        } else {
            self.audit.enqueue(update);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_closed {
            CallError::Cancelled
                .code()
                .clone_into(&mut self.record.outcome);
            self.record.error = Some(CallError::Cancelled.to_string());
            self.finish();
        }
    }
}
