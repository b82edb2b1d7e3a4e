//! One attempt, from before it is decided until it is closed.

use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use toolgate_core::name::ToolId;
use toolgate_core::secret::Masker;
use tracing::Span;

use super::record::length;
use super::writer::{self, Note};
use super::{Audit, Record};
use crate::call::{CallError, Outcome};
use crate::event::Event;
use crate::trace;

/// An attempt under way; dropping it records that it was cancelled.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// What will be recorded; boxed, since it is moved about.
    pub(crate) record: Box<Record>,
    /// Hides the secrets of the server that is called.
    pub(crate) masker: Option<Masker>,
    /// The attempt as it is traced.
    pub(crate) span: Span,
    began: Instant,
    audit: Audit,
    /// Given to the writer with the last note.
    place: Option<OwnedSemaphorePermit>,
}

impl Attempt {
    pub(super) fn new(
        mut record: Box<Record>,
        span: Span,
        audit: Audit,
        place: OwnedSemaphorePermit,
    ) -> Self {
        writer::trim(&mut record.arguments);
        Self {
            record,
            masker: None,
            span,
            began: Instant::now(),
            audit,
            place: Some(place),
        }
    }

    /// Records the tool that is meant.
    pub(crate) fn about(&mut self, tool: &ToolId) {
        self.record.about(tool);
        trace::call::name(&self.span, tool.tool.as_str());
    }

    /// Records that the call is about to be sent.
    pub(crate) fn open(&self) {
        self.note(self.record.clone(), None);
    }

    pub(crate) fn close(mut self, answer: &Result<Outcome, CallError>) {
        match answer {
            Ok(outcome) => self.ran(outcome),
            Err(error) => {
                error.code().clone_into(&mut self.record.outcome);
                self.record.error = Some(error.to_string());
            }
        }
        self.end();
    }

    fn ran(&mut self, outcome: &Outcome) {
        let word = match outcome.result.is_error() {
            true => "tool_error",
            false => "ok",
        };
        let record = &mut self.record;
        word.clone_into(&mut record.outcome);
        record.about(&outcome.tool);
        record.bytes_out = length(outcome.result.raw().get());
        record.result = Some(outcome.result.raw().to_owned());
        writer::trim(&mut record.result);
        record.cached = outcome.cached;
    }

    fn end(&mut self) {
        let micros = i64::try_from(self.began.elapsed().as_micros());
        self.record.duration_us = Some(micros.unwrap_or(i64::MAX));
        trace::call::close(&self.span, &self.record);
        let (record, place) = (std::mem::take(&mut self.record), self.place.take());
        self.note(record, place);
    }

    fn note(&self, record: Box<Record>, place: Option<OwnedSemaphorePermit>) {
        self.audit
            .events
            .tell(|| Event::Call(self.audit.shown(&record, self.masker.as_ref())));
        let note = Note {
            record,
            masker: self.masker.clone(),
            place,
        };
        if let Err(lost) = self.audit.queue.send(note) {
            tracing::error!(
                request = lost.0.record.request_id,
                "an attempt could not be recorded: the gateway has stopped"
            );
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.place.is_some() {
            CallError::Cancelled
                .code()
                .clone_into(&mut self.record.outcome);
            self.record.error = Some(CallError::Cancelled.to_string());
            self.end();
        }
    }
}
