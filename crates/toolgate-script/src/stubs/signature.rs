//! Signature of a tool on one line: `def search(query: str, limit: int = 5) -> Any:  # Searches for videos`.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::identifier::{IdentifierUse, assign_identifiers};
use super::schema_types::{self, SchemaType};
use super::text::{first_sentence, python_literal};
use crate::protocol;

// Limits on the type of a parameter, on the return type, and on all parameters together.
const MAX_PARAMETER_BYTES: usize = 200;
const MAX_RETURN_BYTES: usize = 300;
const MAX_PARAMETERS_BYTES: usize = 900;
const MAX_DEFAULT_BYTES: usize = 40;
const MAX_COMMENT_CHARS: usize = 80;
// In documentation, which lists the parameters below: the longest signature with types, and the number of
// parameter names in a longer one.
const MAX_TYPED_HEAD_BYTES: usize = 160;
const MAX_SHORT_HEAD_NAMES: usize = 200;
/// Maximum number of subschemas searched for parameters.
const MAX_SCHEMA_PARTS: usize = 64;
/// Maximum number of alternative schemas kept for one parameter.
const MAX_ALTERNATIVES: usize = 16;

/// The parsed schemas of a tool.
#[derive(Debug)]
pub(super) struct Schemas {
    /// Null if the tool has no input schema.
    input: Value,
    /// `None` if absent or not an object: the result is then untyped.
    output: Option<Value>,
}

/// A parameter of a tool.
#[derive(Debug)]
pub(super) struct SignatureParameter<'a> {
    pub(super) identifier: String,
    /// Name in the schema.
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
    pub(super) required: bool,
    pub(super) kind: SchemaType,
}

impl Schemas {
    /// Parses the schemas. Definitions whose schemas cannot be read are not in the catalog.
    pub(super) fn parse(input: Option<&RawValue>, output: Option<&RawValue>) -> Self {
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        Self {
            input: input.and_then(value).unwrap_or_default(),
            output: output.and_then(value).filter(Value::is_object),
        }
    }

    /// Returns the parameters: required ones first, otherwise in the schema's order.
    pub(super) fn parameters(&self) -> Vec<SignatureParameter<'_>> {
        self.named_parameters()
            .into_iter()
            .map(|(identifier, found)| SignatureParameter {
                identifier,
                name: found.name,
                schema: found.schema,
                required: found.required,
                kind: found.kind(&self.input),
            })
            .collect()
    }

    /// Returns the parameters as sent to the worker.
    pub(super) fn to_script_parameters(&self) -> Vec<protocol::ScriptParameter> {
        self.named_parameters()
            .into_iter()
            .map(|(identifier, found)| protocol::ScriptParameter {
                wire: (identifier != found.name).then(|| found.name.to_owned()),
                name: identifier,
                required: found.required,
            })
            .collect()
    }

    /// Returns whether a tool without named parameters accepts arguments: it has no schema, or its
    /// schema allows additional properties.
    fn takes_anything(&self) -> bool {
        match &self.input {
            Value::Object(schema) => match schema.get("additionalProperties") {
                None => schema.is_empty(),
                Some(others) => *others != Value::Bool(false),
            },
            _ => true,
        }
    }

    pub(super) fn returns(&self) -> SchemaType {
        self.output.as_ref().map_or(SchemaType::Any, |schema| {
            schema_types::read_schema(schema, schema)
        })
    }

    fn named_parameters(&self) -> Vec<(String, FoundParameter<'_>)> {
        let mut search = ParameterSearch::new(&self.input);
        search.visit(&self.input, Certainty::Always);
        let mut found = search.found;
        found.sort_by_key(|found| !found.required);
        let names: Vec<&str> = found.iter().map(|found| found.name).collect();
        assign_identifiers(&names, IdentifierUse::Parameter)
            .into_iter()
            .zip(found)
            .collect()
    }
}

/// Formats the line of a tool in its server's stub file.
pub(super) fn signature_line(identifier: &str, schemas: &Schemas, description: &str) -> String {
    let head = head(identifier, schemas);
    let sentence = first_sentence(description, MAX_COMMENT_CHARS);
    if sentence.is_empty() {
        head
    } else {
        format!("{head}  # {sentence}")
    }
}

/// Formats the signature without a description, and without types if it would be too long.
pub(super) fn short_head(identifier: &str, schemas: &Schemas) -> String {
    let head = head(identifier, schemas);
    if head.len() <= MAX_TYPED_HEAD_BYTES {
        return head;
    }
    let mut names = Vec::new();
    for parameter in schemas.parameters().iter().take(MAX_SHORT_HEAD_NAMES) {
        let identifier = &parameter.identifier;
        names.push(match (parameter.required, parameter.default()) {
            (true, _) => identifier.clone(),
            (false, Some(default)) => format!("{identifier}={default}"),
            (false, None) => format!("{identifier}=None"),
        });
    }
    format!("def {identifier}({}):", names.join(", "))
}

