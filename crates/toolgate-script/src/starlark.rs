//! The engine for Starlark: a deterministic dialect of Python.

use serde_json::value::RawValue;

use crate::protocol::{Answer, Call, Failure, Script, Value};

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

/// Runs a script to its end.
pub(crate) fn run(_script: &Script, _host: &mut dyn Host) -> Result<Value, Failure> {
    let _: Option<Box<RawValue>> = None;
    Ok(Value::default())
}
