//! Servers and tools as a script sees them: objects with methods.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use allocative::Allocative;
use serde_json::value::RawValue;
use starlark::any::ProvidesStaticType;
use starlark::collections::StarlarkHasher;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::{
    Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};

use super::json::{self, Layout};
use super::running::Running;
use super::trouble::Trouble;
use crate::protocol::{Answer, Call, Server, Tool};

/// The longest arguments of one call, as JSON.
const LONGEST_ARGUMENTS: usize = 1024 * 1024;

/// The server and the name that were asked for last and are not there.
///
/// The language has no way to fail with more than "no such attribute".
pub(super) type Missed = Arc<Mutex<Option<(String, String)>>>;

/// A server, whose attributes are its tools.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct ServerValue {
    #[allocative(skip)]
    server: Arc<Server>,
    #[allocative(skip)]
    missed: Missed,
}

/// A tool, which can be called.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct ToolValue {
    #[allocative(skip)]
    server: Arc<Server>,
    at: usize,
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
    pub(super) fn new(server: &Server, missed: &Missed) -> Self {
        Self {
            server: Arc::new(server.clone()),
            missed: Arc::clone(missed),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.server.tools.iter().position(|tool| tool.name == name)
    }
}

#[starlark_value(type = "server")]
impl<'v> StarlarkValue<'v> for ServerValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let Some(at) = self.position(attribute) else {
            let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
            *missed = Some((self.server.name.clone(), attribute.to_owned()));
            return None;
        };
        Some(heap.alloc(ToolValue {
            server: Arc::clone(&self.server),
            at,
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
        let call = self.call(&positional, &named, line(eval), eval.heap())?;
        let running = Running::of(eval)?;
        let answer = running.call(vec![call])?.into_iter().next();
        Ok(self.value(answer.ok_or(Trouble::Gone)?, eval.heap())?)
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
    fn tool(&self) -> &Tool {
        &self.server.tools[self.at]
    }

    pub(super) fn bad_call(&self, message: impl Into<String>, hint: Option<String>) -> Trouble {
        Trouble::BadCall {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            message: message.into(),
            hint,
        }
    }

    /// The call with these arguments.
    pub(super) fn call<'v>(
        &self,
        positional: &[Value<'v>],
        named: &[(&str, Value<'v>)],
        line: u32,
        heap: Heap<'v>,
    ) -> Result<Call, Trouble> {
        let arguments = match (positional, named) {
            ([only], []) if self.is_arguments(*only) => self.object(*only)?,
            _ => self.bound(positional, named)?,
        };
        let mut text = String::from("{");
        for (wire, value) in arguments {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::from(wire.as_str()).to_string());
            text.push(':');
            let room = LONGEST_ARGUMENTS.saturating_sub(text.len());
            let value = json::write(value, &Layout::compact(), room, heap)
                .map_err(|error| self.bad_call(format!("argument `{wire}`: {error}"), None))?;
            text.push_str(&value);
        }
        text.push('}');
        Ok(Call {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            arguments: RawValue::from_string(text)
                .map_err(|error| self.bad_call(error.to_string(), None))?,
            line,
        })
    }

    /// What an answer is in the script.
    pub(super) fn value<'v>(&self, answer: Answer, heap: Heap<'v>) -> Result<Value<'v>, Trouble> {
        let message = match answer {
            Answer::Value(raw) => match json::read(raw.get(), heap) {
                Ok(value) => return Ok(value),
                Err(error) => format!("the answer of `{self}` is no value: {error}"),
            },
            Answer::Error(message) => message,
        };
        Err(Trouble::Tool {
            server: self.server.name.clone(),
            tool: self.tool().name.clone(),
            message,
        })
    }

    /// The parameter of this name, in the stub or in the schema.
    fn parameter(&self, name: &str) -> Option<&str> {
        let parameters = &self.tool().parameters;
        let by_name = parameters.iter().find(|p| p.name == name);
        by_name
            .or_else(|| parameters.iter().find(|p| p.wire() == name))
            .map(|parameter| parameter.wire())
    }

    fn is_open(&self) -> bool {
        self.tool().parameters.is_empty()
    }

    /// Whether a lone positional argument is the object of all arguments.
    fn is_arguments(&self, value: Value<'_>) -> bool {
        DictRef::from_value(value).is_some_and(|dict| {
            dict.keys().all(|key| {
                let name = key.unpack_str();
                name.is_some_and(|name| self.is_open() || self.parameter(name).is_some())
            })
        })
    }

    /// The object of all arguments goes as it is, with its nulls.
    fn object<'v>(&self, value: Value<'v>) -> Result<Vec<(String, Value<'v>)>, Trouble> {
        let mut arguments = Vec::new();
        let dict = DictRef::from_value(value).ok_or(Trouble::Astray)?;
        for (key, value) in dict.iter() {
            let name = key.unpack_str().unwrap_or_default();
            let wire = self.parameter(name).unwrap_or(name).to_owned();
            self.add(&mut arguments, wire, value)?;
        }
        Ok(arguments)
    }

    fn bound<'v>(
        &self,
        positional: &[Value<'v>],
        named: &[(&str, Value<'v>)],
    ) -> Result<Vec<(String, Value<'v>)>, Trouble> {
        let parameters = &self.tool().parameters;
        if positional.len() > parameters.len() {
            let message = format!(
                "`{self}` takes {}, but {} were given by position",
                self.parameters(),
                positional.len()
            );
            return Err(self.bad_call(message, None));
        }
        let mut arguments = Vec::new();
        for (parameter, value) in parameters.iter().zip(positional) {
            self.add(&mut arguments, parameter.wire().to_owned(), *value)?;
        }
        for (name, value) in named {
            let wire = match self.parameter(name) {
                Some(wire) => wire,
                None if self.is_open() => name,
                None => return Err(self.no_parameter(name)),
            };
            self.add(&mut arguments, wire.to_owned(), *value)?;
        }
        // Stubs show `= None` for what may be left out, so a `None` leaves it out.
        let is_required = |wire: &str| parameters.iter().any(|p| p.required && p.wire() == wire);
        arguments.retain(|(wire, value)| !value.is_none() || is_required(wire));
        Ok(arguments)
    }

    fn add<'v>(
        &self,
        arguments: &mut Vec<(String, Value<'v>)>,
        wire: String,
        value: Value<'v>,
    ) -> Result<(), Trouble> {
        if arguments.iter().any(|(there, _)| *there == wire) {
            let message = format!("`{self}` got a value for `{wire}` twice");
            return Err(self.bad_call(message, None));
        }
        arguments.push((wire, value));
        Ok(())
    }

    fn no_parameter(&self, name: &str) -> Trouble {
        let message = format!(
            "`{self}` has no parameter `{name}`; it takes {}",
            self.parameters()
        );
        let names = self.tool().parameters.iter().map(|p| p.name.as_str());
        let hint = nearest(name, names).map(|near| format!("write `{near}=` instead of `{name}=`"));
        self.bad_call(message, hint)
    }

    fn parameters(&self) -> String {
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

/// The trouble with a name that a server does not have.
pub(super) fn unknown_tool(server: &Server, name: &str) -> Trouble {
    let names = || server.tools.iter().map(|tool| tool.name.as_str());
    Trouble::UnknownTool {
        server: server.name.clone(),
        tool: name.to_owned(),
        message: format!("server `{}` has no tool `{name}`", server.name),
        hint: nearest(name, names()).map(|near| format!("did you mean `{}.{near}`?", server.name)),
    }
}

/// The name that is most like another one, if any is.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    names
        .map(|candidate| {
            let likeness = strsim::jaro_winkler(&wanted, &candidate.to_lowercase());
            (likeness, candidate)
        })
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The line in which the script is.
pub(super) fn line(eval: &Evaluator<'_, '_, '_>) -> u32 {
    (0..eval.call_stack_count())
        .find_map(|n| eval.call_stack_nth_location(n))
        .and_then(|span| u32::try_from(span.resolve_span().begin.line + 1).ok())
        .unwrap_or(0)
}
