//! Errors for unknown names, with suggestions.

use std::fmt;

use strsim::jaro_winkler;

use super::text::single_line;
use super::{Bindings, ServerBinding, fold_name, strip_file_parts};

const MAX_NAMES: usize = 40;
const MAX_NAMES_BYTES: usize = 2000;
const MAX_REQUESTED_CHARS: usize = 80;
const MIN_SIMILARITY: f64 = 0.8;
const MAX_SUGGESTIONS: usize = 3;

/// A name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownName {
    /// `file`, `server` or `tool`.
    pub what: &'static str,
    pub requested: String,
    /// Similar names, most similar first.
    pub similar: Vec<String>,
    /// Existing names, as many as fit.
    pub available: Vec<String>,
    /// Number of existing names not listed in `available`.
    pub more: usize,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {} `{}`", self.what, self.requested)?;
        if !self.similar.is_empty() {
            write!(f, " (did you mean `{}`?)", self.similar.join("` or `"))?;
        }
        match (self.available.is_empty(), self.more) {
            (true, _) => write!(f, "; none exist"),
            (false, 0) => write!(f, "; available: {}", self.available.join(", ")),
            (false, more) => write!(
                f,
                "; available: {}, and {more} more (listToolFiles)",
                self.available.join(", ")
            ),
        }
    }
}

impl Bindings {
    /// Finds servers, and tools as `server.tool`, with a similar name, most similar first.
    pub fn find_similar(&self, name: &str) -> Vec<String> {
        let name: String = strip_file_parts(name)
            .chars()
            .take(MAX_REQUESTED_CHARS)
            .collect();
        let requested = fold_name(&name);
        let (server_part, tool_part) = match name.rsplit_once(['.', '/']) {
            Some((server, tool)) => (Some(fold_name(server)), fold_name(tool)),
            None => (None, requested.clone()),
        };
        let mut scored: Vec<(f64, String)> = Vec::new();
        for server in &self.servers {
            let server_name = fold_name(&server.identifier);
            if server_part.is_none() {
                scored.push((
                    similarity(&requested, &server_name),
                    server.identifier.to_string(),
                ));
            }
            let server_score = server_part
                .as_ref()
                .map_or(0.9, |part| similarity(part, &server_name));
            for tool in &server.tools {
                let score = similarity(&tool_part, &fold_name(&tool.identifier));
                let score = score * 0.8 + server_score * 0.2;
                if score >= MIN_SIMILARITY {
                    scored.push((score, format!("{}.{}", server.identifier, tool.identifier)));
                }
            }
        }
        top_suggestions(scored)
    }

    pub(super) fn unknown_server(&self, requested: &str) -> UnknownName {
        let names = self
            .servers
            .iter()
            .map(|server| server.identifier.to_string());
        UnknownName::new("server", requested, self.find_similar(requested), names)
    }

    pub(super) fn unknown_file(&self, requested: &str) -> UnknownName {
        let names = self
            .servers
            .iter()
            .map(|server| format!("servers/{}.pyi", server.identifier));
        UnknownName::new("file", requested, self.find_similar(requested), names)
    }

    pub(super) fn unknown_tool(&self, server: &ServerBinding, requested: &str) -> UnknownName {
        let names = server.tools.iter().map(|tool| tool.identifier.clone());
        let requested = format!("{}.{}", server.identifier, strip_file_parts(requested));
        UnknownName::new("tool", &requested, self.find_similar(&requested), names)
    }
}

impl UnknownName {
    fn new(
        what: &'static str,
        requested: &str,
        nearest: Vec<String>,
        names: impl ExactSizeIterator<Item = String>,
    ) -> Self {
        let count = names.len();
        let mut budget = MAX_NAMES_BYTES;
        let fits = |name: &String| {
            budget = budget.saturating_sub(name.len() + 2);
            budget > 0
        };
        let available: Vec<String> = names.take(MAX_NAMES).take_while(fits).collect();
        Self {
            what,
            requested: single_line(requested, MAX_REQUESTED_CHARS),
            similar: nearest,
            more: count - available.len(),
            available,
        }
    }
}

/// Returns the similarity of two folded names. A name that contains the other scores at least 0.85.
fn similarity(requested: &str, name: &str) -> f64 {
    let letters = jaro_winkler(requested, name);
    let (short, long) = if requested.len() <= name.len() {
        (requested, name)
    } else {
        (name, requested)
    };
    if short.len() >= 3 && long.contains(short) {
        letters.max(0.85)
    } else {
        letters
    }
}

fn top_suggestions(mut scored: Vec<(f64, String)>) -> Vec<String> {
    scored.retain(|(score, _)| *score >= MIN_SIMILARITY);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.truncate(MAX_SUGGESTIONS);
    scored.into_iter().map(|(_, name)| name).collect()
}
