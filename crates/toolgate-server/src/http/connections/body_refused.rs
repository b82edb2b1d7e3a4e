//! The reasons for which the body of a request is not received to its end.

use toolgate::HeldFull;
use toolgate::metrics::Bound;

use super::RETRY_AFTER;
use crate::http::error::ApiError;

/// Reasons why a body is not received to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BodyRefused {
    #[error(
        "the gateway holds too many large request bodies (`capacity.max_bodies_mb`); try again in a moment"
    )]
    All,
    #[error(
        "too many large requests and unread responses of this key are in progress (`capacity.max_bodies_mb_per_key`); send fewer at a time, and read the responses"
    )]
    Key,
    #[error("the gateway is overloaded and takes no large request bodies; try again in a moment")]
    Overloaded(Bound),
}

impl From<HeldFull> for BodyRefused {
    fn from(full: HeldFull) -> Self {
        match full {
            HeldFull::All => Self::All,
            HeldFull::Key => Self::Key,
        }
    }
}

impl BodyRefused {
    pub(super) fn bound(self) -> Bound {
        match self {
            Self::All => HeldFull::All.bound(),
            Self::Key => HeldFull::Key.bound(),
            Self::Overloaded(bound) => bound,
        }
    }

    pub(in crate::http) fn to_error(self) -> ApiError {
        match self {
            Self::Key => ApiError::too_many_requests(self.to_string(), Some(RETRY_AFTER)),
            Self::All | Self::Overloaded(_) => ApiError::overloaded(self.to_string(), RETRY_AFTER),
        }
    }
}
