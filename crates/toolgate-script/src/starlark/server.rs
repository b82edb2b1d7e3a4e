//! Servers and tools as script values: a server is an object whose methods are its tools.

use std::fmt;
use std::sync::Arc;

use allocative::Allocative;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use starlark::any::ProvidesStaticType;
use starlark::collections::StarlarkHasher;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::{
    Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};

use super::error::ScriptError;
use super::json::{self, Layout};
use super::run_context::RunContext;
use crate::protocol::{ScriptCall, ScriptCallResult, ScriptServer, ScriptTool};

/// Maximum size of the arguments of one call as JSON.
const MAX_ARGUMENTS_BYTES: usize = 1024 * 1024;

/// The last tool lookup that failed.
#[derive(Debug)]
pub(super) struct MissingTool {
    pub(super) server: String,
    pub(super) tool: String,
}

/// Slot for the last failed lookup. It is recorded here because the evaluator can only report "no
/// such attribute". The lock is never contended, but script values must be `Sync`.
pub(super) type MissingToolSlot = Arc<Mutex<Option<MissingTool>>>;

/// A server. Its attributes are its tools.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct ServerValue {
    #[allocative(skip)]
    server: Arc<ScriptServer>,
    #[allocative(skip)]
    missing: MissingToolSlot,
}

/// A callable tool.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct ToolValue {
    #[allocative(skip)]
    server: Arc<ScriptServer>,
    index: usize,
}

starlark_simple_value!(ServerValue);
starlark_simple_value!(ToolValue);

impl fmt::Display for ServerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server.name)
    }
}

impl fmt::Display for ToolValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.server.name, self.tool().name)
    }
}

impl ServerValue {
    pub(super) fn new(server: &ScriptServer, missing: &MissingToolSlot) -> Self {
        Self {
            server: Arc::new(server.clone()),
            missing: Arc::clone(missing),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.server.tools.iter().position(|tool| tool.name == name)
    }
}

#[starlark_value(type = "server")]
impl<'v> StarlarkValue<'v> for ServerValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let Some(index) = self.position(attribute) else {
            *self.missing.lock() = Some(MissingTool {
                server: self.server.name.clone(),
                tool: attribute.to_owned(),
            });
            return None;
        };
        Some(heap.alloc(ToolValue {
            server: Arc::clone(&self.server),
            index,
        }))
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        self.position(attribute).is_some()
    }

    fn dir_attr(&self) -> Vec<String> {
        let tools = self.server.tools.iter();
        tools.map(|tool| tool.name.clone()).collect()
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let other = Self::from_value(other);
        Ok(other.is_some_and(|other| other.server.name == self.server.name))
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        std::hash::Hash::hash(&self.server.name, hasher);
        Ok(())
    }
}

#[starlark_value(type = "tool")]
impl<'v> StarlarkValue<'v> for ToolValue {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let positional: Vec<Value<'v>> = args.positions(eval.heap())?.collect();
        let named = args
            .names_map()
            .map_err(|error| self.bad_call(format!("{}", error.without_diagnostic()), None))?;
        let named: Vec<(&str, Value<'v>)> = named
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        let call = self.build_call(&positional, &named, current_line(eval), eval.heap())?;
        let run = RunContext::from_evaluator(eval)?;
        let result = run.call(vec![call])?.into_iter().next();
        Ok(self.to_value(result.ok_or(ScriptError::HostGone)?, eval.heap())?)
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let other = Self::from_value(other);
        Ok(other.is_some_and(|other| other.to_string() == self.to_string()))
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        std::hash::Hash::hash(&self.to_string(), hasher);
        Ok(())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        (attribute == "__name__").then(|| heap.alloc(self.tool().name.as_str()))
    }
}

impl ToolValue {
    fn tool(&self) -> &ScriptTool {
        &self.server.tools[self.index]
    }

    pub(super) fn bad_call(&self, message: impl Into<String>, hint: Option<String>) -> ScriptError {
        ScriptError::BadCall {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            message: message.into(),
            hint,
        }
    }

