//! A tool on one line: `def search(query: str, limit: int = 5) -> Any:  # Searches for videos`.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::identifier::{Use, assign};
use super::shape::{self, Type};
use super::text::{literal, sentence};
use crate::protocol;

/// Bytes of the type of a parameter, of what a tool returns, and of all parameters together.
const PARAMETER_BYTES: usize = 200;
const RETURN_BYTES: usize = 300;
const PARAMETERS_BYTES: usize = 900;
const DEFAULT_BYTES: usize = 40;
const COMMENT: usize = 80;
/// Bytes of a line that is followed by its parameters, and names on it if it is longer.
const SHORT_BYTES: usize = 160;
const SHORT_NAMES: usize = 200;
/// Parts of the schema of all arguments that are followed.
const PARTS: usize = 64;
/// And what they say of one and the same argument.
const OTHERS: usize = 16;

/// The schemas of a tool, parsed.
#[derive(Debug)]
pub(super) struct Schemas {
    input: Value,
    output: Option<Value>,
}

/// An argument that a tool takes.
#[derive(Debug)]
pub(super) struct Parameter<'a> {
    pub(super) identifier: String,
    /// Its name in the schema.
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
    pub(super) required: bool,
    pub(super) kind: Type,
}

impl Schemas {
    /// What cannot be parsed counts as absent.
    pub(super) fn parse(input: Option<&RawValue>, output: Option<&RawValue>) -> Self {
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        Self {
            input: input.and_then(value).unwrap_or_default(),
            output: output.and_then(value).filter(Value::is_object),
        }
    }

    /// Required ones first, else in the schema's order.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        self.named()
            .into_iter()
            .map(|(identifier, found)| Parameter {
                identifier,
                name: found.name,
                schema: found.schema,
                required: found.required,
                kind: found.kind(&self.input),
            })
            .collect()
    }

    /// The parameters as a worker knows them.
    pub(super) fn for_worker(&self) -> Vec<protocol::Parameter> {
        self.named()
            .into_iter()
            .map(|(identifier, found)| protocol::Parameter {
                wire: (identifier != found.name).then(|| found.name.to_owned()),
                name: identifier,
                required: found.required,
            })
            .collect()
    }

    /// Whether a tool that names no arguments takes some: it has no schema, or one that says so.
    fn takes_anything(&self) -> bool {
        match &self.input {
            Value::Object(schema) => match schema.get("additionalProperties") {
                None => schema.is_empty(),
                Some(others) => *others != Value::Bool(false),
            },
            _ => true,
        }
    }

    pub(super) fn returns(&self) -> Type {
        self.output
            .as_ref()
            .map_or(Type::Any, |schema| shape::read(schema, schema))
    }

    fn named(&self) -> Vec<(String, Found<'_>)> {
        let mut search = Search::new(&self.input);
        search.part(&self.input, Certainty::Always);
        let mut found = search.found;
        found.sort_by_key(|found| !found.required);
        let names: Vec<&str> = found.iter().map(|found| found.name).collect();
        assign(&names, Use::Parameter)
            .into_iter()
            .zip(found)
            .collect()
    }
}

/// The line of a tool in the file of its server.
pub(super) fn line(identifier: &str, schemas: &Schemas, description: &str) -> String {
    let head = head(identifier, schemas);
    match sentence(description, COMMENT) {
        comment if comment.is_empty() => head,
        comment => format!("{head}  # {comment}"),
    }
}

/// The line without what is said about the tool; only the names of parameters, if types would be
/// too long.
pub(super) fn short_head(identifier: &str, schemas: &Schemas) -> String {
    let head = head(identifier, schemas);
    if head.len() <= SHORT_BYTES {
        return head;
    }
    let mut names = Vec::new();
    for parameter in schemas.parameters().iter().take(SHORT_NAMES) {
        let identifier = &parameter.identifier;
        names.push(match (parameter.required, parameter.default()) {
            (true, _) => identifier.clone(),
            (false, Some(default)) => format!("{identifier}={default}"),
            (false, None) => format!("{identifier}=None"),
        });
    }
    format!("def {identifier}({}):", names.join(", "))
}

