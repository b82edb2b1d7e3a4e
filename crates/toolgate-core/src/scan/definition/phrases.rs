//! Phrases that address the model instead of describing the tool.
//!
//! Real definitions do tell models when to call a tool, so an imperative alone is not suspicious. These
//! phrases have no place in an honest definition: they hide something from the user, replace other
//! instructions, imitate the markup of a prompt, or ask for files and data that are not the tool's.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet, RegexSetBuilder};

const MAX_AUTOMATON_BYTES: usize = 1024 * 1024;

/// A pattern of suspicious text and its meaning.
struct Phrase {
    meaning: &'static str,
    pattern: &'static str,
}

const PHRASES: [Phrase; 15] = [
    Phrase {
        meaning: "replaces other instructions",
        pattern: r"\b(ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(previous|prior|above|earlier|preceding|existing|other|system|all)\b[^.\n]{0,20}\b(instructions?|rules|prompts?|guidelines|directives|restrictions|policies)\b",
    },
    Phrase {
        meaning: "replaces other instructions",
        pattern: r"\b(overrides?|supersedes?|takes? (precedence|priority) over)\b[^.\n]{0,30}\b(instructions?|rules|prompts?|tools?)\b",
    },
    Phrase {
        meaning: "gives new instructions",
        pattern: r"\bnew instructions?\b|\b(from now on|you are now)\b|\bpretend (to be|that you)\b",
    },
    Phrase {
        meaning: "keeps something from the user",
        pattern: r"\b(do not|don't|never|must not|should not|without)\b[^.\n]{0,20}\b(tell|telling|inform|informing|mention|mentioning|reveal|revealing|notify|notifying|alert|alerting|disclose|disclosing)\b[^.\n]{0,40}\b(user|human|person|anyone|customer)\b",
    },
    Phrase {
        meaning: "keeps something from the user",
        pattern: r"\b(user|human)\b[^.\n]{0,15}\b(must|should|need|may|can|does)\s?(not|n't)\b[^.\n]{0,20}\b(know|see|notice|(be )?(told|informed|aware|notified))\b",
    },
    Phrase {
        meaning: "keeps something from the user",
        pattern: r"\b(hide|conceal|keep)\b[^.\n]{0,30}\bfrom the (user|human)\b|\bsecretly\b",
    },
    Phrase {
        meaning: "acts without the user's consent",
        pattern: r"\bwithout (asking|permission|confirmation|consent)\b[^.\n]{0,30}\b(user|human)\b|\b(silently|quietly) (call|send|run|invoke|execute|read|upload|forward)\b",
    },
    Phrase {
        meaning: "imitates the markup of a prompt",
        pattern: r"<\s*/?\s*(important|system|instructions?|secret|hidden|assistant|admin|critical|system[-_ ]?prompt)\s*/?\s*>",
    },
    Phrase {
        meaning: "imitates the markup of a prompt",
        pattern: r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|\[\s*system\s*\]|(?m:^\s*(system|assistant)\s*:)",
    },
    Phrase {
        meaning: "asks for private files",
        pattern: r"\b(read|open|cat|include|send|pass|attach|copy|upload|load|contents? of)\b[^.\n]{0,60}(~/\.|\bid_(rsa|ed25519)\b|\.ssh/|\.aws/|/etc/(passwd|shadow)\b|\bmcp\.json\b|\.env\b)",
    },
    Phrase {
        meaning: "asks for private data",
        pattern: r"\b(system prompt|conversation history|chat history|previous messages|entire conversation|environment variables|api keys?|passwords?|credentials?)\b[^.\n]{0,40}\b(in|into|as|to) (this|the) (parameter|argument|field|tool)\b",
    },
    Phrase {
        meaning: "sends data elsewhere",
        pattern: r"\b(send|forward|upload|post|e-?mail|bcc|copy)\b[^.\n]{0,60}\bto\b[^.\n]{0,20}(https?://|[\w.+-]+@[\w-]+\.\w)",
    },
    Phrase {
        meaning: "interferes with other tools",
        pattern: r"\b(before|after|instead of|prior to) (using|calling|invoking|running) (any|all|every|other)( other)? (tools?|functions?)\b",
    },
    Phrase {
        meaning: "hides a comment",
        pattern: r"<!--",
    },
    Phrase {
        meaning: "contains encoded data",
        pattern: r"[A-Za-z0-9+/]{160,}={0,2}",
    },
];

/// All patterns as one automaton, so that a text is read once. Characters are bytes here, which keeps it
/// small.
static PATTERNS: LazyLock<Option<RegexSet>> = LazyLock::new(|| {
    let patterns = PHRASES.iter().map(Phrase::to_regex);
    RegexSetBuilder::new(patterns)
        .dfa_size_limit(MAX_AUTOMATON_BYTES)
        .build()
        .ok()
});

impl Phrase {
    fn to_regex(&self) -> String {
        format!("(?i-u){}", self.pattern)
    }

    /// Returns where the phrase is found in a text. Compiles its pattern, because that is rarely needed.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        let found = Regex::new(&self.to_regex()).ok()?.find(text.as_bytes())?;
        let start = text.floor_char_boundary(found.start());
        Some(&text[start..text.ceil_char_boundary(found.end())])
    }
}

/// Finds phrases in a text: the meaning of each and where it was found.
pub(super) fn find(text: &str) -> Vec<(&'static str, &str)> {
    let Some(patterns) = &*PATTERNS else {
        return Vec::new();
    };
    let matching = patterns.matches(text.as_bytes());
    let phrases = matching.iter().map(|index| &PHRASES[index]);
    phrases
        .filter_map(|phrase| Some((phrase.meaning, phrase.find(text)?)))
        .collect()
}

/// Describes a request for private files in the name of a parameter.
pub(super) fn find_in_name(name: &str) -> Option<&'static str> {
    let is_private = [
        "id_rsa",
        "id_ed25519",
        "etc_passwd",
        "etc_shadow",
        "ssh_key",
    ]
    .iter()
    .any(|file| name.contains(file));
    let is_content = ["content", "reading", "file"]
        .iter()
        .any(|word| name.contains(word));
    (is_private && is_content).then_some("the name of a parameter asks for private files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_valid() {
        let set = PATTERNS.as_ref().unwrap();
        assert_eq!(set.len(), PHRASES.len());
    }
}
