//! Types as text.

use serde_json::Value;

use super::super::text::{literal, quoted};
use super::{Field, More, Type, VALUES, VARIANTS, kind_of};

/// Bytes of all values of an enumeration, of one, and how many are shown if there are more.
const VALUES_BYTES: usize = 240;
const VALUE_BYTES: usize = 60;
const FEW: usize = 4;
const EXAMPLE_BYTES: usize = 120;

impl Type {
    /// Writes the type within `limit` bytes, the inner parts shortened first.
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
        match text.len() <= limit {
            true => text,
            false => self.coarse().to_owned(),
        }
    }

    /// A value of this type, as a beginning.
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
                .and_then(|value| literal(value, VALUE_BYTES))
                .unwrap_or_else(|| "...".to_owned()),
            Self::List(item) => format!("[{}]", item.example()),
            Self::Tuple(items) => format!("[{}]", commas(items.iter().map(Self::example))),
            Self::Shape(fields, _) => {
                let required = fields.iter().filter(|field| field.required).take(VARIANTS);
                let members = required
                    .map(|field| format!("{}: {}", quoted(&field.key), field.kind.example()));
                match format!("{{{}}}", commas(members)) {
                    text if text.len() > EXAMPLE_BYTES => "{...}".to_owned(),
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
            Self::Literal(values, more) => {
                literals(values, *more).unwrap_or_else(|| self.coarse().to_owned())
            }
            Self::List(item) => format!("list[{}]", item.text(depth, fields)),
            Self::Tuple(items) if items.is_empty() => "list".to_owned(),
            Self::Tuple(items) => format!(
                "tuple[{}]",
                commas(items.iter().map(|item| item.text(depth, fields)))
            ),
            Self::Map(value) => format!("dict[str, {}]", value.text(depth, fields)),
            Self::Shape(..) if depth == 0 => "dict".to_owned(),
            Self::Shape(all, more) => {
                let shown = all
                    .iter()
                    .take(fields)
                    .map(|field| field.text(depth - 1, fields));
                let rest =
                    (all.len() > fields || *more == More::Yes).then(|| "\"...\": Any".to_owned());
                format!("{{{}}}", commas(shown.chain(rest)))
            }
            Self::Union(kinds) => {
                let mut texts: Vec<String> = Vec::new();
                for text in kinds.iter().map(|kind| kind.text(depth, fields)) {
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                if texts.len() > VARIANTS {
                    texts.truncate(VARIANTS - 1);
                    texts.push("...".to_owned());
                }
                texts.join(" | ")
            }
        }
    }

    fn coarse(&self) -> &'static str {
        match self {
            Self::Plain(name) => name,
            Self::List(_) | Self::Tuple(_) => "list",
            Self::Map(_) | Self::Shape(..) => "dict",
            Self::Literal(values, _) => match values.first() {
                Some(first) if values.iter().all(|value| kind_of(value) == kind_of(first)) => {
                    kind_of(first)
                }
                _ => "Any",
            },
            Self::Any | Self::Never | Self::Union(_) => "Any",
        }
    }
}

impl Field {
    fn text(&self, depth: usize, fields: usize) -> String {
        let key = match self.required {
            true => quoted(&self.key),
            false => quoted(&format!("{}?", self.key)),
        };
        format!("{key}: {}", self.kind.text(depth, fields))
    }
}

fn literals(values: &[Value], more: More) -> Option<String> {
    let texts: Option<Vec<String>> = values
        .iter()
        .take(VALUES)
        .map(|value| literal(value, VALUE_BYTES))
        .collect();
    let texts = texts?;
    let long = texts.iter().map(String::len).sum::<usize>() > VALUES_BYTES;
    let shown = match long || more == More::Yes {
        true => commas(texts.into_iter().take(FEW).chain(["...".to_owned()])),
        false => commas(texts.into_iter()),
    };
    Some(format!("Literal[{shown}]"))
}

fn commas(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}
