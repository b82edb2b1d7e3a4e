// Finds the tools a script mentions without running it.
//
// A script can only reach a tool through the name of its server, so every occurrence of a server name
// counts. Followed by an attribute it mentions one tool; any other use may lead to any tool and
// mentions the whole server. The result may include too much but never too little. It is only a
// preview: each call is authorized when it is made.
//
// The code is untrusted: analysis takes one pass, does not recurse and cannot fail. Where dialects
// may disagree on what is a string and what is code, all text is treated as code.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{Kind, Lexed, Token};

use crate::preview::Mentions;
/// Finds the mentions of `servers`, given as identifiers, in a script.
pub fn find_mentions(code: &str, servers: &[&str]) -> Mentions {
    let servers: BTreeSet<&str> = servers.iter().copied().collect();
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    match super::lexer::lex(code) {
        Lexed::Tokens(tokens) => find_in_tokens(&tokens, &servers),
        Lexed::Unclear => find_in_text(code, &servers),
        Lexed::Foreign => Mentions {
            tools: BTreeMap::new(),
            servers: servers.into_iter().map(str::to_owned).collect(),
        },
    }
}

fn find_in_tokens(tokens: &[Token<'_>], servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let at = |index: usize| tokens.get(index).map_or(Kind::End, |token| token.kind);
    let before = |index: usize, back: usize| index.checked_sub(back).map_or(Kind::End, at);
    let getattr_is_builtin = is_getattr_builtin(tokens);
    for (index, token) in tokens.iter().enumerate() {
        let Kind::Name(name) = token.kind else {
            continue;
        };
        if !servers.contains(name) || before(index, 1) == Kind::Mark('.') {
            continue;
        }
        let is_assignment_target = at(index + 1) == Kind::Mark('=') && !token.in_field;
        if is_assignment_target {
            continue;
        }
        let tool = match (at(index + 1), at(index + 2), at(index + 3)) {
            (Kind::Mark('.'), Kind::Name(tool), _) => Some(tool),
            (Kind::Mark(','), Kind::Text(tool), Kind::Mark(',' | ')'))
                if getattr_is_builtin
                    && before(index, 1) == Kind::Mark('(')
                    && matches!(before(index, 2), Kind::Name("getattr" | "hasattr"))
                    && before(index, 3) != Kind::Mark('.') =>
            {
                Some(tool)
            }
            _ => None,
        };
        add(&mut mentions, name, tool);
    }
    mentions
}

fn add(m: &mut Mentions, server: &str, tool: Option<&str>) {
    match tool {
        Some(tool) => {
            m.tools
                .entry(server.to_owned())
                .or_default()
                .insert(tool.to_owned());
        }
        None => {
            m.servers.insert(server.to_owned());
        }
    }
}

/// Returns whether `getattr` and `hasattr` are certain to be the builtins, that is, never rebound.
fn is_getattr_builtin(tokens: &[Token<'_>]) -> bool {
    let mut last = Kind::End;
    let mut tokens = tokens.iter().peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().map_or(Kind::End, |next| next.kind);
        let is_called = next == Kind::Mark('(') && !matches!(last, Kind::Name("def" | "class"));
        let is_getattr = matches!(token.kind, Kind::Name("getattr" | "hasattr"));
        if is_getattr && last != Kind::Mark('.') && !is_called {
            return false;
        }
        last = token.kind;
    }
    true
}

/// Treats every word as a name, including those in strings and comments.
fn find_in_text(code: &str, servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word_at = |start: usize| {
        let rest = code.as_bytes().get(start..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| is_word(byte)).count();
        code.get(start..start + length).unwrap_or_default()
    };
    let mut index = 0;
    while index < code.len() {
        let word = word_at(index);
        let end = index + word.len();
        if servers.contains(word) {
            let attribute = match code.as_bytes().get(end) {
                Some(b'.') => word_at(end + 1),
                _ => "",
            };
            let is_name = attribute.starts_with(|c: char| !c.is_ascii_digit());
            add(&mut mentions, word, is_name.then_some(attribute));
        }
        index = end.max(index + 1);
    }
    mentions
}
