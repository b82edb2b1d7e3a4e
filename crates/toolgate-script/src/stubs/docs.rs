//! Full documentation of a tool, as a function with its docstring.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema_types::SchemaType;
use super::signature::{Schemas, SignatureParameter, short_head};
use super::text::{docstring_text, python_literal, single_line};

const MAX_DESCRIPTION_CHARS: usize = 6000;
const MAX_PARAMETER_CHARS: usize = 600;
const MAX_TYPE_BYTES: usize = 1200;
const MAX_PARAMETERS: usize = 200;
const MAX_VALUES: usize = 100;
const MAX_VALUES_BYTES: usize = 2000;
const MAX_CONSTRAINT_BYTES: usize = 80;

const CONSTRAINT_KEYWORDS: [&str; 13] = [
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

pub(super) fn format_docs(
    server: &str,
    identifier: &str,
    schemas: &Schemas,
    description: &str,
) -> String {
    let parameters = schemas.parameters();
    let mut text = short_head(identifier, schemas);
    text.push_str("\n    \"\"\"");
    text.push_str(&docstring_text(description, MAX_DESCRIPTION_CHARS, "    "));
    if !text.ends_with("\"\"\"") {
        text.push_str("\n\n    ");
    }
    if !parameters.is_empty() {
        text.push_str("Args:");
    }
    for parameter in parameters.iter().take(MAX_PARAMETERS) {
        push_argument(&mut text, parameter);
    }
    if parameters.len() > MAX_PARAMETERS {
        let _ = write!(
            text,
            "\n        ... and {} more",
            parameters.len() - MAX_PARAMETERS
        );
    }
    let returns = match schemas.returns() {
        SchemaType::Any => "Any (not declared: print it once to see its structure)".to_owned(),
        kind => kind.write(MAX_TYPE_BYTES),
    };
    if !parameters.is_empty() {
        text.push_str("\n\n    ");
    }
    let _ = write!(text, "Returns: {returns}");
    let _ = write!(
        text,
        "\n\n    Example: result = {}",
        example_call(server, identifier, &parameters)
    );
    text.push_str("\n    \"\"\"\n");
    text
}

fn push_argument(text: &mut String, parameter: &SignatureParameter<'_>) {
    let SignatureParameter {
        identifier, schema, ..
    } = parameter;
    let kind = parameter.displayed_type().write(MAX_TYPE_BYTES);
    let _ = write!(text, "\n        {identifier}: {kind}");
    match (parameter.required, parameter.default()) {
        (true, _) => text.push_str(", required"),
        (false, Some(default)) => {
            let _ = write!(text, " = {default}");
        }
        (false, None) => text.push_str(" = None"),
    }
    for (word, value) in CONSTRAINT_KEYWORDS
        .iter()
        .filter_map(|word| Some((word, schema.get(word)?)))
    {
        if let Some(value) = python_literal(value, MAX_CONSTRAINT_BYTES) {
            let _ = write!(text, ", {word} {value}");
        }
    }
    if parameter.name != identifier {
        let _ = write!(
            text,
            ", sent as {}",
            super::text::quote(&single_line(parameter.name, MAX_CONSTRAINT_BYTES))
        );
    }
    let description = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or("");
    let description = docstring_text(
        &single_line(description, MAX_PARAMETER_CHARS),
        MAX_PARAMETER_CHARS,
        "",
    );
    if !description.is_empty() {
        let _ = write!(text, ". {description}");
    }
    if let Some(values) = list_values(schema) {
        let _ = write!(text, "\n            one of: {values}");
    }
}

/// Lists the values of an enumeration that is too long for the type.
fn list_values(schema: &Value) -> Option<String> {
    let values = schema
        .get("enum")
        .or_else(|| schema.get("items")?.get("enum"))?
        .as_array()?;
    if values.len() <= 12 {
        return None;
    }
    let mut left = MAX_VALUES_BYTES;
    let mut texts = Vec::new();
    for value in values.iter().take(MAX_VALUES) {
        let Some(text) = python_literal(value, left) else {
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

fn example_call(server: &str, identifier: &str, parameters: &[SignatureParameter<'_>]) -> String {
    let required = parameters
        .iter()
        .filter(|parameter| parameter.required)
        .take(8);
    let arguments: Vec<String> = required
        .map(|parameter| format!("{}={}", parameter.identifier, example_value(parameter)))
        .collect();
    format!("{server}.{identifier}({})", arguments.join(", "))
}

fn example_value(parameter: &SignatureParameter<'_>) -> String {
    let schema = parameter.schema;
    let known = schema
        .get("examples")
        .and_then(|examples| examples.get(0))
        .or_else(|| schema.get("default"))
        .and_then(|value| python_literal(value, MAX_CONSTRAINT_BYTES));
    known.unwrap_or_else(|| parameter.kind.example())
}
