//! The words and rules of Toolgate, pure: names, tools, the catalog, permission, configuration.
//!
//! Nothing here does I/O or awaits. What belongs to users (schemas, definitions, arguments,
//! results) stays raw JSON, so that unknown fields, key order and the text of numbers survive.

pub mod arguments;
pub mod catalog;
pub mod clean;
pub mod config;
pub mod hash;
pub mod json;
pub mod name;
pub mod pattern;
pub mod policy;
pub mod rate;
pub mod scan;
pub mod schema;
pub mod scope;
pub mod secret;
pub mod shape;
pub mod sse;

pub use catalog::Catalog;
pub use config::Config;
pub use name::{NameStyle, ServerName, ToolId, ToolName};
pub use secret::Secret;
