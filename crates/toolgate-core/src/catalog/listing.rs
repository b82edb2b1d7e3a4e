//! Listing of one server: its tools, resources, templates and prompts.
//!
//! A malformed item is repaired or left out, a duplicate one is left out. Either becomes a
//! [`ListingProblem`] and does not affect the other items.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Tool;
use super::repair::repair;
use super::tool::ToolDefinition;
use crate::clean::clean;
use crate::clean::json::{bound_text, clean_definition};
use crate::name::ServerName;
use crate::plural;

/// Maximum number of problems of each outcome recorded individually; further ones are only counted.
const MAX_PROBLEMS: usize = 100;
/// Bytes kept of the name of an item with a problem.
const MAX_ITEM_BYTES: usize = 256;
/// Bytes kept of the description of a problem.
const MAX_REASON_BYTES: usize = 1024;
/// Bytes kept of a definition with a problem.
const MAX_SENT_BYTES: usize = 1024;

/// Items of one server, and the problems of those that were repaired or left out.
#[derive(Debug, Default)]
pub struct ServerListing {
    pub tools: Vec<Arc<Tool>>,
    pub resources: Vec<ListedItem>,
    pub templates: Vec<ListedItem>,
    pub prompts: Vec<ListedItem>,
    pub problems: Vec<ListingProblem>,
    /// Errors of lists that could not be retrieved at all.
    pub failures: Vec<String>,
    /// Positions in the lists of the server.
    positions: HashMap<(ItemKind, String), usize>,
    /// Number of items of each kind added so far, valid or not.
    added: [usize; 4],
    /// Number of items of each kind that were repaired.
    repaired: [usize; 4],
    /// Number of items that were left out.
    left_out: usize,
}

/// A resource, template or prompt: its lookup key and its definition.
#[derive(Clone, Debug)]
pub struct ListedItem {
    /// URI, URI template or name.
    pub key: String,
    /// As the server sent it, unless it was repaired.
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

/// An item that was repaired or left out, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListingProblem {
    pub kind: ItemKind,
    /// Key of the item, or `#N` (its position in the list) if it has none.
    pub item: String,
    pub outcome: ItemOutcome,
    pub reason: String,
    /// The beginning of the definition as the server sent it; empty if the problem is not about one.
    pub sent: String,
}

/// What became of an item with a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    /// It is not in the catalog.
    LeftOut,
    /// Its repaired definition is in the catalog.
    Repaired,
}

impl ServerListing {
    /// Returns the position of an item in the server's own list; the last one if it is unknown.
    pub fn position(&self, kind: ItemKind, key: &str) -> usize {
        let position = self.positions.get(&(kind, key.to_owned()));
        position.copied().unwrap_or(usize::MAX)
    }

    /// Adds an item in the form the server sent it.
    pub fn add(&mut self, server: &ServerName, kind: ItemKind, sent: &RawValue) {
        self.added[kind as usize] += 1;
        let position = self.added[kind as usize];
        let key = text_field(sent, kind.key_field());
        let item = key.clone().unwrap_or_else(|| format!("#{position}"));
        let (outcome, reason) = match self.add_repaired(server, kind, key, sent) {
            Ok(changes) if changes.is_empty() => return,
            Ok(changes) => (ItemOutcome::Repaired, changes.join("; ")),
            Err(reason) => (ItemOutcome::LeftOut, reason),
        };
        self.record(ListingProblem {
            kind,
            item,
            outcome,
            reason,
            sent: sent.get().to_owned(),
        });
    }

