//! What a model is going to say, before it starts.

use super::{Model, Reply};

/// The replies, what happens after the last, and which models are offered.
#[derive(Debug)]
pub struct Script {
    pub(crate) replies: Vec<Reply>,
    pub(crate) after: After,
    pub(crate) models: Vec<String>,
    /// So many requests are recorded, and later ones forgotten.
    pub(crate) memory: usize,
}

/// What a request gets when every reply was played.
#[derive(Debug, Clone, Copy)]
pub(crate) enum After {
    LastAgain,
    Failure,
}

impl Script {
    /// These replies, one a request; the last is repeated.
    #[must_use]
    pub fn new(replies: Vec<Reply>) -> Self {
        Self {
            replies,
            after: After::LastAgain,
            models: vec!["scripted".to_owned()],
            memory: usize::MAX,
        }
    }

    /// Requests after the last reply get a 500 that says so.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.after = After::Failure;
        self
    }

    /// What `GET /v1/models` lists; every model is answered for all the same.
    #[must_use]
    pub fn models<I: Into<String>>(mut self, models: impl IntoIterator<Item = I>) -> Self {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Starts a model that plays this.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(self) -> Model {
        Model::perform(self)
    }
}
