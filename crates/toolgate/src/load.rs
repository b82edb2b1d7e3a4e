//! The load of the gateway, as the program that runs it measures it, and what is refused under load.

use std::time::Duration;

use arc_swap::ArcSwap;

use crate::call::CallError;
use crate::metrics::Bound;

/// Time after which a request that was refused under load is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How much load the gateway has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadLevel {
    /// Everything is served.
    #[default]
    Normal,
    /// New sessions, streams, agent runs and large bodies are refused.
    High,
    /// Only probes and the administrator are served.
    Critical,
}

/// The load and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The level.
    pub level: LoadLevel,
    /// What is in short supply.
    pub reason: String,
    /// The bound that requests reach which are refused because of it.
    pub bound: Bound,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            level: LoadLevel::Normal,
            reason: String::new(),
            bound: Bound::Load,
        }
    }
}

/// The current load.
#[derive(Debug, Default)]
pub(crate) struct CurrentLoad(ArcSwap<Load>);

impl LoadLevel {
    /// Returns the name of the level in responses and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl CurrentLoad {
    pub(crate) fn get(&self) -> Load {
        (**self.0.load()).clone()
    }

    pub(crate) fn level(&self) -> LoadLevel {
        self.0.load().level
    }

    /// Replaces the load; logs a change of its level.
    pub(crate) fn set(&self, load: Load) {
        let before = self.level();
        match load.level {
            level if level == before => {}
            LoadLevel::Normal => tracing::info!("load is back to normal"),
            level => {
                tracing::warn!(
                    level = level.as_str(),
                    reason = load.reason,
                    "shedding load"
                );
            }
        }
        self.0.store(load.into());
    }

    /// Returns the bound that refused requests reach.
    pub(crate) fn bound(&self) -> Bound {
        self.0.load().bound
    }

    /// Fails if work of less importance is refused.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        if self.level() == LoadLevel::Normal {
            return Ok(());
        }
        Err(CallError::Overloaded {
            retry_after: RETRY_AFTER,
        })
    }
}