    /// Adds an item. Returns what was changed in its definition, or why it is left out.
    fn add_repaired(
        &mut self,
        server: &ServerName,
        kind: ItemKind,
        key: Option<String>,
        sent: &RawValue,
    ) -> Result<Vec<String>, String> {
        let listed = key.clone().map(|key| (kind, key));
        if listed
            .as_ref()
            .is_some_and(|listed| self.positions.contains_key(listed))
        {
            return Err("duplicate; the first one is used".to_owned());
        }
        let is_unclean = |key: &str| matches!(clean(key), Cow::Owned(_));
        if key.as_deref().is_some_and(is_unclean) {
            let field = kind.key_field();
            return Err(format!(
                "`{field}` contains control or invisible characters"
            ));
        }
        let cleaned = clean_definition(sent)?;
        let repaired = repair(kind, &cleaned.definition).map_err(|reason| reason.to_string())?;
        if kind == ItemKind::Tool {
            let definition = ToolDefinition {
                sent: &cleaned.definition,
                repaired: &repaired.definition,
                had_hidden_text: cleaned.had_hidden_text,
            };
            self.tools.push(Arc::new(Tool::parse(server, definition)?));
        } else {
            // A repaired definition has a key.
            let item = ListedItem {
                key: key.unwrap_or_default(),
                definition: repaired.definition.clone().into_owned(),
            };
            match kind {
                ItemKind::Resource => self.resources.push(item),
                ItemKind::Template => self.templates.push(item),
                ItemKind::Tool | ItemKind::Prompt => self.prompts.push(item),
            }
        }
        let position = self.added[kind as usize];
        self.positions
            .extend(listed.map(|listed| (listed, position)));
        Ok(repaired.changes)
    }

    /// Records that an item, or a part of a list, was left out.
    pub fn reject(&mut self, kind: ItemKind, item: &str, reason: &str) {
        self.record(ListingProblem {
            kind,
            item: item.to_owned(),
            outcome: ItemOutcome::LeftOut,
            reason: reason.to_owned(),
            sent: String::new(),
        });
    }

    fn record(&mut self, problem: ListingProblem) {
        match problem.outcome {
            ItemOutcome::LeftOut => self.left_out += 1,
            ItemOutcome::Repaired => self.repaired[problem.kind as usize] += 1,
        }
        let same = self.problems.iter();
        let same = same.filter(|other| other.outcome == problem.outcome);
        if same.count() < MAX_PROBLEMS {
            self.problems.push(problem.into_bounded());
        }
    }

    /// Copies the items of one kind from the previous listing, for a list that failed.
    pub fn keep_previous(&mut self, kind: ItemKind, previous: &Self) {
        match kind {
            ItemKind::Tool => self.tools.clone_from(&previous.tools),
            ItemKind::Resource => self.resources.clone_from(&previous.resources),
            ItemKind::Template => self.templates.clone_from(&previous.templates),
            ItemKind::Prompt => self.prompts.clone_from(&previous.prompts),
        }
        let positions = previous.positions.iter();
        let positions = positions.filter(|((listed, _), _)| *listed == kind);
        self.positions
            .extend(positions.map(|(key, position)| (key.clone(), *position)));
    }

    /// Finishes the listing: sorts all items and summarizes surplus problems.
    #[must_use]
    pub fn into_sorted(mut self) -> Self {
        self.tools.sort_by(|a, b| a.id.cmp(&b.id));
        for items in [&mut self.resources, &mut self.templates, &mut self.prompts] {
            items.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let surplus = self.left_out.saturating_sub(MAX_PROBLEMS);
        if surplus > 0 {
            self.failures
                .push(format!("{surplus} more items were rejected"));
        }
        self.summarize_repairs();
        self.problems
            .sort_by_key(|problem| problem.outcome == ItemOutcome::Repaired);
        self
    }

    /// Adds a problem for the repaired items of each kind that have none.
    fn summarize_repairs(&mut self) {
        for kind in ItemKind::ALL {
            let has_problem = |problem: &&ListingProblem| {
                problem.kind == kind && problem.outcome == ItemOutcome::Repaired
            };
            let described = self.problems.iter().filter(has_problem).count();
            let more = self.repaired[kind as usize].saturating_sub(described);
            if more > 0 {
                self.problems.push(ListingProblem {
                    kind,
                    item: plural::count(more as u64, "other", "others"),
                    outcome: ItemOutcome::Repaired,
                    reason: "repaired, too".to_owned(),
                    sent: String::new(),
                });
            }
        }
    }

    /// Returns how many items were repaired.
    pub fn repaired(&self) -> usize {
        self.repaired.iter().sum()
    }
}

impl ListingProblem {
    /// Cleans and cuts the texts, which a server can make arbitrarily long.
    fn into_bounded(mut self) -> Self {
        for (text, max_bytes) in [
            (&mut self.item, MAX_ITEM_BYTES),
            (&mut self.reason, MAX_REASON_BYTES),
            (&mut self.sent, MAX_SENT_BYTES),
        ] {
            *text = clean(text).into_owned();
            bound_text(text, max_bytes);
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
            && self.positions == other.positions
    }
}

impl ItemOutcome {
    pub const ALL: [Self; 2] = [Self::LeftOut, Self::Repaired];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left_out",
            Self::Repaired => "repaired",
        }
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

