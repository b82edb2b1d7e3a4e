//! What one run of a script has used up, and its way to the host.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use starlark::any::ProvidesStaticType;
use starlark::eval::Evaluator;

use super::Host;
use super::trouble::{Limit, Trouble};
use crate::protocol::{Answer, Bounds, Call};

/// One run, for all that natives need of it.
#[derive(ProvidesStaticType)]
pub(super) struct Running<'h> {
    host: RefCell<&'h mut dyn Host>,
    bounds: Bounds,
    started: Instant,
    /// Time that was not the script's own.
    waited: Cell<Duration>,
    calls: Cell<u32>,
    printed: Cell<usize>,
    /// Why it must end. Once set, nothing that the script catches changes it.
    over: Cell<Option<Over>>,
    /// Where the statement starts that runs, in bytes.
    at: Cell<Option<u32>>,
}

/// Why a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Limit(Limit),
    Gone,
}

impl<'h> Running<'h> {
    pub(super) fn new(host: &'h mut dyn Host, bounds: Bounds) -> Self {
        Self {
            host: RefCell::new(host),
            bounds,
            started: Instant::now(),
            waited: Cell::default(),
            calls: Cell::default(),
            printed: Cell::default(),
            over: Cell::default(),
            at: Cell::default(),
        }
    }

    /// The run that an evaluator belongs to.
    pub(super) fn of<'a>(evaluator: &Evaluator<'_, 'a, 'h>) -> Result<&'a Self, Trouble> {
        evaluator
            .extra
            .and_then(|extra| extra.downcast_ref::<Self>())
            .ok_or(Trouble::Astray)
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn over(&self) -> Option<Over> {
        self.over.get()
    }

    /// Ends the run for good.
    pub(super) fn end(&self, limit: Limit) -> Trouble {
        self.over.set(Some(Over::Limit(limit)));
        Trouble::Limit(limit)
    }

    pub(super) fn out_of_time(&self) -> bool {
        let own = self.started.elapsed().saturating_sub(self.waited.get());
        own.as_millis() > u128::from(self.bounds.own_ms)
    }

    /// Where the statement starts that runs, or ran last, in bytes.
    pub(super) fn at(&self) -> Option<usize> {
        usize::try_from(self.at.get()?).ok()
    }

    pub(super) fn reaches(&self, at: u32) {
        self.at.set(Some(at));
    }

    /// What is looked at again and again while the script runs.
    pub(super) fn check(&self, heap: usize) -> Result<(), Trouble> {
        if let Some(over) = self.over.get() {
            return Err(match over {
                Over::Limit(limit) => Trouble::Limit(limit),
                Over::Gone => Trouble::Gone,
            });
        }
        if heap as u64 > self.bounds.memory {
            return Err(self.end(Limit::Memory));
        }
        if self.out_of_time() {
            return Err(self.end(Limit::Time));
        }
        Ok(())
    }

    /// Makes calls side by side.
    pub(super) fn call(&self, calls: Vec<Call>) -> Result<Vec<Answer>, Trouble> {
        let wanted = calls.len();
        let made = u32::try_from(wanted)
            .ok()
            .and_then(|more| self.calls.get().checked_add(more))
            .filter(|made| *made <= self.bounds.calls)
            .ok_or_else(|| self.end(Limit::Calls))?;
        self.calls.set(made);
        let asked = Instant::now();
        let answers = self.host.borrow_mut().call(calls);
        self.waited.set(self.waited.get() + asked.elapsed());
        match answers {
            Ok(answers) if answers.len() == wanted => Ok(answers),
            _ => {
                self.over.set(Some(Over::Gone));
                Err(Trouble::Gone)
            }
        }
    }

    pub(super) fn print(&self, text: &str) -> Result<(), Trouble> {
        let printed = self.printed.get().saturating_add(text.len());
        if printed > self.bounds.printed {
            return Err(self.end(Limit::Printed));
        }
        self.printed.set(printed);
        self.host.borrow_mut().print(text);
        Ok(())
    }
}