/// Formats the signature without a description.
fn head(identifier: &str, schemas: &Schemas) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut length = 0;
    for parameter in schemas.parameters() {
        let text = parameter.text(MAX_PARAMETER_BYTES);
        length += text.len();
        if length > MAX_PARAMETERS_BYTES {
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
        schemas.returns().write(MAX_RETURN_BYTES)
    )
}

impl SignatureParameter<'_> {
    fn text(&self, limit: usize) -> String {
        let kind = self.displayed_type().write(limit);
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

    /// Returns the type, without a `None` that the default already implies.
    pub(super) fn displayed_type(&self) -> SchemaType {
        if self.required || self.default().is_some() {
            self.kind.clone()
        } else {
            self.kind.clone().without_none()
        }
    }

    /// Returns the default value as a Python literal.
    pub(super) fn default(&self) -> Option<String> {
        let default = self
            .schema
            .get("default")
            .filter(|default| !default.is_null())?;
        Some(python_literal(default, MAX_DEFAULT_BYTES).unwrap_or_else(|| "...".to_owned()))
    }
}

#[derive(Clone, Copy)]
enum Certainty {
    Always,
    Sometimes,
}

struct FoundParameter<'a> {
    name: &'a str,
    schema: &'a Value,
    /// Differing schemas of the same parameter in other parts of the input schema.
    alternatives: Vec<&'a Value>,
    required: bool,
}

impl FoundParameter<'_> {
    fn kind(&self, root: &Value) -> SchemaType {
        let kind = schema_types::read_schema(root, self.schema);
        let alternatives = self
            .alternatives
            .iter()
            .map(|other| schema_types::read_schema(root, other));
        if self.alternatives.is_empty() {
            kind
        } else {
            schema_types::union([kind].into_iter().chain(alternatives).collect())
        }
    }
}

/// Search for parameters in all parts of a schema.
struct ParameterSearch<'a> {
    root: &'a Value,
    found: Vec<FoundParameter<'a>>,
    indexes: HashMap<&'a str, usize>,
    budget: usize,
}

impl<'a> ParameterSearch<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            found: Vec::new(),
            indexes: HashMap::new(),
            budget: MAX_SCHEMA_PARTS,
        }
    }

    fn visit(&mut self, schema: &'a Value, certainty: Certainty) {
        let Some(schema) = schema.as_object().filter(|_| self.budget > 0) else {
            return;
        };
        self.budget -= 1;
        for (name, schema) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let index = *self.indexes.entry(name).or_insert(self.found.len());
            match self.found.get_mut(index) {
                Some(known)
                    if known.schema != schema && known.alternatives.len() < MAX_ALTERNATIVES =>
                {
                    known.alternatives.push(schema);
                }
                Some(_) => {}
                None => self.found.push(FoundParameter {
                    name,
                    schema,
                    alternatives: Vec::new(),
                    required: false,
                }),
            }
        }
        if let Some(target) = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|r| schema_types::resolve_reference(self.root, r))
        {
            self.visit(target, certainty);
        }
        for part in keyword_list(schema, "allOf") {
            self.visit(part, certainty);
        }
        for keyword in ["anyOf", "oneOf"] {
            let variants = keyword_list(schema, keyword);
            for variant in variants {
                self.visit(variant, Certainty::Sometimes);
            }
            self.require(required_in_all(variants), certainty);
        }
        self.require(required_names(schema).collect(), certainty);
    }

    fn require(&mut self, names: HashSet<&str>, certainty: Certainty) {
        if matches!(certainty, Certainty::Sometimes) {
            return;
        }
        for name in names {
            if let Some(&index) = self.indexes.get(name) {
                self.found[index].required = true;
            }
        }
    }
}

fn keyword_list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn required_names(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    keyword_list(schema, "required")
        .iter()
        .filter_map(Value::as_str)
}

/// Returns the names that every variant requires.
fn required_in_all(variants: &[Value]) -> HashSet<&str> {
    let mut sets = variants
        .iter()
        .filter_map(Value::as_object)
        .map(|variant| required_names(variant).collect::<HashSet<_>>());
    // Without variants, no name is required.
    let first = sets.next().unwrap_or_default();
    sets.fold(first, |all, set| all.intersection(&set).copied().collect())
}
