//! The identity on whose behalf tools are listed and called.

pub use toolgate_core::caller::{CallOrigin, Caller};
