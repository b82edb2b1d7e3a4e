//! All there is to know about one tool, as a function with its docstring.

use std::fmt::Write as _;

use serde_json::Value;

use super::shape::Type;
use super::signature::{Parameter, Schemas, short_head};
use super::text::{line, literal, paragraph};

const DESCRIPTION: usize = 6000;
const PARAMETER: usize = 600;
const TYPE_BYTES: usize = 1200;
const PARAMETERS: usize = 200;
const VALUES: usize = 100;
const VALUES_BYTES: usize = 2000;
const CONSTRAINT_BYTES: usize = 80;

const CONSTRAINTS: [&str; 13] = [
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contentEncoding",
];

pub(super) fn docs(server: &str, identifier: &str, schemas: &Schemas, description: &str) -> String {
    let parameters = schemas.parameters();
    let mut text = short_head(identifier, schemas);
    text.push_str("\n    \"\"\"");
    text.push_str(&paragraph(description, DESCRIPTION, "    "));
    if !text.ends_with("\"\"\"") {
        text.push_str("\n\n    ");
    }
    if !parameters.is_empty() {
        text.push_str("Args:");
    }
    for parameter in parameters.iter().take(PARAMETERS) {
        argument(&mut text, parameter);
    }
    if parameters.len() > PARAMETERS {
        let _ = write!(
            text,
            "\n        ... and {} more",
            parameters.len() - PARAMETERS
        );
    }
    let returns = match schemas.returns() {
        Type::Any => "Any (not declared: print it once to see what it is)".to_owned(),
        kind => kind.write(TYPE_BYTES),
    };
    if !parameters.is_empty() {
        text.push_str("\n\n    ");
    }
    let _ = write!(text, "Returns: {returns}");
    let _ = write!(
        text,
        "\n\n    Example: result = {}",
        example(server, identifier, &parameters)
    );
    text.push_str("\n    \"\"\"\n");
    text
}

fn argument(text: &mut String, parameter: &Parameter<'_>) {
    let Parameter {
        identifier, schema, ..
    } = parameter;
    let kind = parameter.shown().write(TYPE_BYTES);
    let _ = write!(text, "\n        {identifier}: {kind}");
    match (parameter.required, parameter.default()) {
        (true, _) => text.push_str(", required"),
        (false, Some(default)) => {
            let _ = write!(text, " = {default}");
        }
        (false, None) => text.push_str(" = None"),
    }
    for (word, value) in CONSTRAINTS
        .iter()
        .filter_map(|word| Some((word, schema.get(word)?)))
    {
        if let Some(value) = literal(value, CONSTRAINT_BYTES) {
            let _ = write!(text, ", {word} {value}");
        }
    }
    if parameter.name != identifier {
        let _ = write!(
            text,
            ", sent as {}",
            super::text::quoted(&line(parameter.name, CONSTRAINT_BYTES))
        );
    }
    let description = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let description = paragraph(&line(description, PARAMETER), PARAMETER, "");
    if !description.is_empty() {
        let _ = write!(text, ". {description}");
    }
    if let Some(values) = all_values(schema) {
        let _ = write!(text, "\n            one of: {values}");
    }
}

/// The values of an enumeration that the type does not show.
fn all_values(schema: &Value) -> Option<String> {
    let values = schema
        .get("enum")
        .or_else(|| schema.get("items")?.get("enum"))?
        .as_array()?;
    if values.len() <= 12 {
        return None;
    }
    let mut left = VALUES_BYTES;
    let mut texts = Vec::new();
    for value in values.iter().take(VALUES) {
        let Some(text) = literal(value, left) else {
            break;
        };
        left -= text.len();
        texts.push(text);
    }
    if texts.len() < values.len() {
        texts.push(format!("... and {} more", values.len() - texts.len()));
    }
    Some(texts.join(", "))
}

fn example(server: &str, identifier: &str, parameters: &[Parameter<'_>]) -> String {
    let required = parameters
        .iter()
        .filter(|parameter| parameter.required)
        .take(8);
    let arguments: Vec<String> = required
        .map(|parameter| format!("{}={}", parameter.identifier, value(parameter)))
        .collect();
    format!("{server}.{identifier}({})", arguments.join(", "))
}

fn value(parameter: &Parameter<'_>) -> String {
    let schema = parameter.schema;
    let known = schema
        .get("examples")
        .and_then(|examples| examples.get(0))
        .or_else(|| schema.get("default"))
        .and_then(|value| literal(value, CONSTRAINT_BYTES));
    known.unwrap_or_else(|| parameter.kind.example())
}
