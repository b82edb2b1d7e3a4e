//! A single attempt to call a tool, which leaves exactly one record.

use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use toolgate_core::name::ToolId;
use toolgate_core::secret::Masker;
use tracing::Span;

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
    /// Passed to the writer with the final update; `None` once closed.
    slot: Option<OwnedSemaphorePermit>,
}

impl Attempt {
    pub(super) fn new(
        mut record: Box<AuditRecord>,
        span: Span,
        audit: AuditLog,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        writer::trim_content(&mut record.arguments);
        Self {
            record,
            masker: None,
            span,
            started: Instant::now(),
            audit,
            slot: Some(slot),
        }
    }

    /// Sets the tool that the call resolved to.
    pub(crate) fn set_tool(&mut self, tool: &ToolId) {
        self.record.set_tool(tool);
        span::set_span_name(&self.span, tool.tool.as_str());
    }

    /// Records that the call is about to be sent.
    pub(crate) fn open(&self) {
        self.enqueue(self.record.clone(), None);
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
        let (record, slot) = (std::mem::take(&mut self.record), self.slot.take());
        self.enqueue(record, slot);
    }

    fn enqueue(&self, record: Box<AuditRecord>, slot: Option<OwnedSemaphorePermit>) {
        self.audit.publish(&record, self.masker.as_ref());
        self.audit.enqueue(RecordUpdate {
            record,
            masker: self.masker.clone(),
            slot,
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.slot.is_some() {
            CallError::Cancelled
                .code()
                .clone_into(&mut self.record.outcome);
            self.record.error = Some(CallError::Cancelled.to_string());
            self.finish();
        }
    }
}