    pub(super) fn key_field(self) -> &'static str {
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
            r#"{"name":"a","description":"do\u001b[8m this","inputSchema":{"type":"object","properties":{"p":{"description":"x\u0007"}}}}"#,
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
        let expected = r#"{"name":"a","description":"do this","inputSchema":{"type":"object","properties":{"p":{"description":"x"}}}}"#;
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
    fn malformed_item_does_not_take_the_name_of_a_valid_one() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        for tool in [
            r#"{"name":"a","inputSchema":7}"#,
            r#"{"name":"a","title":"first"}"#,
            r#"{"name":"a","title":"second"}"#,
        ] {
            listing.add(&server, ItemKind::Tool, &raw(tool));
        }
        assert_eq!(listing.tools.len(), 1);
        assert_eq!(listing.tools[0].view().title.unwrap(), "first");
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
        assert_eq!(
            problems,
            ["bad_schema", "#4", "#5", "#6", "b", "no_schema", "a"]
        );
        let repaired = listing.problems.last().unwrap();
        assert_eq!(repaired.outcome, ItemOutcome::Repaired);
        assert_eq!(repaired.reason, "set `inputSchema` to any object");
        assert_eq!(
            repaired.sent,
            r#"{"name":"a","annotations":{"readOnlyHint":true,"new":{}}}"#
        );
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
    fn surplus_repairs_are_only_counted_and_hide_no_other_problem() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        for number in 0..150 {
            let tool = raw(&format!(r#"{{"name":"t{number}"}}"#));
            listing.add(&server, ItemKind::Tool, &tool);
            let prompt = raw(&format!(r#"{{"name":"p{number}","title":null}}"#));
            listing.add(&server, ItemKind::Prompt, &prompt);
        }
        listing.add(&server, ItemKind::Tool, &raw("{}"));
        let listing = listing.into_sorted();
        assert_eq!((listing.tools.len(), listing.prompts.len()), (150, 150));
        assert_eq!(listing.repaired(), 300);
        assert_eq!(listing.problems.len(), 1 + MAX_PROBLEMS + 2);
        assert_eq!(listing.problems[0].outcome, ItemOutcome::LeftOut);
        let last: Vec<_> = listing.problems[1 + MAX_PROBLEMS..].iter().collect();
        assert_eq!(
            (last[0].kind, &*last[0].item),
            (ItemKind::Tool, "100 others")
        );
        assert_eq!(
            (last[1].kind, &*last[1].item),
            (ItemKind::Prompt, "100 others")
        );
        assert!(listing.failures.is_empty(), "the server is not degraded");
    }

    #[test]
    fn texts_of_problems_are_bounded() {
        let server = ServerName::parse("s").unwrap();
        let mut listing = ServerListing::default();
        let name = "n".repeat(10_000);
        listing.add(
            &server,
            ItemKind::Tool,
            &raw(&format!(r#"{{"name":"{name}","title":null}}"#)),
        );
        let properties: Vec<_> = (0..50).map(|n| format!(r#""{name}{n}":7"#)).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, properties.join(","));
        listing.add(
            &server,
            ItemKind::Tool,
            &raw(&format!(r#"{{"name":"p","inputSchema":{schema}}}"#)),
        );
        assert_eq!(listing.problems.len(), 2);
        for problem in &listing.problems {
            let bytes = problem.item.len() + problem.reason.len() + problem.sent.len();
            assert!(bytes < 3000, "{bytes}");
        }
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
        assert_eq!(listing.problems[0].reason, "`uri` is missing or empty");
    }
}
