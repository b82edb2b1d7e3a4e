//! Which tools a script names, without running it.
//!
//! A script reaches a tool only by reading the name of its server, so every such name counts: with
//! an attribute it is one tool, and in any other way, which may lead to any tool, it is the whole
//! server. That says too much at times and too little never; it is a preview, and each call is
//! decided when it is made. The code is anybody's: this takes one pass, does not recurse and does
//! not fail.
//!
//! Where dialects may disagree about what is a string and what is code, the whole text is read as
//! if it were code.

mod lexer;

use std::collections::{BTreeMap, BTreeSet};

use lexer::{Kind, Lexed, Token};

/// What a script names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Tools by server, as identifiers. Not every one need exist.
    pub tools: BTreeMap<String, BTreeSet<String>>,
    /// Servers that the script uses in a way that cannot be seen through.
    pub servers: BTreeSet<String>,
}

impl Mentions {
    /// Whether the script names nothing of any server.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    /// Whether the script may call this tool.
    pub fn may_call(&self, server: &str, tool: &str) -> bool {
        let is_named = |tools: &BTreeSet<String>| tools.contains(tool);
        self.servers.contains(server) || self.tools.get(server).is_some_and(is_named)
    }

    /// Whether the script names this server at all.
    pub fn needs(&self, server: &str) -> bool {
        self.servers.contains(server) || self.tools.contains_key(server)
    }
}

/// Finds which of `servers`, given as identifiers, a script names, and what of them.
pub fn mentions(code: &str, servers: &[&str]) -> Mentions {
    let servers: BTreeSet<&str> = servers.iter().copied().collect();
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    match lexer::lex(code) {
        Lexed::Tokens(tokens) => in_tokens(&tokens, &servers),
        Lexed::Unclear => in_text(code, &servers),
        Lexed::Foreign => Mentions {
            tools: BTreeMap::new(),
            servers: servers.into_iter().map(str::to_owned).collect(),
        },
    }
}

fn in_tokens(tokens: &[Token<'_>], servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let at = |place: usize| tokens.get(place).map_or(Kind::End, |token| token.kind);
    let before = |place: usize, back: usize| place.checked_sub(back).map_or(Kind::End, at);
    let trusted = own_getattr(tokens);
    for (place, token) in tokens.iter().enumerate() {
        let Kind::Name(name) = token.kind else {
            continue;
        };
        if !servers.contains(name) || before(place, 1) == Kind::Mark('.') {
            continue;
        }
        let is_only_set = at(place + 1) == Kind::Mark('=') && !token.in_field;
        if is_only_set {
            continue;
        }
        let tool = match (at(place + 1), at(place + 2), at(place + 3)) {
            (Kind::Mark('.'), Kind::Name(tool), _) => Some(tool),
            (Kind::Mark(','), Kind::Text(tool), Kind::Mark(',' | ')'))
                if trusted
                    && before(place, 1) == Kind::Mark('(')
                    && matches!(before(place, 2), Kind::Name("getattr" | "hasattr"))
                    && before(place, 3) != Kind::Mark('.') =>
            {
                Some(tool)
            }
            _ => None,
        };
        mentions.add(name, tool);
    }
    mentions
}

impl Mentions {
    fn add(&mut self, server: &str, tool: Option<&str>) {
        match tool {
            Some(tool) => {
                let tools = self.tools.entry(server.to_owned()).or_default();
                tools.insert(tool.to_owned());
            }
            None => {
                self.servers.insert(server.to_owned());
            }
        }
    }
}

/// Whether `getattr` and `hasattr` can only be the language's: nothing gives these names to
/// something else.
fn own_getattr(tokens: &[Token<'_>]) -> bool {
    let mut last = Kind::End;
    let mut tokens = tokens.iter().peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().map_or(Kind::End, |next| next.kind);
        let is_called = next == Kind::Mark('(') && !matches!(last, Kind::Name("def" | "class"));
        let is_it = matches!(token.kind, Kind::Name("getattr" | "hasattr"));
        if is_it && last != Kind::Mark('.') && !is_called {
            return false;
        }
        last = token.kind;
    }
    true
}

/// Takes every word for a name, also in strings and comments.
fn in_text(code: &str, servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word_at = |start: usize| {
        let rest = code.as_bytes().get(start..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| is_word(byte)).count();
        code.get(start..start + length).unwrap_or_default()
    };
    let mut place = 0;
    while place < code.len() {
        let word = word_at(place);
        let end = place + word.len();
        if servers.contains(word) {
            let attribute = match code.as_bytes().get(end) {
                Some(b'.') => word_at(end + 1),
                _ => "",
            };
            let is_name = attribute.starts_with(|c: char| !c.is_ascii_digit());
            mentions.add(word, is_name.then_some(attribute));
        }
        place = end.max(place + 1);
    }
    mentions
}

#[cfg(test)]
mod tests;
