//! The script of a model, built before it starts.

use super::{Reply, ScriptedModel};

/// Replies, behaviour after the last one, and the listed models.
#[derive(Debug)]
pub struct ModelScript {
    pub(crate) replies: Vec<Reply>,
    pub(crate) when_exhausted: WhenExhausted,
    pub(crate) models: Vec<String>,
    /// Number of requests for the list of models that fail first.
    pub(crate) failing_lists: usize,
    /// Maximum number of recorded requests; later ones are not recorded.
    pub(crate) max_recorded_requests: usize,
}

/// Behaviour once every reply was used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WhenExhausted {
    RepeatLast,
    Fail,
}

impl ModelScript {
    /// Creates a script with one reply per request; the last one is repeated.
    #[must_use]
    pub fn new(replies: Vec<Reply>) -> Self {
        Self {
            replies,
            when_exhausted: WhenExhausted::RepeatLast,
            models: vec!["scripted".to_owned()],
            failing_lists: 0,
            max_recorded_requests: usize::MAX,
        }
    }

    /// Answers requests after the last reply with 500 and an explanation.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.when_exhausted = WhenExhausted::Fail;
        self
    }

    /// Sets what `GET /v1/models` lists; requests for other models are answered as well.
    #[must_use]
    pub fn with_models<I: Into<String>>(mut self, models: impl IntoIterator<Item = I>) -> Self {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Answers the first requests for the list of models with 503.
    #[must_use]
    pub fn with_failing_lists(mut self, count: usize) -> Self {
        self.failing_lists = count;
        self
    }

    /// Starts a model that follows this script.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(self) -> ScriptedModel {
        ScriptedModel::start_script(self)
    }
}
