//! Scans the definitions of tools for text that is meant to mislead a model: text that people do not
//! see, instructions, references to tools of other servers, and names that look like those of others.
//!
//! A finding is a hint, not proof: a model can be misled in words that no pattern knows.

mod hidden;
mod phrases;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{Catalog, Tool};
use crate::name::{ServerName, ToolId};

/// Maximum number of findings reported per definition.
const MAX_FINDINGS: usize = 16;
/// Characters quoted from a definition.
const MAX_QUOTED_CHARS: usize = 80;
/// Shorter names of tools are also ordinary words.
const MIN_DISTINCTIVE_LEN: usize = 6;
/// Members that models do not see.
const IGNORED_MEMBERS: [&str; 3] = ["name", "_meta", "icons"];

/// Kind of suspicious text in a definition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Suspicion {
    /// Text that people do not see.
    HiddenText,
    /// Instructions to the model.
    Instructions,
    /// A tool of another server is mentioned.
    ForeignTool,
    /// The name looks like that of another server's tool.
    LookAlike,
}

/// Suspicious text in a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DefinitionFinding {
    pub suspicion: Suspicion,
    /// JSON pointer to the text in the definition.
    pub place: String,
    /// Description for people.
    pub what: String,
}

/// Scans definitions of a catalog.
#[derive(Debug)]
pub struct DefinitionScanner<'a> {
    /// Servers that have a tool of a name or alias, unless that is also an ordinary word.
    names: HashMap<&'a str, Vec<&'a ServerName>>,
    /// Tools by the form in which their names look alike.
    by_skeleton: HashMap<String, Vec<&'a ToolId>>,
}

impl<'a> DefinitionScanner<'a> {
    pub fn new(catalog: &'a Catalog) -> Self {
        let mut names: HashMap<&str, Vec<&ServerName>> = HashMap::new();
        let mut by_skeleton: HashMap<String, Vec<&ToolId>> = HashMap::new();
        for entry in catalog.tools() {
            let id = &entry.tool.id;
            for name in [id.tool.as_str(), &*entry.alias] {
                if is_distinctive(name) {
                    names.entry(name).or_default().push(&id.server);
                }
            }
            let skeleton = skeleton(id.tool.as_str());
            by_skeleton.entry(skeleton).or_default().push(id);
        }
        Self { names, by_skeleton }
    }

    /// Finds suspicious text in the definition of a tool. `first_seen` tells when a tool was first
    /// seen: of two names that look alike, the later one is suspicious.
    pub fn scan(&self, tool: &Tool, first_seen: &dyn Fn(&ToolId) -> i64) -> Vec<DefinitionFinding> {
        let mut scan = DefinitionScan {
            scanner: self,
            server: &tool.id.server,
            place: String::new(),
            found: Vec::new(),
        };
        if tool.had_hidden_text {
            let what = "control characters or invisible tags, which were removed";
            scan.add(Suspicion::HiddenText, what.to_owned());
        }
        if let Some(other) = self.find_look_alike(&tool.id, first_seen) {
            let what = format!("`{}` looks like `{other}`", tool.id.tool);
            scan.place = "/name".to_owned();
            scan.add(Suspicion::LookAlike, what);
            scan.place.clear();
        }
        // The definition was parsed when it was listed.
        if let Ok(Value::Object(members)) = serde_json::from_str(tool.definition.get()) {
            let visible = members.iter();
            for (name, member) in visible.filter(|(name, _)| !is_ignored(name)) {
                scan.visit(name, member);
            }
        }
        scan.found.truncate(MAX_FINDINGS);
        scan.found
    }

    fn find_look_alike(
        &self,
        id: &ToolId,
        first_seen: &dyn Fn(&ToolId) -> i64,
    ) -> Option<&'a ToolId> {
        let similar = self.by_skeleton.get(&skeleton(id.tool.as_str()))?.iter();
        let mut others = similar
            .filter(|other| other.server != id.server && other.tool != id.tool)
            .filter(|other| first_seen(other) <= first_seen(id));
        others.next().copied()
    }
}

