//! Pure domain model of Toolgate: names, tools, the catalog, permissions, schemas, configuration.
//!
//! Nothing here performs I/O or awaits. User data (schemas, definitions, arguments, results)
//! stays raw JSON, so unknown fields, key order and the text of numbers survive.

pub mod arguments;
pub mod caller;
pub mod catalog;
pub mod clean;
pub mod config;
mod fold;
pub mod hash;
pub mod header;
pub mod json;
pub mod name;
pub mod nearest;
pub mod pattern;
pub mod plural;
pub mod policy;
pub mod rate;
pub mod scan;
pub mod schema;
pub mod scope;
pub mod secret;
pub mod sse;

pub use catalog::Catalog;
pub use config::Config;
pub use name::{NameStyle, ServerName, ToolId, ToolName};
pub use secret::Secret;
