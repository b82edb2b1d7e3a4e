//! Checks arguments against the input schema of a tool, and converts values that do not fit.
//!
//! Everything after the check uses the converted arguments: scanner, rules, hooks, approvals, cache
//! and dispatch all see the same bytes.

use toolgate_core::catalog::Tool;
use toolgate_core::config::ArgumentCheck;

use crate::call::{Arguments, ArgumentsError, SchemaViolation};

/// Arguments that passed the check.
#[derive(Debug)]
pub(super) struct CheckedArguments {
    pub(super) arguments: Arguments,
    /// Locations of converted values.
    pub(super) converted: Vec<String>,
}

/// Checks arguments for keys that a server may confuse, and against the tool's schema. With an
/// unusable schema, the latter is left to the server.
pub(super) fn check_arguments<E>(
    tool: &Tool,
    arguments: &Arguments,
    check: ArgumentCheck,
) -> Result<CheckedArguments, E>
where
    E: From<ArgumentsError> + From<SchemaViolation>,
{
    let schema = tool.schema();
    arguments.check_keys(schema.ok())?;
    let coerced = match (schema, check) {
        (_, ArgumentCheck::Off) => None,
        (Ok(schema), ArgumentCheck::Strict) => {
            schema.check(arguments.value())?;
            None
        }
        (Ok(schema), ArgumentCheck::Coerce) => schema.check_or_coerce(arguments.value())?,
        (Err(unusable), _) => {
            tracing::debug!(tool = %tool.id, error = %unusable, "skipping argument validation");
            None
        }
    };
    let Some(coerced) = coerced else {
        return Ok(CheckedArguments {
            arguments: arguments.clone(),
            converted: Vec::new(),
        });
    };
    let arguments = Arguments::from_value(&coerced.value)?;
    // A text that became an object may contain any keys.
    arguments.check_keys(schema.ok())?;
    Ok(CheckedArguments {
        arguments,
        converted: coerced.paths,
    })
}
