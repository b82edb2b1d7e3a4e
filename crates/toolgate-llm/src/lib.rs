//! Model providers and their wire formats.
//!
//! Every dialect is turned into the same prompt and the same turn events, and back, hub and
//! spokes: a dialect knows the hub and never another dialect. Where nothing is to be done, bytes
//! pass through as they came; [`body::Body`] changes single members of a request and leaves all
//! other bytes alone.

pub mod body;
pub mod chat;
pub mod dialect;
pub mod event;
mod fields;
pub mod history;
pub mod messages;
pub mod price;
pub mod prompt;
pub mod responses;
pub mod tap;
pub mod tools;
pub mod turn;
pub mod upstream;

pub use body::Body;
pub use dialect::{Dialect, Wire};
pub use event::{Event, Finish, Usage};
pub use fields::BadField;
pub use prompt::Prompt;
pub use turn::Turn;
