//! Edits TOML files, with their comments.

use serde_json::{Map, Value as Json};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value, value};

use super::{ENTRY_NAME, EditError, TRANSPORT_MEMBERS};

/// Sets the entry in a file.
pub(super) fn edit(
    content: &str,
    section: &[&str],
    members: &Map<String, Json>,
) -> Result<String, EditError> {
    let document = content.parse::<DocumentMut>();
    let mut document = document.map_err(|error| EditError::Malformed(error.to_string()))?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in section {
        table = child_table(table, name, TableKind::Implicit)?;
    }
    let entry = child_table(table, ENTRY_NAME, TableKind::Explicit)?;
    merge(entry, members);
    for name in TRANSPORT_MEMBERS {
        if !members.contains_key(name) {
            entry.remove(name);
        }
    }
    Ok(document.to_string())
}

/// Whether a new table gets a header of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TableKind {
    Implicit,
    Explicit,
}

/// Returns a table in a table, which is created if it is absent.
fn child_table<'a>(
    table: &'a mut dyn TableLike,
    name: &str,
    kind: TableKind,
) -> Result<&'a mut dyn TableLike, EditError> {
    let item = table.entry(name).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(kind == TableKind::Implicit);
        Item::Table(table)
    });
    item.as_table_like_mut()
        .ok_or_else(|| EditError::Unsupported(format!("`{name}` in it is not a table")))
}

/// Sets members. What is equal is not touched.
fn merge(table: &mut dyn TableLike, members: &Map<String, Json>) {
    for (name, json) in members {
        let Some(new) = to_toml(json) else { continue };
        let text = |value: &Value| value.clone().decorated("", "").to_string();
        match table.get_mut(name).and_then(Item::as_value_mut) {
            Some(current) if text(current) == text(&new) => {}
            // Keeps the comment behind the value.
            Some(current) => {
                let decor = current.decor().clone();
                *current = new;
                *current.decor_mut() = decor;
            }
            None => {
                table.insert(name, value(new));
            }
        }
    }
}

fn to_toml(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(value) => (*value).into(),
        Json::String(text) => text.into(),
        Json::Number(number) => number.as_i64()?.into(),
        Json::Array(items) => items.iter().filter_map(to_toml).collect::<Array>().into(),
        Json::Object(members) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, json) in members {
                if let Some(value) = to_toml(json) {
                    table.insert(name, value);
                }
            }
            table.into()
        }
        Json::Null => return None,
    })
}
