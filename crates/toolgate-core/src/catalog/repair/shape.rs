//! The shapes of optional members, as the MCP schemas and the official SDKs define them.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::Changes;
use crate::catalog::ItemKind;
use crate::schema::message_text::escape_name;

/// Bound of integers that every client can read: a little less than 2^63.
const MAX_INTEGER: f64 = 9.2e18;

/// A time as the TypeScript SDK checks it: RFC 3339 with seconds and an offset.
static TIMESTAMP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let leap_day =
        r"(?:[0-9]{2}(?:[2468][048]|[13579][26]|0[48])|(?:[02468][048]|[13579][26])00)-02-29";
    let other_day = r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
    let time = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]";
    let pattern =
        format!(r"^(?:{leap_day}|{other_day})T{time}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{time})$");
    Regex::new(&pattern).ok()
});

/// What a value must be.
pub(super) enum Shape {
    Text,
    Bool,
    Integer,
    /// A number from 0 to 1.
    Fraction,
    /// A time with a date and an offset.
    Timestamp,
    OneOf(&'static [&'static str]),
    /// An object with any members.
    AnyObject,
    Object(&'static [Field]),
    /// A list. Items of another shape are removed from it.
    List(&'static Self),
}

/// A member of an object.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    presence: Presence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// A place in a definition, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

const TITLE: Field = optional("title", Shape::Text);
const DESCRIPTION: Field = optional("description", Shape::Text);
const MIME_TYPE: Field = optional("mimeType", Shape::Text);
const META: Field = optional("_meta", Shape::AnyObject);
const ICONS: Field = optional("icons", Shape::List(&ICON));

const ICON: Shape = Shape::Object(&[
    required("src", Shape::Text),
    MIME_TYPE,
    optional("sizes", Shape::List(&Shape::Text)),
    optional("theme", Shape::OneOf(&["light", "dark"])),
]);

const TOOL_ANNOTATIONS: Shape = Shape::Object(&[
    TITLE,
    optional("readOnlyHint", Shape::Bool),
    optional("destructiveHint", Shape::Bool),
    optional("idempotentHint", Shape::Bool),
    optional("openWorldHint", Shape::Bool),
]);

const EXECUTION: Shape = Shape::Object(&[optional(
    "taskSupport",
    Shape::OneOf(&["required", "optional", "forbidden"]),
)]);

const ANNOTATIONS: Shape = Shape::Object(&[
    optional(
        "audience",
        Shape::List(&Shape::OneOf(&["user", "assistant"])),
    ),
    optional("priority", Shape::Fraction),
    optional("lastModified", Shape::Timestamp),
]);

const ARGUMENT: Shape = Shape::Object(&[
    required("name", Shape::Text),
    TITLE,
    DESCRIPTION,
    optional("required", Shape::Bool),
]);

/// Members of a schema, without `type` and `properties`.
pub(super) const SCHEMA: &[Field] = &[
    optional("$schema", Shape::Text),
    optional("required", Shape::List(&Shape::Text)),
];

const TOOL: &[Field] = &[
    TITLE,
    DESCRIPTION,
    optional("annotations", TOOL_ANNOTATIONS),
    ICONS,
    optional("execution", EXECUTION),
    META,
];

const RESOURCE: &[Field] = &[
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    optional("size", Shape::Integer),
    optional("annotations", ANNOTATIONS),
    ICONS,
    META,
];

const TEMPLATE: &[Field] = &[
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    optional("annotations", ANNOTATIONS),
    ICONS,
    META,
];

const PROMPT: &[Field] = &[
    TITLE,
    DESCRIPTION,
    optional("arguments", Shape::List(&ARGUMENT)),
    ICONS,
    META,
];

/// Returns the optional members of a definition, without schemas.
pub(super) fn fields(kind: ItemKind) -> &'static [Field] {
    match kind {
        ItemKind::Tool => TOOL,
        ItemKind::Resource => RESOURCE,
        ItemKind::Template => TEMPLATE,
        ItemKind::Prompt => PROMPT,
    }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        presence: Presence::Optional,
    }
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        presence: Presence::Required,
    }
}

impl Shape {
    /// Removes what does not fit from the inside of a value. Returns whether the value itself fits.
    pub(super) fn fit(&self, value: &mut Value, place: &Place<'_>, changes: &mut Changes) -> bool {
        match (self, value) {
            (Self::Text, Value::String(_))
            | (Self::Bool, Value::Bool(_))
            | (Self::AnyObject, Value::Object(_)) => true,
            (Self::Integer, Value::Number(number)) => {
                let number = number.as_f64();
                number.is_some_and(|number| number.fract() == 0.0 && number.abs() < MAX_INTEGER)
            }
            (Self::Fraction, Value::Number(number)) => {
                let number = number.as_f64();
                number.is_some_and(|number| (0.0..=1.0).contains(&number))
            }
            (Self::Timestamp, Value::String(text)) => TIMESTAMP
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text)),
            (Self::OneOf(words), Value::String(text)) => words.contains(&text.as_str()),
            (Self::Object(fields), Value::Object(object)) => {
                fields.iter().all(|field| field.fit(object, place, changes))
            }
            (Self::List(item), Value::Array(items)) => {
                let was_empty = items.is_empty();
                let mut index = 0;
                items.retain_mut(|each| {
                    let place = place.item(index);
                    index += 1;
                    let fits = item.fit(each, &place, changes);
                    if !fits {
                        changes.add_removal(&place, each, item);
                    }
                    fits
                });
                was_empty || !items.is_empty()
            }
            _ => false,
        }
    }

    /// Describes the shape after "not".
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Bool => "a boolean".to_owned(),
            Self::Integer => "an integer".to_owned(),
            Self::Fraction => "a number from 0 to 1".to_owned(),
            Self::Timestamp => "a time such as 2026-07-28T12:00:00Z".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::AnyObject => "an object".to_owned(),
            Self::Object(fields) => {
                let required = fields.iter().find(|field| field.is_required());
                match required {
                    Some(field) => format!("an object with `{}`", field.name),
                    None => "an object".to_owned(),
                }
            }
            Self::List(_) => "a list of valid items".to_owned(),
        }
    }
}

impl Field {
    /// Repairs or removes the member in an object. Returns whether the object can stay.
    pub(super) fn fit(
        &self,
        object: &mut Map<String, Value>,
        parent: &Place<'_>,
        changes: &mut Changes,
    ) -> bool {
        let Some(value) = object.get_mut(self.name) else {
            return !self.is_required();
        };
        let place = parent.member(self.name);
        if self.shape.fit(value, &place, changes) {
            return true;
        }
        if self.is_required() {
            return false;
        }
        changes.add_removal(&place, value, &self.shape);
        object.shift_remove(self.name);
        true
    }

    fn is_required(&self) -> bool {
        self.presence == Presence::Required
    }
}

impl<'a> Place<'a> {
    pub(super) fn root(member: &'a str) -> Self {
        Self {
            parent: None,
            step: Step::Member(member),
        }
    }

    pub(super) fn member(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            step: Step::Member(name),
        }
    }

    fn item(&'a self, index: usize) -> Self {
        Self {
            parent: Some(self),
            step: Step::Item(index),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(formatter, "{parent}")?;
        }
        match (self.step, self.parent) {
            (Step::Member(name), None) => formatter.write_str(&escape_name(name)),
            (Step::Member(name), Some(_)) => write!(formatter, ".{}", escape_name(name)),
            (Step::Item(index), _) => write!(formatter, "[{index}]"),
        }
    }
}