fn is_ignored(member: &str) -> bool {
    IGNORED_MEMBERS.contains(&member)
}

/// A definition that is being scanned.
struct DefinitionScan<'a> {
    scanner: &'a DefinitionScanner<'a>,
    server: &'a ServerName,
    place: String,
    found: Vec<DefinitionFinding>,
}

impl DefinitionScan<'_> {
    fn visit(&mut self, step: &str, value: &Value) {
        if self.found.len() >= MAX_FINDINGS {
            return;
        }
        let parent = self.place.len();
        self.place.push('/');
        self.place
            .push_str(&step.replace('~', "~0").replace('/', "~1"));
        self.check_name(step);
        match value {
            Value::String(text) => self.check_text(text),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.visit(&index.to_string(), item);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.visit(name, member);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        self.place.truncate(parent);
    }

    /// Checks the name of a member, which a model reads too.
    fn check_name(&mut self, name: &str) {
        if let Some(found) = phrases::find_in_name(name) {
            self.add(Suspicion::Instructions, found.to_owned());
        }
    }

    fn check_text(&mut self, text: &str) {
        if let Some(what) = hidden::find(text) {
            self.add(Suspicion::HiddenText, what.to_owned());
        }
        for (meaning, quoted) in phrases::find(text) {
            let quoted: String = quoted.chars().take(MAX_QUOTED_CHARS).collect();
            let quoted = quoted.replace('\n', " ");
            self.add(Suspicion::Instructions, format!("{meaning}: “{quoted}”"));
        }
        if let Some((name, server)) = self.find_foreign_tool(text) {
            let what = format!("mentions `{name}` of server `{server}`");
            self.add(Suspicion::ForeignTool, what);
        }
    }

    /// Returns the first name in a text that is a tool of other servers only.
    fn find_foreign_tool<'t>(&self, text: &'t str) -> Option<(&'t str, &ServerName)> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let words = text.split(|c| !is_part(c));
        let words = words.map(|word| word.trim_matches(['.', '-']));
        words
            .filter(|word| word.len() >= MIN_DISTINCTIVE_LEN)
            .find_map(|word| {
                let servers = self.scanner.names.get(word)?;
                let is_own = servers.contains(&self.server);
                (!is_own).then(|| (word, servers[0]))
            })
    }

    fn add(&mut self, suspicion: Suspicion, what: String) {
        self.found.push(DefinitionFinding {
            suspicion,
            place: self.place.clone(),
            what,
        });
    }
}

/// Returns whether a name is unlikely to occur in a text unless the tool is meant.
fn is_distinctive(name: &str) -> bool {
    let has_inner_upper = || {
        let pairs = name.as_bytes().windows(2);
        pairs
            .clone()
            .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
    };
    name.len() >= MIN_DISTINCTIVE_LEN && (name.contains(['_', '-']) || has_inner_upper())
}

/// Returns the form in which names that look alike are equal.
fn skeleton(name: &str) -> String {
    let folded = name.chars().flat_map(char::to_lowercase).map(to_latin);
    let letters: String = folded.filter(|c| c.is_alphanumeric()).collect();
    letters.replace("rn", "m").replace("vv", "w")
}

/// Returns the Latin letter that a character looks like.
fn to_latin(c: char) -> char {
    match c {
        '0' | 'о' | 'ο' | 'օ' => 'o',
        '1' | 'ı' | 'і' | 'ι' | '|' | 'ӏ' | 'l' => 'i',
        '5' | 'ѕ' => 's',
        'а' | 'α' | 'ɑ' => 'a',
        'в' => 'b',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'ҽ' => 'e',
        'ɡ' => 'g',
        'һ' => 'h',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'м' => 'm',
        'п' => 'n',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'г' => 'r',
        'т' | 'τ' => 't',
        'υ' | 'ս' => 'u',
        'ѵ' | 'ν' => 'v',
        'ԝ' | 'ω' => 'w',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        '\u{ff01}'..='\u{ff5e}' => {
            let ascii = char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c);
            to_latin(ascii.to_ascii_lowercase())
        }
        _ => c,
    }
}

#[cfg(test)]
mod tests;
