//! Checks structured results against the output schemas of their tools.

use serde_json::Value;
use toolgate_core::catalog::Tool;
use toolgate_core::config::OnInvalidOutput;

use crate::call::CallError;
use crate::result::{ToolResult, is_input_required};

/// Checks a result. A result that reports a failure needs no structured content.
pub(super) fn check(
    tool: &Tool,
    result: &ToolResult,
    on_invalid: OnInvalidOutput,
    warnings: &mut Vec<String>,
) -> Result<(), CallError> {
    if on_invalid == OnInvalidOutput::Off || result.is_error() {
        return Ok(());
    }
    let Some(problems) = find_problems(tool, result) else {
        return Ok(());
    };
    if on_invalid == OnInvalidOutput::Refuse {
        return Err(CallError::InvalidOutput {
            tool: tool.id.clone(),
            problems,
        });
    }
    tracing::warn!(tool = %tool.id, problems, "result does not match the tool's output schema");
    warnings.push(format!(
        "the result does not match the output schema: {problems}"
    ));
    Ok(())
}

/// Returns why a result violates the output schema of its tool. A schema that cannot be used is not
/// checked, like an input schema.
fn find_problems(tool: &Tool, result: &ToolResult) -> Option<String> {
    let schema = tool.output_schema()?.ok()?;
    if is_input_required(result.raw()) {
        return None;
    }
    let Some(structured) = result.structured_content() else {
        return Some("there is no `structuredContent`".to_owned());
    };
    let value: Value = serde_json::from_str(structured.get()).ok()?;
    let violation = schema.check(&value).err()?;
    let mut problems = violation.problems.join("; ");
    if violation.has_more {
        problems.push_str("; and more");
    }
    Some(problems)
}
