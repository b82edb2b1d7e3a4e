//! Differences between two definitions of a tool.

use std::collections::BTreeSet;

use serde_json::Value;

/// Differences reported of a definition.
const MAX_CHANGES: usize = 100;
/// Members that are not part of what is trusted.
const IGNORED_MEMBERS: [&str; 3] = ["_meta", "icons", "title"];

/// A part of a definition that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionChange {
    /// JSON pointer to the part.
    pub place: String,
    /// `None` if it was added.
    pub before: Option<Value>,
    /// `None` if it was removed.
    pub after: Option<Value>,
}

/// Returns the differences, in the order of their places. A definition that is not known counts as
/// empty.
pub(super) fn compare(before: Option<&str>, after: &str) -> Vec<DefinitionChange> {
    let parse = |text: &str| {
        let mut value = serde_json::from_str(text).unwrap_or(Value::Null);
        if let Value::Object(members) = &mut value {
            for name in IGNORED_MEMBERS {
                members.remove(name);
            }
        }
        value
    };
    let before = before.map_or(Value::Object(serde_json::Map::new()), parse);
    let mut changes = Vec::new();
    add_changes("", Some(&before), Some(&parse(after)), &mut changes);
    changes
}

fn add_changes(
    place: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<DefinitionChange>,
) {
    if before == after || changes.len() >= MAX_CHANGES {
        return;
    }
    if let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let step = name.replace('~', "~0").replace('/', "~1");
            let place = format!("{place}/{step}");
            add_changes(&place, before.get(name), after.get(name), changes);
        }
        return;
    }
    changes.push(DefinitionChange {
        place: place.to_owned(),
        before: before.cloned(),
        after: after.cloned(),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_found_at_any_depth() {
        let before = json!({"name": "a", "description": "x", "inputSchema": {"properties": {"p": {"type": "string"}, "q/r": 1}}, "_meta": 1});
        let after = json!({"name": "a", "description": "y", "inputSchema": {"properties": {"p": {"type": "string"}, "n": true}}, "title": "T"});
        let changes = compare(Some(&before.to_string()), &after.to_string());
        let change = |place: &str, before: Value, after: Value| DefinitionChange {
            place: place.to_owned(),
            before: Some(before).filter(|value| !value.is_null()),
            after: Some(after).filter(|value| !value.is_null()),
        };
        let expected = [
            change("/description", json!("x"), json!("y")),
            change("/inputSchema/properties/n", Value::Null, json!(true)),
            change("/inputSchema/properties/q~1r", json!(1), Value::Null),
        ];
        assert_eq!(changes, expected);
        assert_eq!(compare(Some(&before.to_string()), &before.to_string()), []);
    }

    #[test]
    fn everything_is_new_if_nothing_was_known() {
        let changes = compare(None, r#"{"name":"a"}"#);
        assert_eq!(changes[0].place, "/name");
        assert_eq!(changes[0].before, None);
    }
}
