//! The engine for Starlark: a deterministic dialect of Python.
//!
//! The language is the library's, with functions added that Python has ([`globals`]), so that what
//! models write gives Python's answer or fails with the spelling that works ([`hints`]). Its own limits
//! are courtesy: what natives do in one go is bounded by the process and its host.
//!
//! What runs, and differs from Python: `True == 1` is False, so that truths are no keys or items like
//! numbers; NaN equals itself; `f"{x}"` and `.format` put the texts inside lists and dicts in double
//! quotes (`str(x)`, `print` and `%` do not); `map`, `filter`, `zip`, `enumerate`, `reversed`,
//! `d.keys()`, `d.values()` and `d.items()` give lists; sets keep their order; and `type(x) == "dict"`
//! is True, as documented for code mode.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::value::RawValue;
use starlark::codemap::FileSpanRef;
use starlark::environment::Module;
use starlark::eval::{BeforeStmtFunc, BeforeStmtFuncDyn, Evaluator};
use starlark::syntax::{AstModule, Dialect, DialectTypes};
use starlark::values::Heap;

use self::json::{Layout, WriteError};
use self::running::{Over, Running};
use self::server::{Missed, ServerValue};
use self::source::Source;
use self::texts::PERCENT;
use self::trouble::Limit;
use crate::protocol::{Answer, Call, Failure, FailureKind, Script, Value};

mod calls;
mod format;
mod globals;
mod hints;
mod json;
#[allow(
    unsafe_code,
    clippy::panic,
    reason = "derived for values of the language; neither is written here"
)]
mod kind;
mod lex;
mod numbers;
#[allow(
    unsafe_code,
    reason = "derived, so that natives find their run; none is written here"
)]
mod running;
mod scan;
#[allow(
    unsafe_code,
    clippy::panic,
    reason = "derived for values of the language; neither is written here"
)]
mod sequences;
#[allow(
    unsafe_code,
    clippy::panic,
    reason = "derived for values of the language; neither is written here"
)]
mod server;
mod source;
mod spell;
#[cfg(test)]
mod tests;
mod texts;
mod trouble;

/// The stack that a thread needs to run any script that is let through.
pub(crate) const STACK: usize = 64 * 1024 * 1024;

/// How deep functions may call each other.
const FRAMES: usize = 200;

/// What a running script can reach.
pub(crate) trait Host {
    /// Makes calls side by side and waits for their answers, which come in order.
    fn call(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, Gone>;

    /// Says a text, line breaks included.
    fn print(&mut self, text: &str);
}

/// The host does not answer any more: the script must end at once, whatever it would catch.
#[derive(Debug)]
pub(crate) struct Gone;

/// Runs a script to its end, on a thread with a stack of [`STACK`] bytes.
pub(crate) fn run(script: &Script, host: &mut dyn Host) -> Result<Value, Failure> {
    let source = Source::new(&script.code);
    let running = Running::new(host, script.bounds);
    let outcome = catch_unwind(AssertUnwindSafe(|| evaluate(script, &source, &running)));
    let mut outcome = outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    if let Err(failure) = &mut outcome {
        hints::add(failure, &source);
    }
    outcome.map_err(|failure| {
        let failure = match running.over() {
            Some(Over::Limit(limit)) => Failure {
                line: failure.line,
                column: failure.column,
                ..limit.failure()
            },
            _ => failure,
        };
        let line = failure.line.or_else(|| source.line_at(running.at()?));
        Failure { line, ..failure }
    })
}

fn evaluate(script: &Script, source: &Source, running: &Running<'_>) -> Result<Value, Failure> {
    scan::scan(source.text()).map_err(Limit::failure)?;
    let ast = parsed(source)?;
    let missed = Missed::default();
    Module::with_temp_heap(|module| {
        for server in &script.servers {
            let value = module.heap().alloc(ServerValue::new(server, &missed));
            module.set(&server.name, value);
        }
        let mut evaluator = Evaluator::new(&module);
        let last = prepare(&mut evaluator, running)
            .and_then(|()| evaluator.eval_module(ast, globals::globals()));
        let last = last.map_err(|error| {
            let error = explain(error, script, &missed);
            trouble::failure(&error, source)
        })?;
        let result = module
            .get("result")
            .filter(|value| ServerValue::from_value(*value).is_none());
        let value = result.or_else(|| Some(last).filter(|last| !last.is_none()));
        value.map_or(Ok(Value::default()), |value| {
            answer(value, running, module.heap())
        })
    })
}

fn parsed(source: &Source) -> Result<AstModule, Failure> {
    let ast = AstModule::parse(source.name(), source.text().to_owned(), &dialect());
    let mut ast = ast.map_err(|error| Failure {
        kind: FailureKind::Syntax,
        ..trouble::failure(&error, source)
    })?;
    if let Some((line, message)) = hints::refused(source) {
        return Err(Failure {
            line: Some(line),
            ..Failure::new(FailureKind::Syntax, message)
        });
    }
    ast.replace_binary_operators(&operators(source));
    Ok(ast)
}

/// Operators for which a function of ours stands, because the language's own would answer otherwise
/// than Python, or not at all.
fn operators(source: &Source) -> HashMap<String, String> {
    let of_types = kind::OPERATORS.into_iter();
    let of_types = of_types.filter(|_| source.text().contains("type("));
    std::iter::once(("%", PERCENT))
        .chain(of_types)
        .map(|(operator, function)| (operator.to_owned(), function.to_owned()))
        .collect()
}

fn prepare<'v, 'a, 'e>(
    evaluator: &mut Evaluator<'v, 'a, 'e>,
    running: &'a Running<'e>,
) -> starlark::Result<()> {
    evaluator.extra = Some(running);
    evaluator.set_max_callstack_size(FRAMES)?;
    evaluator.set_check_cancelled(Box::new(|| {
        let late = running.out_of_time();
        if late {
            running.end(Limit::Time);
        }
        late
    }));
    evaluator.before_stmt_for_dap(BeforeStmtFunc::from_dyn(Box::new(Watch)));
    Ok(())
}

