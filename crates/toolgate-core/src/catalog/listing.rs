//! Listing of one server: its tools, resources, templates and prompts.
//!
//! A malformed or duplicate item becomes a [`ListingProblem`] and does not affect the others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Tool;
use crate::clean::clean;
use crate::clean::json::clean_definition;
use crate::name::ServerName;

/// Maximum number of problems recorded individually; further ones are only counted.
const MAX_PROBLEMS: usize = 100;

/// Items of one server, and the problems of those that were rejected.
#[derive(Debug, Default)]
pub struct ServerListing {
    pub tools: Vec<Arc<Tool>>,
    pub resources: Vec<ListedItem>,
    pub templates: Vec<ListedItem>,
    pub prompts: Vec<ListedItem>,
    pub problems: Vec<ListingProblem>,
    /// Errors of lists that could not be retrieved at all.
    pub failures: Vec<String>,
    seen: HashSet<(ItemKind, String)>,
    /// Number of items of each kind added so far, valid or not.
    added: [usize; 4],
    /// Number of problems beyond [`MAX_PROBLEMS`].
    surplus_problems: usize,
}

/// A resource, template or prompt: its lookup key and its definition.
#[derive(Clone, Debug)]
pub struct ListedItem {
    /// URI, URI template or name.
    pub key: String,
    pub definition: Box<RawValue>,
}

/// Kind of a listed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    Tool,
    Resource,
    Template,
    Prompt,
}

/// An item that was rejected, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListingProblem {
    pub kind: ItemKind,
    /// Key of the item, or `#N` (its position in the list) if it has none.
    pub item: String,
    pub reason: String,
}

impl ServerListing {
    /// Adds an item in the form the server sent it.
    pub fn add(&mut self, server: &ServerName, kind: ItemKind, definition: &RawValue) {
        self.added[kind as usize] += 1;
        let position = self.added[kind as usize];
        let key = text_field(definition, kind.key_field());
        if let Some(key) = &key
            && !self.seen.insert((kind, key.clone()))
        {
            return self.reject(kind, key, "duplicate; the first one is used");
        }
        let label = key.clone().unwrap_or_else(|| format!("#{position}"));
        if key
            .as_deref()
            .is_some_and(|key| matches!(clean(key), Cow::Owned(_)))
        {
            let reason = format!(
                "`{}` contains control or invisible characters",
                kind.key_field()
            );
            return self.reject(kind, &clean(&label), &reason);
        }
        let cleaned = match clean_definition(definition) {
            Ok(cleaned) => cleaned,
            Err(reason) => return self.reject(kind, &label, reason),
        };
        let definition: &RawValue = &cleaned.definition;
        if kind == ItemKind::Tool {
            match Tool::parse(server, definition) {
                Ok(mut tool) => {
                    tool.had_hidden_text = cleaned.had_hidden_text;
                    self.tools.push(Arc::new(tool));
                }
                Err(reason) => self.reject(kind, &label, &reason),
            }
            return;
        }
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            let reason = format!("`{}` is missing", kind.key_field());
            return self.reject(kind, &label, &reason);
        };
        let item = ListedItem {
            key,
            definition: definition.to_owned(),
        };
        match kind {
            ItemKind::Resource => self.resources.push(item),
            ItemKind::Template => self.templates.push(item),
            ItemKind::Tool | ItemKind::Prompt => self.prompts.push(item),
        }
    }

    pub fn reject(&mut self, kind: ItemKind, item: &str, reason: &str) {
        if self.problems.len() >= MAX_PROBLEMS {
            self.surplus_problems += 1;
            return;
        }
        self.problems.push(ListingProblem {
            kind,
            item: item.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Copies the items of one kind from the previous listing, for a list that failed.
    pub fn keep_previous(&mut self, kind: ItemKind, previous: &Self) {
        match kind {
            ItemKind::Tool => self.tools.clone_from(&previous.tools),
            ItemKind::Resource => self.resources.clone_from(&previous.resources),
            ItemKind::Template => self.templates.clone_from(&previous.templates),
            ItemKind::Prompt => self.prompts.clone_from(&previous.prompts),
        }
    }

    /// Finishes the listing: sorts all items and summarizes surplus problems.
    #[must_use]
    pub fn into_sorted(mut self) -> Self {
        self.tools.sort_by(|a, b| a.id.cmp(&b.id));
        for items in [&mut self.resources, &mut self.templates, &mut self.prompts] {
            items.sort_by(|a, b| a.key.cmp(&b.key));
        }
        self.seen = HashSet::new();
        if self.surplus_problems > 0 {
            self.failures.push(format!(
                "{} more items were rejected",
                self.surplus_problems
            ));
        }
        self
    }
}

/// Two listings are equal if clients cannot tell them apart.
impl PartialEq for ServerListing {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &[ListedItem], b: &[ListedItem]| {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.definition.get() == b.definition.get())
        };
        self.tools.len() == other.tools.len()
            && self
                .tools
                .iter()
                .zip(&other.tools)
                .all(|(a, b)| a.hash == b.hash && a.had_hidden_text == b.had_hidden_text)
            && same(&self.resources, &other.resources)
            && same(&self.templates, &other.templates)
            && same(&self.prompts, &other.prompts)
            && self.problems == other.problems
            && self.failures == other.failures
    }
}

