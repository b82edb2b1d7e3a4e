//! Edits JSON files, with their comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::{Map, Value};

use super::{ENTRY_NAME, EditError, TRANSPORT_MEMBERS};

/// Sets the entry in a file. An empty file becomes an object.
pub(super) fn edit(
    content: &str,
    section: &[&str],
    members: &Map<String, Value>,
) -> Result<String, EditError> {
    let is_empty = content.trim().is_empty();
    let text = if is_empty { "{}\n" } else { content };
    let root = CstRootNode::parse(text, &parse_options());
    let root = root.map_err(|error| EditError::Malformed(error.to_string()))?;
    let mut object = root
        .object_value()
        .ok_or_else(|| EditError::Unsupported("it is not an object".to_owned()))?;
    for name in section {
        object = child_object(&object, name)?;
    }
    let entry = child_object(&object, ENTRY_NAME)?;
    merge(&entry, members)?;
    for name in TRANSPORT_MEMBERS {
        if !members.contains_key(name)
            && let Some(member) = find_member(&entry, name)?
        {
            member.remove();
        }
    }
    Ok(root.to_string())
}

/// JSON as editors accept it: with comments and trailing commas, but nothing else that JSON lacks.
fn parse_options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Returns an object in an object, which is created if it is absent.
fn child_object(object: &CstObject, name: &str) -> Result<CstObject, EditError> {
    find_member(object, name)?;
    object
        .object_value_or_create(name)
        .ok_or_else(|| EditError::Unsupported(format!("`{name}` in it is not an object")))
}

/// Returns a member. Clients use the last of several with the same name, so a change of another would have no
/// effect.
fn find_member(
    object: &CstObject,
    name: &str,
) -> Result<Option<jsonc_parser::cst::CstObjectProp>, EditError> {
    let mut found = object.properties().into_iter();
    let mut found = found.by_ref().filter(|member| {
        let decoded = member.decoded_name();
        decoded.is_some_and(|decoded| decoded == name)
    });
    let member = found.next();
    if found.next().is_some() {
        let message = format!("it has `{name}` twice; remove one of them");
        return Err(EditError::Unsupported(message));
    }
    Ok(member)
}

/// Sets members. Objects in them are merged; what is equal is not touched.
fn merge(object: &CstObject, members: &Map<String, Value>) -> Result<(), EditError> {
    for (name, value) in members {
        let Some(member) = find_member(object, name)? else {
            object.append(name, to_input(value));
            continue;
        };
        match (value, member.object_value()) {
            (Value::Object(inner), Some(existing)) if !TRANSPORT_MEMBERS.contains(&&**name) => {
                merge(&existing, inner)?;
            }
            _ => {
                let current = member.value().map(|value| value.to_string());
                let current = current.and_then(|text| serde_json::from_str::<Value>(&text).ok());
                if current.as_ref() != Some(value) {
                    member.set_value(to_input(value));
                }
            }
        }
    }
    Ok(())
}

fn to_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(to_input).collect()),
        Value::Object(members) => {
            let members = members.iter();
            CstInputValue::Object(
                members
                    .map(|(name, value)| (name.clone(), to_input(value)))
                    .collect(),
            )
        }
    }
}