    /// Builds a call with these arguments.
    pub(super) fn build_call<'v>(
        &self,
        positional: &[Value<'v>],
        named: &[(&str, Value<'v>)],
        line: u32,
        heap: Heap<'v>,
    ) -> Result<ScriptCall, ScriptError> {
        let arguments = match (positional, named) {
            ([only], []) if let Some(entries) = self.argument_dict(*only) => {
                self.arguments_from_dict(&entries)?
            }
            _ => self.bind_arguments(positional, named)?,
        };
        let mut text = String::from("{");
        for (wire, value) in arguments {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::from(wire.as_str()).to_string());
            text.push(':');
            let room = MAX_ARGUMENTS_BYTES.saturating_sub(text.len());
            let value = json::write(value, &Layout::compact(), room, heap)
                .map_err(|error| self.bad_call(format!("argument `{wire}`: {error}"), None))?;
            text.push_str(&value);
        }
        text.push('}');
        Ok(ScriptCall {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            arguments: RawValue::from_string(text)
                .map_err(|error| self.bad_call(error.to_string(), None))?,
            line,
        })
    }

    /// Converts the result of a call into a script value.
    pub(super) fn to_value<'v>(
        &self,
        result: ScriptCallResult,
        heap: Heap<'v>,
    ) -> Result<Value<'v>, ScriptError> {
        let message = match result {
            ScriptCallResult::Value(raw) => match json::read(raw.get(), heap) {
                Ok(value) => return Ok(value),
                Err(error) => format!("the result of `{self}` is not valid JSON: {error}"),
            },
            ScriptCallResult::Error(message) => message,
        };
        Err(ScriptError::Tool {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            message,
        })
    }

    /// Returns the schema name of a parameter, given by its name in the stub or in the schema.
    fn wire_name(&self, name: &str) -> Option<&str> {
        let parameters = &self.tool().parameters;
        let by_name = parameters.iter().find(|p| p.name == name);
        by_name
            .or_else(|| parameters.iter().find(|p| p.wire() == name))
            .map(|parameter| parameter.wire())
    }

    fn takes_any_arguments(&self) -> bool {
        self.tool().parameters.is_empty()
    }

    /// Returns the entries of a single positional argument that is a dict of all arguments. A dict
    /// with any other key is itself the value of the first parameter.
    fn argument_dict<'v>(&self, value: Value<'v>) -> Option<Vec<(&'v str, Value<'v>)>> {
        let is_known = |name: &str| self.takes_any_arguments() || self.wire_name(name).is_some();
        let dict = DictRef::from_value(value)?;
        dict.iter()
            .map(|(key, value)| {
                let name = key.unpack_str().filter(|name| is_known(name))?;
                Some((name, value))
            })
            .collect()
    }

    /// Takes all arguments from the entries of a dict, unchanged and including its nulls.
    fn arguments_from_dict<'v>(
        &self,
        entries: &[(&str, Value<'v>)],
    ) -> Result<Vec<(String, Value<'v>)>, ScriptError> {
        let mut arguments = Vec::new();
        for (name, value) in entries {
            let wire = self.wire_name(name).unwrap_or(name).to_owned();
            self.push_argument(&mut arguments, wire, *value)?;
        }
        Ok(arguments)
    }

    fn bind_arguments<'v>(
        &self,
        positional: &[Value<'v>],
        named: &[(&str, Value<'v>)],
    ) -> Result<Vec<(String, Value<'v>)>, ScriptError> {
        let parameters = &self.tool().parameters;
        if positional.len() > parameters.len() {
            let message = format!(
                "`{self}` takes {}, but got {} positional arguments",
                self.list_parameters(),
                positional.len()
            );
            return Err(self.bad_call(message, None));
        }
        let mut arguments = Vec::new();
        for (parameter, value) in parameters.iter().zip(positional) {
            self.push_argument(&mut arguments, parameter.wire().to_owned(), *value)?;
        }
        for (name, value) in named {
            let wire = match self.wire_name(name) {
                Some(wire) => wire,
                None if self.takes_any_arguments() => name,
                None => return Err(self.unknown_parameter(name)),
            };
            self.push_argument(&mut arguments, wire.to_owned(), *value)?;
        }
        // Stubs show `= None` for optional parameters, so `None` means that the argument is omitted.
        let is_required = |wire: &str| parameters.iter().any(|p| p.required && p.wire() == wire);
        arguments.retain(|(wire, value)| !value.is_none() || is_required(wire));
        Ok(arguments)
    }

    fn push_argument<'v>(
        &self,
        arguments: &mut Vec<(String, Value<'v>)>,
        wire: String,
        value: Value<'v>,
    ) -> Result<(), ScriptError> {
        if arguments.iter().any(|(known, _)| *known == wire) {
            let message = format!("`{self}` got multiple values for `{wire}`");
            return Err(self.bad_call(message, None));
        }
        arguments.push((wire, value));
        Ok(())
    }

    fn unknown_parameter(&self, name: &str) -> ScriptError {
        let message = format!(
            "`{self}` has no parameter `{name}`; it takes {}",
            self.list_parameters()
        );
        let names = self.tool().parameters.iter().map(|p| p.name.as_str());
        let hint = find_similar(name, names)
            .map(|similar| format!("write `{similar}=` instead of `{name}=`"));
        self.bad_call(message, hint)
    }

    fn list_parameters(&self) -> String {
        let names: Vec<String> = self
            .tool()
            .parameters
            .iter()
            .map(|parameter| format!("`{}`", parameter.name))
            .collect();
        if names.is_empty() {
            return "keyword arguments only".to_owned();
        }
        names.join(", ")
    }
}

/// Returns the error for a tool name that a server does not have.
pub(super) fn unknown_tool(server: &ScriptServer, name: &str) -> ScriptError {
    let names = || server.tools.iter().map(|tool| tool.name.as_str());
    ScriptError::UnknownTool {
        server: server.name.clone(),
        tool: name.to_owned(),
        message: format!("server `{}` has no tool `{name}`", server.name),
        hint: find_similar(name, names())
            .map(|similar| format!("did you mean `{}.{similar}`?", server.name)),
    }
}

/// Returns the name most similar to `name`, if any is similar enough.
pub(super) fn find_similar<'a>(
    name: &str,
    names: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    names
        .map(|candidate| {
            let similarity = strsim::jaro_winkler(&wanted, &candidate.to_lowercase());
            (similarity, candidate)
        })
        .filter(|(similarity, _)| *similarity >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the current line of the script.
pub(super) fn current_line(eval: &Evaluator<'_, '_, '_>) -> u32 {
    (0..eval.call_stack_count())
        .find_map(|n| eval.call_stack_nth_location(n))
        .and_then(|span| u32::try_from(span.resolve_span().begin.line + 1).ok())
        .unwrap_or(0)
}
