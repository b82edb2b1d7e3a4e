//! Formats types as text.

use serde_json::Value;

use super::super::text::{python_literal, quote};
use super::{Completeness, Field, MAX_LITERAL_VALUES, MAX_VARIANTS, SchemaType, value_type_name};

// Limits on all values of an enumeration and on a single one, and the number of values shown if an
// enumeration exceeds them.
const MAX_LITERAL_BYTES: usize = 240;
const MAX_VALUE_BYTES: usize = 60;
const SAMPLE_VALUES: usize = 4;
const MAX_EXAMPLE_BYTES: usize = 120;

impl SchemaType {
    /// Formats the type within `limit` bytes, shortening inner parts first.
    pub(in crate::stubs) fn write(&self, limit: usize) -> String {
        for (depth, fields) in [
            (5, 30),
            (4, 20),
            (3, 16),
            (2, 12),
            (2, 8),
            (1, 12),
            (1, 8),
            (1, 4),
        ] {
            let text = self.text(depth, fields);
            if text.len() <= limit {
                return text;
            }
        }
        let text = self.text(0, 0);
        if text.len() <= limit {
            text
        } else {
            self.coarse_name().to_owned()
        }
    }

    /// Returns an example value of this type.
    pub(in crate::stubs) fn example(&self) -> String {
        match self {
            Self::Plain("str") => "\"...\"".to_owned(),
            Self::Plain("int") => "1".to_owned(),
            Self::Plain("float") => "1.0".to_owned(),
            Self::Plain("bool") => "True".to_owned(),
            Self::Plain("None") => "None".to_owned(),
            Self::Plain("list") => "[]".to_owned(),
            Self::Literal(values, _) => values
                .first()
                .and_then(|value| python_literal(value, MAX_VALUE_BYTES))
                .unwrap_or_else(|| "...".to_owned()),
            Self::List(item) => format!("[{}]", item.example()),
            Self::Tuple(items) => {
                format!("[{}]", join_with_commas(items.iter().map(Self::example)))
            }
            Self::Object(fields, _) => {
                let required = fields
                    .iter()
                    .filter(|field| field.required)
                    .take(MAX_VARIANTS);
                let members = required
                    .map(|field| format!("{}: {}", quote(&field.key), field.kind.example()));
                match format!("{{{}}}", join_with_commas(members)) {
                    text if text.len() > MAX_EXAMPLE_BYTES => "{...}".to_owned(),
                    text => text,
                }
            }
            Self::Map(_) | Self::Plain(_) => "{}".to_owned(),
            Self::Union(kinds) => kinds
                .first()
                .map_or_else(|| "...".to_owned(), Self::example),
            Self::Any | Self::Never => "\"...\"".to_owned(),
        }
    }

    fn text(&self, depth: usize, fields: usize) -> String {
        match self {
            Self::Any => "Any".to_owned(),
            Self::Never => "Never".to_owned(),
            Self::Plain(name) => (*name).to_owned(),
            Self::Literal(values, completeness) => format_literals(values, *completeness)
                .unwrap_or_else(|| self.coarse_name().to_owned()),
            Self::List(item) => format!("list[{}]", item.text(depth, fields)),
            Self::Tuple(items) if items.is_empty() => "list".to_owned(),
            Self::Tuple(items) => format!(
                "tuple[{}]",
                join_with_commas(items.iter().map(|item| item.text(depth, fields)))
            ),
            Self::Map(value) => format!("dict[str, {}]", value.text(depth, fields)),
            Self::Object(..) if depth == 0 => "dict".to_owned(),
            Self::Object(all, completeness) => {
                let listed = all
                    .iter()
                    .take(fields)
                    .map(|field| field.text(depth - 1, fields));
                let rest = (all.len() > fields || *completeness == Completeness::Truncated)
                    .then(|| "\"...\": Any".to_owned());
                format!("{{{}}}", join_with_commas(listed.chain(rest)))
            }
            Self::Union(kinds) => {
                let mut texts: Vec<String> = Vec::new();
                for text in kinds.iter().map(|kind| kind.text(depth, fields)) {
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                if texts.len() > MAX_VARIANTS {
                    texts.truncate(MAX_VARIANTS - 1);
                    texts.push("...".to_owned());
                }
                texts.join(" | ")
            }
        }
    }

    fn coarse_name(&self) -> &'static str {
        match self {
            Self::Plain(name) => name,
            Self::List(_) | Self::Tuple(_) => "list",
            Self::Map(_) | Self::Object(..) => "dict",
            Self::Literal(values, _) => match values.first() {
                Some(first)
                    if values
                        .iter()
                        .all(|value| value_type_name(value) == value_type_name(first)) =>
                {
                    value_type_name(first)
                }
                _ => "Any",
            },
            Self::Any | Self::Never | Self::Union(_) => "Any",
        }
    }
}

impl Field {
    fn text(&self, depth: usize, fields: usize) -> String {
        let key = if self.required {
            quote(&self.key)
        } else {
            quote(&format!("{}?", self.key))
        };
        format!("{key}: {}", self.kind.text(depth, fields))
    }
}

fn format_literals(values: &[Value], completeness: Completeness) -> Option<String> {
    let texts: Option<Vec<String>> = values
        .iter()
        .take(MAX_LITERAL_VALUES)
        .map(|value| python_literal(value, MAX_VALUE_BYTES))
        .collect();
    let texts = texts?;
    let is_long = texts.iter().map(String::len).sum::<usize>() > MAX_LITERAL_BYTES;
    let listed = if is_long || completeness == Completeness::Truncated {
        let sample = texts.into_iter().take(SAMPLE_VALUES);
        join_with_commas(sample.chain(["...".to_owned()]))
    } else {
        join_with_commas(texts.into_iter())
    };
    Some(format!("Literal[{listed}]"))
}

fn join_with_commas(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}
