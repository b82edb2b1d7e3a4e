//! State of one script run: consumed resources, the reason to stop, and access to the host.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use starlark::any::ProvidesStaticType;
use starlark::eval::Evaluator;

use super::Host;
use super::error::{LimitKind, ScriptError};
use crate::protocol::{ScriptCall, ScriptCallResult, WorkerLimits};

/// A script run, reachable from native functions through the evaluator.
#[derive(ProvidesStaticType)]
pub(super) struct RunContext<'h> {
    host: RefCell<&'h mut dyn Host>,
    limits: WorkerLimits,
    started: Instant,
    /// Time spent waiting for the host, which does not count towards the time limit.
    waited: Cell<Duration>,
    calls: Cell<u32>,
    printed: Cell<usize>,
    /// Reason to stop. Once set, it stays set even if the script catches the error.
    stop_reason: Cell<Option<StopReason>>,
    /// Byte offset of the current statement.
    statement_offset: Cell<Option<u32>>,
}

/// Reason why a run must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    Limit(LimitKind),
    HostGone,
}

impl<'h> RunContext<'h> {
    pub(super) fn new(host: &'h mut dyn Host, limits: WorkerLimits) -> Self {
        Self {
            host: RefCell::new(host),
            limits,
            started: Instant::now(),
            waited: Cell::default(),
            calls: Cell::default(),
            printed: Cell::default(),
            stop_reason: Cell::default(),
            statement_offset: Cell::default(),
        }
    }

    /// Returns the run that an evaluator belongs to.
    pub(super) fn from_evaluator<'a>(
        evaluator: &Evaluator<'_, 'a, 'h>,
    ) -> Result<&'a Self, ScriptError> {
        evaluator
            .extra
            .and_then(|extra| extra.downcast_ref::<Self>())
            .ok_or(ScriptError::NoRun)
    }

    pub(super) fn limits(&self) -> WorkerLimits {
        self.limits
    }

    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.stop_reason.get()
    }

    /// Stops the run for exceeding a limit. The script cannot catch this.
    pub(super) fn stop(&self, limit: LimitKind) -> ScriptError {
        self.stop_reason.set(Some(StopReason::Limit(limit)));
        ScriptError::Limit(limit)
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        let used = self.started.elapsed().saturating_sub(self.waited.get());
        used.as_millis() > u128::from(self.limits.compute_ms)
    }

    /// Returns the byte offset of the current or last statement.
    pub(super) fn statement_offset(&self) -> Option<usize> {
        usize::try_from(self.statement_offset.get()?).ok()
    }

    pub(super) fn set_statement_offset(&self, offset: u32) {
        self.statement_offset.set(Some(offset));
    }

    /// Checks all limits that are polled while the script runs.
    pub(super) fn check_limits(&self, heap: usize) -> Result<(), ScriptError> {
        if let Some(reason) = self.stop_reason.get() {
            return Err(match reason {
                StopReason::Limit(limit) => ScriptError::Limit(limit),
                StopReason::HostGone => ScriptError::HostGone,
            });
        }
        if heap as u64 > self.limits.memory {
            return Err(self.stop(LimitKind::Memory));
        }
        if self.is_out_of_time() {
            return Err(self.stop(LimitKind::Time));
        }
        Ok(())
    }

    /// Makes calls concurrently.
    pub(super) fn call(
        &self,
        calls: Vec<ScriptCall>,
    ) -> Result<Vec<ScriptCallResult>, ScriptError> {
        let count = calls.len();
        let total = u32::try_from(count)
            .ok()
            .and_then(|more| self.calls.get().checked_add(more))
            .filter(|total| *total <= self.limits.calls)
            .ok_or_else(|| self.stop(LimitKind::Calls))?;
        self.calls.set(total);
        let start = Instant::now();
        let results = self.host.borrow_mut().call(calls);
        self.waited.set(self.waited.get() + start.elapsed());
        match results {
            Ok(results) if results.len() == count => Ok(results),
            _ => {
                self.stop_reason.set(Some(StopReason::HostGone));
                Err(ScriptError::HostGone)
            }
        }
    }

    pub(super) fn print(&self, text: &str) -> Result<(), ScriptError> {
        let printed = self.printed.get().saturating_add(text.len());
        if printed > self.limits.printed {
            return Err(self.stop(LimitKind::Printed));
        }
        self.printed.set(printed);
        self.host.borrow_mut().print(text);
        Ok(())
    }
}
