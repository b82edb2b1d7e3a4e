//! What one server offers: tools, resources, templates and prompts.
//!
//! A malformed or repeated item becomes a [`Problem`] and hides none of the others.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Tool;
use crate::name::ServerName;

/// Problems that are kept one by one.
const MAX_PROBLEMS: usize = 100;

/// The items of one server, and what was wrong with those that are missing.
#[derive(Debug, Default)]
pub struct Offer {
    pub tools: Vec<Arc<Tool>>,
    pub resources: Vec<Item>,
    pub templates: Vec<Item>,
    pub prompts: Vec<Item>,
    pub problems: Vec<Problem>,
    /// Lists that could not be had at all, and why.
    pub failed: Vec<String>,
    seen: HashSet<(Kind, String)>,
    /// How many items of each kind were added, good or not.
    added: [usize; 4],
    unlisted: usize,
}

/// A resource, template or prompt: the key by which it is asked for, and its definition.
#[derive(Clone, Debug)]
pub struct Item {
    /// URI, URI template or name.
    pub key: String,
    pub definition: Box<RawValue>,
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Tool,
    Resource,
    Template,
    Prompt,
}

/// An item that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub kind: Kind,
    /// The item's key, or its place in the list where it has none.
    pub item: String,
    pub reason: String,
}

impl Offer {
    /// Adds an item as the server sent it.
    pub fn add(&mut self, server: &ServerName, kind: Kind, definition: &RawValue) {
        self.added[kind as usize] += 1;
        let place = self.added[kind as usize];
        let key = text_field(definition, kind.key_field());
        if let Some(key) = &key
            && !self.seen.insert((kind, key.clone()))
        {
            return self.reject(kind, key, "the server lists it twice; the first one counts");
        }
        let named = key.clone().unwrap_or_else(|| format!("#{place}"));
        if kind == Kind::Tool {
            match Tool::read(server, definition) {
                Ok(tool) => self.tools.push(Arc::new(tool)),
                Err(reason) => self.reject(kind, &named, &reason),
            }
            return;
        }
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            let reason = format!("it has no `{}`", kind.key_field());
            return self.reject(kind, &named, &reason);
        };
        let item = Item {
            key,
            definition: definition.to_owned(),
        };
        match kind {
            Kind::Resource => self.resources.push(item),
            Kind::Template => self.templates.push(item),
            Kind::Tool | Kind::Prompt => self.prompts.push(item),
        }
    }

    pub fn reject(&mut self, kind: Kind, item: &str, reason: &str) {
        if self.problems.len() >= MAX_PROBLEMS {
            self.unlisted += 1;
            return;
        }
        self.problems.push(Problem {
            kind,
            item: item.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Takes over from `before` what a list that failed would have had.
    pub fn keep(&mut self, kind: Kind, before: &Self) {
        match kind {
            Kind::Tool => self.tools.clone_from(&before.tools),
            Kind::Resource => self.resources.clone_from(&before.resources),
            Kind::Template => self.templates.clone_from(&before.templates),
            Kind::Prompt => self.prompts.clone_from(&before.prompts),
        }
    }

    /// Puts everything into its lasting order.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.tools.sort_by(|a, b| a.id.cmp(&b.id));
        for items in [&mut self.resources, &mut self.templates, &mut self.prompts] {
            items.sort_by(|a, b| a.key.cmp(&b.key));
        }
        self.seen = HashSet::new();
        if self.unlisted > 0 {
            self.failed
                .push(format!("{} further items could not be used", self.unlisted));
        }
        self
    }
}

/// Two offers are equal when a client could not tell them apart.
impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &[Item], b: &[Item]| {
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
                .all(|(a, b)| a.hash == b.hash)
            && same(&self.resources, &other.resources)
            && same(&self.templates, &other.templates)
            && same(&self.prompts, &other.prompts)
            && self.problems == other.problems
            && self.failed == other.failed
    }
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];

    fn key_field(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

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
    fn a_malformed_tool_hides_no_other() {
        let server = ServerName::parse("s").unwrap();
        let mut offer = Offer::default();
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
            offer.add(&server, Kind::Tool, &raw(tool));
        }
        let offer = offer.sorted();
        let names: Vec<_> = offer.tools.iter().map(|t| t.id.tool.as_str()).collect();
        assert_eq!(names, ["a", "b", "no_schema"]);
        assert_eq!(offer.tools[0].hints.read_only, Some(true));
        assert!(offer.tools[1].definition.get().ends_with(r#""x-new":1.0}"#));
        let problems: Vec<_> = offer.problems.iter().map(|p| p.item.as_str()).collect();
        assert_eq!(problems, ["bad_schema", "#4", "#5", "#6", "b"]);
    }

    #[test]
    fn a_flood_of_bad_items_is_counted_not_kept() {
        let server = ServerName::parse("s").unwrap();
        let mut offer = Offer::default();
        for _ in 0..5000 {
            offer.add(&server, Kind::Tool, &raw("{}"));
        }
        let offer = offer.sorted();
        assert_eq!(offer.problems.len(), MAX_PROBLEMS);
        assert_eq!(offer.problems[99].item, "#100");
        assert_eq!(offer.failed, ["4900 further items could not be used"]);
    }

    #[test]
    fn other_kinds_are_keyed() {
        let server = ServerName::parse("s").unwrap();
        let mut offer = Offer::default();
        offer.add(
            &server,
            Kind::Resource,
            &raw(r#"{"uri":"a://b","name":"n"}"#),
        );
        offer.add(&server, Kind::Resource, &raw(r#"{"name":"n"}"#));
        offer.add(
            &server,
            Kind::Template,
            &raw(r#"{"uriTemplate":"a://{b}"}"#),
        );
        offer.add(&server, Kind::Prompt, &raw(r#"{"name":"p"}"#));
        assert_eq!(offer.resources[0].key, "a://b");
        assert_eq!(offer.templates[0].key, "a://{b}");
        assert_eq!(offer.prompts[0].key, "p");
        assert_eq!(offer.problems[0].item, "#2");
        assert_eq!(offer.problems[0].reason, "it has no `uri`");
    }
}
