//! Model providers and their wire formats.
//!
//! Each dialect converts to and from one hub format (a prompt and turn events); a dialect knows
//! the hub but never another dialect. Requests that need no conversion pass through unchanged;
//! [`body::RequestBody`] edits single members of a request and leaves every other byte alone.
//! Access control and tool execution live in the `toolgate` crate.

pub mod body;
pub mod chat;
pub mod dialect;
pub mod endpoint;
pub mod event;
mod fields;
pub mod form;
pub mod history;
pub mod messages;
pub mod observer;
pub mod price;
pub mod prompt;
pub mod provider_tools;
pub mod provider_turn;
pub mod responses;
pub mod token_estimate;
pub mod tools;
pub mod turn;
pub mod upstream;

pub use body::RequestBody;
pub use dialect::{Dialect, WireFormat};
pub use event::{FinishReason, TokenUsage, TurnEvent};
pub use fields::FieldError;
pub use prompt::Prompt;
pub use turn::ModelTurn;
