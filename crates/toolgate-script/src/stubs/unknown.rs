//! Names that nothing has, and what was perhaps meant.

use std::fmt;

use strsim::jaro_winkler;

use super::text::line;
use super::{Bindings, Server, bare, folded};

const SHOWN: usize = 40;
const SHOWN_BYTES: usize = 2000;
const ASKED: usize = 80;
const NEAR: f64 = 0.8;
const SUGGESTIONS: usize = 3;

/// A name that nothing has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unknown {
    /// `file`, `server` or `tool`.
    pub what: &'static str,
    pub asked: String,
    /// What was perhaps meant, the likeliest first.
    pub nearest: Vec<String>,
    /// What there is, as far as it fits.
    pub available: Vec<String>,
    pub more: usize,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {} `{}`", self.what, self.asked)?;
        if !self.nearest.is_empty() {
            write!(f, " (did you mean `{}`?)", self.nearest.join("` or `"))?;
        }
        match (self.available.is_empty(), self.more) {
            (true, _) => write!(f, "; there are none at all"),
            (false, 0) => write!(f, "; there are: {}", self.available.join(", ")),
            (false, more) => write!(
                f,
                "; there are: {}, and {more} more (listToolFiles)",
                self.available.join(", ")
            ),
        }
    }
}

impl Bindings {
    /// Servers, and tools as `server.tool`, whose names are like this one, the likeliest first.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        let name: String = bare(name).chars().take(ASKED).collect();
        let wanted = folded(&name);
        let (server_part, tool_part) = match name.rsplit_once(['.', '/']) {
            Some((server, tool)) => (Some(folded(server)), folded(tool)),
            None => (None, wanted.clone()),
        };
        let mut scored: Vec<(f64, String)> = Vec::new();
        for server in &self.servers {
            let own = folded(&server.identifier);
            if server_part.is_none() {
                scored.push((likeness(&wanted, &own), server.identifier.to_string()));
            }
            let same_server = server_part
                .as_ref()
                .map_or(0.9, |part| likeness(part, &own));
            for tool in &server.tools {
                let score = likeness(&tool_part, &folded(&tool.identifier));
                let score = score * 0.8 + same_server * 0.2;
                if score >= NEAR {
                    scored.push((score, format!("{}.{}", server.identifier, tool.identifier)));
                }
            }
        }
        best(scored)
    }

    pub(super) fn unknown_server(&self, asked: &str) -> Unknown {
        let names = self
            .servers
            .iter()
            .map(|server| server.identifier.to_string());
        Unknown::new("server", asked, self.nearest(asked), names)
    }

    pub(super) fn unknown_file(&self, asked: &str) -> Unknown {
        let names = self
            .servers
            .iter()
            .map(|server| format!("servers/{}.pyi", server.identifier));
        Unknown::new("file", asked, self.nearest(asked), names)
    }

    pub(super) fn unknown_tool(&self, server: &Server, asked: &str) -> Unknown {
        let names = server.tools.iter().map(|tool| tool.identifier.clone());
        let asked = format!("{}.{}", server.identifier, bare(asked));
        Unknown::new("tool", &asked, self.nearest(&asked), names)
    }
}

impl Unknown {
    fn new(
        what: &'static str,
        asked: &str,
        nearest: Vec<String>,
        names: impl ExactSizeIterator<Item = String>,
    ) -> Self {
        let count = names.len();
        let mut left = SHOWN_BYTES;
        let fits = |name: &String| {
            left = left.saturating_sub(name.len() + 2);
            left > 0
        };
        let available: Vec<String> = names.take(SHOWN).take_while(fits).collect();
        Self {
            what,
            asked: line(asked, ASKED),
            nearest,
            more: count - available.len(),
            available,
        }
    }
}

/// How alike two folded names are; one that holds the other is more alike than letters say.
fn likeness(wanted: &str, name: &str) -> f64 {
    let letters = jaro_winkler(wanted, name);
    let (short, long) = match wanted.len() <= name.len() {
        true => (wanted, name),
        false => (name, wanted),
    };
    match short.len() >= 3 && long.contains(short) {
        true => letters.max(0.85),
        false => letters,
    }
}

fn best(mut scored: Vec<(f64, String)>) -> Vec<String> {
    scored.retain(|(score, _)| *score >= NEAR);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.truncate(SUGGESTIONS);
    scored.into_iter().map(|(_, name)| name).collect()
}