impl ItemKind {
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Prompt => "prompt",
        }
    }

    fn key_field(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

/// Returns a text field of an object; `None` if it is absent or anything is malformed.
fn text_field(object: &RawValue, field: &str) -> Option<String> {
    let fields: std::collections::HashMap<String, &RawValue> =
        serde_json::from_str(object.get()).ok()?;
    serde_json::from_str(fields.get(field)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn definitions_are_cleaned_unless_their_names_need_it() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        for tool in [
            r#"{"name":"a","description":"do\u001b[8m this","inputSchema":{"properties":{"p":{"description":"x\u0007"}}}}"#,
            r#"{"name":"b\u001b[1m","inputSchema":{}}"#,
            r#"{"name":"c","inputSchema":{"properties":{"p\u001bq":{}}}}"#,
        ] {
            listing.add(&server, ItemKind::Tool, &raw(tool));
        }
        listing.add(
            &server,
            ItemKind::Prompt,
            &raw(r#"{"name":"p","description":"\u001b[31mred"}"#),
        );
        listing.add(
            &server,
            ItemKind::Resource,
            &raw(r#"{"uri":"a:\u0007","name":"n"}"#),
        );
        assert_eq!(listing.tools.len(), 1);
        let expected = r#"{"name":"a","description":"do this","inputSchema":{"properties":{"p":{"description":"x"}}}}"#;
        assert_eq!(listing.tools[0].definition.get(), expected);
        assert_eq!(
            listing.prompts[0].definition.get(),
            r#"{"name":"p","description":"red"}"#
        );
        assert_eq!(listing.resources.len(), 0);
        let problems: Vec<&str> = listing.problems.iter().map(|p| p.item.as_str()).collect();
        assert_eq!(problems, ["b", "c", "a:"]);
    }

    #[test]
    fn malformed_tool_does_not_hide_others() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        for tool in [
            r#"{"name":"b","inputSchema":{"type":"object"},"x-new":1.0}"#,
            r#"{"name":"no_schema"}"#,
            r#"{"name":"bad_schema","inputSchema":[]}"#,
            r#"{"name":7}"#,
            r#"{"inputSchema":{}}"#,
            r#""text""#,
            r#"{"name":"b","inputSchema":{}}"#,
            r#"{"name":"a","annotations":{"readOnlyHint":true,"new":{}}}"#,
        ] {
            listing.add(&server, ItemKind::Tool, &raw(tool));
        }
        let listing = listing.into_sorted();
        let names: Vec<_> = listing.tools.iter().map(|t| t.id.tool.as_str()).collect();
        assert_eq!(names, ["a", "b", "no_schema"]);
        assert_eq!(listing.tools[0].hints.read_only, Some(true));
        assert!(
            listing.tools[1]
                .definition
                .get()
                .ends_with(r#""x-new":1.0}"#)
        );
        let problems: Vec<_> = listing.problems.iter().map(|p| p.item.as_str()).collect();
        assert_eq!(problems, ["bad_schema", "#4", "#5", "#6", "b"]);
    }

    #[test]
    fn surplus_problems_are_only_counted() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        for _ in 0..5000 {
            listing.add(&server, ItemKind::Tool, &raw("{}"));
        }
        let listing = listing.into_sorted();
        assert_eq!(listing.problems.len(), MAX_PROBLEMS);
        assert_eq!(listing.problems[99].item, "#100");
        assert_eq!(listing.failures, ["4900 more items were rejected"]);
    }

    #[test]
    fn items_are_keyed_by_kind() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        listing.add(
            &server,
            ItemKind::Resource,
            &raw(r#"{"uri":"a://b","name":"n"}"#),
        );
        listing.add(&server, ItemKind::Resource, &raw(r#"{"name":"n"}"#));
        listing.add(
            &server,
            ItemKind::Template,
            &raw(r#"{"uriTemplate":"a://{b}"}"#),
        );
        listing.add(&server, ItemKind::Prompt, &raw(r#"{"name":"p"}"#));
        assert_eq!(listing.resources[0].key, "a://b");
        assert_eq!(listing.templates[0].key, "a://{b}");
        assert_eq!(listing.prompts[0].key, "p");
        assert_eq!(listing.problems[0].item, "#2");
        assert_eq!(listing.problems[0].reason, "`uri` is missing");
    }
}