/// The line without what is said about the tool.
fn head(identifier: &str, schemas: &Schemas) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut length = 0;
    for parameter in schemas.parameters() {
        let text = parameter.text(PARAMETER_BYTES);
        length += text.len();
        if length > PARAMETERS_BYTES {
            texts.push("**others".to_owned());
            break;
        }
        texts.push(text);
    }
    if texts.is_empty() && schemas.takes_anything() {
        texts.push("**arguments".to_owned());
    }
    format!(
        "def {identifier}({}) -> {}:",
        texts.join(", "),
        schemas.returns().write(RETURN_BYTES)
    )
}

impl Parameter<'_> {
    fn text(&self, limit: usize) -> String {
        let kind = self.shown().write(limit);
        let Self {
            identifier,
            required,
            ..
        } = self;
        match (required, self.default()) {
            (true, _) => format!("{identifier}: {kind}"),
            (false, Some(default)) => format!("{identifier}: {kind} = {default}"),
            (false, None) => format!("{identifier}: {kind} = None"),
        }
    }

    /// Its type, without the `None` that the default says already.
    pub(super) fn shown(&self) -> Type {
        match self.required || self.default().is_some() {
            true => self.kind.clone(),
            false => self.kind.clone().but_none(),
        }
    }

    /// What a tool takes it to be if it is not given.
    pub(super) fn default(&self) -> Option<String> {
        let default = self
            .schema
            .get("default")
            .filter(|default| !default.is_null())?;
        Some(literal(default, DEFAULT_BYTES).unwrap_or_else(|| "...".to_owned()))
    }
}

#[derive(Clone, Copy)]
enum Certainty {
    Always,
    Sometimes,
}

struct Found<'a> {
    name: &'a str,
    schema: &'a Value,
    /// What other parts of the schema say of it.
    others: Vec<&'a Value>,
    required: bool,
}

impl Found<'_> {
    fn kind(&self, root: &Value) -> Type {
        let kind = shape::read(root, self.schema);
        let others = self.others.iter().map(|other| shape::read(root, other));
        match self.others.is_empty() {
            true => kind,
            false => shape::union([kind].into_iter().chain(others).collect()),
        }
    }
}

/// Looks for parameters in all parts of a schema.
struct Search<'a> {
    root: &'a Value,
    found: Vec<Found<'a>>,
    places: HashMap<&'a str, usize>,
    left: usize,
}

impl<'a> Search<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            found: Vec::new(),
            places: HashMap::new(),
            left: PARTS,
        }
    }

    fn part(&mut self, schema: &'a Value, certainty: Certainty) {
        let Some(schema) = schema.as_object().filter(|_| self.left > 0) else {
            return;
        };
        self.left -= 1;
        for (name, schema) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let place = *self.places.entry(name).or_insert(self.found.len());
            match self.found.get_mut(place) {
                Some(known) if known.schema != schema && known.others.len() < OTHERS => {
                    known.others.push(schema);
                }
                Some(_) => {}
                None => self.found.push(Found {
                    name,
                    schema,
                    others: Vec::new(),
                    required: false,
                }),
            }
        }
        if let Some(meant) = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|r| shape::resolve(self.root, r))
        {
            self.part(meant, certainty);
        }
        for part in parts(schema, "allOf") {
            self.part(part, certainty);
        }
        for word in ["anyOf", "oneOf"] {
            let variants = parts(schema, word);
            for variant in variants {
                self.part(variant, Certainty::Sometimes);
            }
            self.require(in_all(variants), certainty);
        }
        self.require(required(schema).collect(), certainty);
    }

    fn require(&mut self, names: HashSet<&str>, certainty: Certainty) {
        if matches!(certainty, Certainty::Sometimes) {
            return;
        }
        for name in names {
            if let Some(&place) = self.places.get(name) {
                self.found[place].required = true;
            }
        }
    }
}

fn parts<'a>(schema: &'a Map<String, Value>, word: &str) -> &'a [Value] {
    schema
        .get(word)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    parts(schema, "required").iter().filter_map(Value::as_str)
}

/// What every variant requires.
fn in_all(variants: &[Value]) -> HashSet<&str> {
    let mut sets = variants
        .iter()
        .filter_map(Value::as_object)
        .map(|variant| required(variant).collect::<HashSet<_>>());
    let first = sets.next().unwrap_or_default();
    sets.fold(first, |all, set| all.intersection(&set).copied().collect())
}
