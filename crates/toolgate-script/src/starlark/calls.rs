//! Native functions for calls, errors and output: `parallel`, `attempt`, `fail` and `print`.

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::none::NoneType;
use starlark::values::tuple::{TupleRef, UnpackTuple};
use starlark::values::typing::StarlarkNever;
use starlark::values::{Heap, Value};

use super::error::{self, ScriptError};
use super::repr;
use super::run_context::RunContext;
use super::server::{ToolValue, current_line};
use crate::protocol::ScriptCall;

const PARALLEL_USAGE: &str = "write `parallel([(server.tool, {\"argument\": value}), …])`: pass each tool \
                              without calling it, together with its arguments";

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    /// Makes calls concurrently and returns their results in order.
    fn parallel<'v>(
        #[starlark(require = pos)] calls: Value<'v>,
        #[starlark(require = named, default = false)] attempt: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let collected = collect_calls(calls, current_line(eval), heap)?;
        let (tools, calls): (Vec<_>, Vec<_>) = collected.into_iter().unzip();
        if calls.is_empty() {
            return Ok(heap.alloc(AllocList::EMPTY));
        }
        let results = RunContext::from_evaluator(eval)?.call(calls)?;
        let mut values = Vec::with_capacity(results.len());
        for (tool, result) in tools.into_iter().zip(results) {
            values.push(match (tool.to_value(result, heap), attempt) {
                (Ok(value), false) => value,
                (Ok(value), true) => success_value(value, heap),
                (Err(error), true) => failure_value(&error.to_string(), heap),
                (Err(error), false) => return Err(error.into()),
            });
        }
        Ok(heap.alloc(AllocList(values)))
    }

    /// Calls a function and returns its value or its error. Exceeded limits are never caught.
    fn attempt<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if repr::type_name(function) != "function" && ToolValue::from_value(function).is_none() {
            return Err(ScriptError::Misuse {
                message: format!(
                    "`attempt` takes a function, not a `{}`",
                    repr::type_name(function)
                ),
                hint: Some(
                    "write `attempt(lambda: server.tool(…))`, so that `attempt` makes the call"
                        .to_owned(),
                ),
            }
            .into());
        }
        let outcome = eval.eval_function(function, &[], &[]);
        let run = RunContext::from_evaluator(eval)?;
        run.check_limits(eval.heap().peak_allocated_bytes())?;
        match outcome {
            Ok(value) => Ok(success_value(value, eval.heap())),
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) => Ok(failure_value(&error::message(&error), eval.heap())),
        }
    }

    /// Stops the script with an error message.
    fn fail<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] sep: Option<&str>,
        heap: Heap<'v>,
    ) -> starlark::Result<StarlarkNever> {
        let text = join_values(&args.items, sep.unwrap_or(" "), heap)?;
        Err(ScriptError::Fail(text).into())
    }

    /// Appends text to the script's output.
    fn print<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] sep: Option<&str>,
        #[starlark(require = named)] end: Option<&str>,
        #[starlark(require = named)] flush: Option<bool>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        // Accepted for compatibility with Python, but has no effect.
        let _ = flush;
        let mut text = join_values(&args.items, sep.unwrap_or(" "), eval.heap())?;
        text.push_str(end.unwrap_or("\n"));
        RunContext::from_evaluator(eval)?.print(&text)?;
        Ok(NoneType)
    }
}

/// Returns whether an error must not be caught by the script.
fn is_fatal(error: &starlark::Error) -> bool {
    matches!(error.kind(), starlark::ErrorKind::StackOverflow(_))
        || matches!(
            error::find_script_error(error),
            Some(ScriptError::Limit(_) | ScriptError::HostGone | ScriptError::NoRun)
        )
}

fn join_values<'v>(
    values: &[Value<'v>],
    separator: &str,
    heap: Heap<'v>,
) -> Result<String, ScriptError> {
    let mut text = String::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            text.push_str(separator);
        }
        let word =
            repr::str(*value, heap).map_err(|error| ScriptError::misuse(error.to_string()))?;
        text.push_str(&word);
    }
    Ok(text)
}

fn success_value<'v>(value: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    heap.alloc(AllocDict([("ok", Value::new_bool(true)), ("value", value)]))
}

fn failure_value<'v>(message: &str, heap: Heap<'v>) -> Value<'v> {
    let message = heap.alloc(message);
    heap.alloc(AllocDict([
        ("ok", Value::new_bool(false)),
        ("error", message),
    ]))
}

/// Converts the argument of `parallel` into calls.
fn collect_calls<'v>(
    calls: Value<'v>,
    line: u32,
    heap: Heap<'v>,
) -> starlark::Result<Vec<(&'v ToolValue, ScriptCall)>> {
    let misuse = |message: String| ScriptError::Misuse {
        message,
        hint: Some(PARALLEL_USAGE.to_owned()),
    };
    if ListRef::from_value(calls).is_none() && TupleRef::from_value(calls).is_none() {
        let kind = repr::type_name(calls);
        return Err(misuse(format!("`parallel` takes a list of calls, not a `{kind}`")).into());
    }
    let mut collected = Vec::new();
    for entry in calls.iterate(heap)? {
        let parts: Vec<Value<'v>> = if ToolValue::from_value(entry).is_some() {
            vec![entry]
        } else if let Some(tuple) = TupleRef::from_value(entry) {
            tuple.iter().collect()
        } else if let Some(list) = ListRef::from_value(entry) {
            list.iter().collect()
        } else {
            Vec::new()
        };
        let tool = parts
            .first()
            .and_then(|first| ToolValue::from_value(*first));
        let Some(tool) = tool else {
            let message = match repr::type_name(entry) {
                "function" => "`parallel` cannot run functions".to_owned(),
                kind => format!("entry {} is a `{kind}`, not a call", collected.len() + 1),
            };
            return Err(misuse(message).into());
        };
        let call = match parts[1..] {
            [] => tool.build_call(&[], &[], line, heap)?,
            [arguments] => match DictRef::from_value(arguments) {
                Some(dict) => build_keyword_call(tool, &dict, line, heap)?,
                None => {
                    return Err(tool
                        .bad_call("arguments must be a dict", Some(PARALLEL_USAGE.to_owned()))
                        .into());
                }
            },
            _ => return Err(misuse(format!("`{tool}` takes one dict of arguments here")).into()),
        };
        collected.push((tool, call));
    }
    Ok(collected)
}

fn build_keyword_call<'v>(
    tool: &ToolValue,
    dict: &DictRef<'v>,
    line: u32,
    heap: Heap<'v>,
) -> Result<ScriptCall, ScriptError> {
    let mut named = Vec::with_capacity(dict.len());
    for (key, value) in dict.iter() {
        let name = key
            .unpack_str()
            .ok_or_else(|| tool.bad_call("argument names must be strings", None))?;
        named.push((name, value));
    }
    tool.build_call(&[], &named, line, heap)
}