/// Looks at time and memory before each statement; the language itself does so too rarely.
struct Watch;

impl<'e> BeforeStmtFuncDyn<'e> for Watch {
    fn call<'v>(
        &mut self,
        span: FileSpanRef<'_>,
        _continued: bool,
        eval: &mut Evaluator<'v, '_, 'e>,
    ) -> starlark::Result<()> {
        let heap = eval.heap().allocated_bytes();
        let running = Running::of(eval)?;
        running.reaches(span.span.begin().get());
        running.check(heap)?;
        Ok(())
    }
}

/// Says which tool a server does not have, where the language only knows of attributes.
fn explain(error: starlark::Error, script: &Script, missed: &Missed) -> starlark::Error {
    if !trouble::message(&error).starts_with("Object of type `server`") {
        return error;
    }
    let missed = missed.lock().ok().and_then(|mut missed| missed.take());
    let Some((server, tool)) = missed else {
        return error;
    };
    let server = script.servers.iter().find(|known| known.name == server);
    let Some(server) = server else { return error };
    let trouble = server::unknown_tool(server, &tool);
    trouble::instead(&error, trouble)
}

fn answer<'v>(
    value: starlark::values::Value<'v>,
    running: &Running<'_>,
    heap: Heap<'v>,
) -> Result<Value, Failure> {
    let text = json::write(value, &Layout::compact(), running.bounds().result, heap);
    let text = text.map_err(|error| match error {
        WriteError::Large(_) | WriteError::Depth => Limit::Result.failure(),
        other => Failure::new(
            FailureKind::Runtime,
            format!("the result is no JSON: {other}"),
        ),
    })?;
    let value = RawValue::from_string(text)
        .map_err(|error| Failure::new(FailureKind::Runtime, error.to_string()))?;
    Ok(Value { value: Some(value) })
}

/// A panic of the language: out of memory, or a defect.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    if text.contains("out of memory") || text.contains("AlignedSize") || text.contains("capacity") {
        return Limit::Memory.failure();
    }
    Failure::new(FailureKind::Runtime, "the engine failed on this script")
}

fn dialect() -> Dialect {
    Dialect {
        enable_def: true,
        enable_lambda: true,
        enable_load: false,
        enable_keyword_only_arguments: true,
        enable_positional_only_arguments: true,
        enable_types: DialectTypes::ParseOnly,
        enable_load_reexport: false,
        enable_top_level_stmt: true,
        enable_f_strings: true,
        ..Dialect::Standard
    }
}
