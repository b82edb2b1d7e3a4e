//! The functions that make calls, and the ones that end or survive them.

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::none::NoneType;
use starlark::values::tuple::{TupleRef, UnpackTuple};
use starlark::values::typing::StarlarkNever;
use starlark::values::{Heap, Value};

use super::running::Running;
use super::server::{ToolValue, line};
use super::spell;
use super::trouble::{self, Trouble};
use crate::protocol::Call;

const SPELLING: &str = "write `parallel([(server.tool, {\"argument\": value}), …])`: tools that are \
                        named and not called yet, each with its arguments";

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    /// Makes calls side by side; their results come in order.
    fn parallel<'v>(
        #[starlark(require = pos)] calls: Value<'v>,
        #[starlark(require = named, default = false)] attempt: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let wanted = wanted(calls, line(eval), heap)?;
        let (tools, calls): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        if calls.is_empty() {
            return Ok(heap.alloc(AllocList::EMPTY));
        }
        let answers = Running::of(eval)?.call(calls)?;
        let mut values = Vec::with_capacity(answers.len());
        for (tool, answer) in tools.into_iter().zip(answers) {
            values.push(match (tool.value(answer, heap), attempt) {
                (Ok(value), false) => value,
                (Ok(value), true) => succeeded(value, heap),
                (Err(error), true) => failed(&error.to_string(), heap),
                (Err(error), false) => return Err(error.into()),
            });
        }
        Ok(heap.alloc(AllocList(values)))
    }

    /// Calls a function and says how it went. Limits are never caught.
    fn attempt<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if spell::kind(function) != "function" && ToolValue::from_value(function).is_none() {
            return Err(Trouble::Misuse {
                message: format!(
                    "`attempt` takes a function, but got a `{}`",
                    spell::kind(function)
                ),
                hint: Some(
                    "write `attempt(lambda: server.tool(…))`, so that the call happens inside"
                        .to_owned(),
                ),
            }
            .into());
        }
        let outcome = eval.eval_function(function, &[], &[]);
        let running = Running::of(eval)?;
        running.check(eval.heap().peak_allocated_bytes())?;
        match outcome {
            Ok(value) => Ok(succeeded(value, eval.heap())),
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) => Ok(failed(&trouble::message(&error), eval.heap())),
        }
    }

    /// Ends the script with a message.
    fn fail<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] sep: Option<&str>,
        heap: Heap<'v>,
    ) -> starlark::Result<StarlarkNever> {
        let text = joined(&args.items, sep.unwrap_or(" "), heap)?;
        Err(Trouble::Fail(text).into())
    }

    /// Says a text to whoever reads the run.
    fn print<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] sep: Option<&str>,
        #[starlark(require = named)] end: Option<&str>,
        #[starlark(require = named)] flush: Option<bool>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        // Python's, and without meaning here.
        let _ = flush;
        let mut text = joined(&args.items, sep.unwrap_or(" "), eval.heap())?;
        text.push_str(end.unwrap_or("\n"));
        Running::of(eval)?.print(&text)?;
        Ok(NoneType)
    }
}

/// Errors that no script may catch.
fn is_fatal(error: &starlark::Error) -> bool {
    matches!(error.kind(), starlark::ErrorKind::StackOverflow(_))
        || matches!(
            trouble::trouble(error),
            Some(Trouble::Limit(_) | Trouble::Gone | Trouble::Astray)
        )
}

fn joined<'v>(values: &[Value<'v>], separator: &str, heap: Heap<'v>) -> Result<String, Trouble> {
    let mut text = String::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            text.push_str(separator);
        }
        let word = spell::str(*value, heap).map_err(|error| Trouble::misuse(error.to_string()))?;
        text.push_str(&word);
    }
    Ok(text)
}

fn succeeded<'v>(value: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    heap.alloc(AllocDict([("ok", Value::new_bool(true)), ("value", value)]))
}

fn failed<'v>(message: &str, heap: Heap<'v>) -> Value<'v> {
    let message = heap.alloc(message);
    heap.alloc(AllocDict([
        ("ok", Value::new_bool(false)),
        ("error", message),
    ]))
}

/// The tools and the calls that `parallel` was given.
fn wanted<'v>(
    calls: Value<'v>,
    line: u32,
    heap: Heap<'v>,
) -> starlark::Result<Vec<(&'v ToolValue, Call)>> {
    let misuse = |what: String| Trouble::Misuse {
        message: what,
        hint: Some(SPELLING.to_owned()),
    };
    if ListRef::from_value(calls).is_none() && TupleRef::from_value(calls).is_none() {
        let kind = spell::kind(calls);
        return Err(misuse(format!("`parallel` takes a list of calls, not a `{kind}`")).into());
    }
    let mut wanted = Vec::new();
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
            let what = match spell::kind(entry) {
                "function" => "a function cannot run side by side with another".to_owned(),
                kind => format!("entry {} is a `{kind}`, not a call", wanted.len() + 1),
            };
            return Err(misuse(what).into());
        };
        let call = match parts[1..] {
            [] => tool.call(&[], &[], line, heap)?,
            [arguments] => match DictRef::from_value(arguments) {
                Some(dict) => keywords(tool, &dict, line, heap)?,
                None => {
                    return Err(tool
                        .bad_call("arguments must be a dict", Some(SPELLING.to_owned()))
                        .into());
                }
            },
            _ => return Err(misuse(format!("`{tool}` takes one dict of arguments here")).into()),
        };
        wanted.push((tool, call));
    }
    Ok(wanted)
}

fn keywords<'v>(
    tool: &ToolValue,
    dict: &DictRef<'v>,
    line: u32,
    heap: Heap<'v>,
) -> Result<Call, Trouble> {
    let mut named = Vec::with_capacity(dict.len());
    for (key, value) in dict.iter() {
        let name = key
            .unpack_str()
            .ok_or_else(|| tool.bad_call("names of arguments must be strings", None))?;
        named.push((name, value));
    }
    tool.call(&[], &named, line, heap)
}
