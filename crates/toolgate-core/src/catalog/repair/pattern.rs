//! Checks the syntax of regular expressions as JavaScript does with the flag `u`.
//!
//! JavaScript is stricter there than most dialects: for example, only punctuation that has a meaning may
//! be escaped.

use std::str::Chars;

/// Characters that may be escaped to lose their meaning.
const SYNTAX_CHARACTERS: &str = "^$\\.*+?()[]{}|/";
/// Abbreviations of the general categories of characters.
const CATEGORIES: &str = "L LC Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn";
/// Other properties in use: general categories and binary properties.
const PROPERTIES: &str = "Letter Cased_Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter Mark Nonspacing_Mark Number Decimal_Number Letter_Number Punctuation punct Symbol Math_Symbol Currency_Symbol Separator Space_Separator Other Control Format Any ASCII ASCII_Hex_Digit Alphabetic Alpha Assigned Emoji Emoji_Presentation Extended_Pictographic Hex_Digit ID_Start ID_Continue XID_Start XID_Continue Ideographic Lowercase Uppercase White_Space";
/// Scripts in use.
const SCRIPTS: &str = "Arabic Armenian Bengali Cyrillic Devanagari Georgian Greek Han Hangul Hebrew Hiragana Katakana Latin Latn Tamil Telugu Thai Arab Cyrl Grek Hani Hebr Common";
/// Nesting of groups up to which patterns are checked.
const MAX_GROUPS: usize = 200;

/// Returns whether a pattern is valid.
pub(super) fn is_valid(pattern: &str) -> bool {
    let mut parser = PatternParser {
        rest: pattern.chars(),
        groups: 0,
        names: Vec::new(),
        highest_reference: 0,
        referenced_names: Vec::new(),
    };
    parser.parse().is_some()
        && parser.highest_reference <= parser.groups
        && parser
            .referenced_names
            .iter()
            .all(|name| parser.names.contains(name))
}

/// What stands before a quantifier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Term {
    /// Something that can be repeated.
    Atom,
    /// A place in the text, or nothing.
    Assertion,
}

/// An element of a character class.
enum ClassAtom {
    Character(u32),
    Set,
}

/// Reads a pattern. Every method returns `None` at an error.
struct PatternParser<'a> {
    rest: Chars<'a>,
    /// Number of groups that capture text.
    groups: u32,
    names: Vec<String>,
    highest_reference: u32,
    referenced_names: Vec<String>,
}

impl PatternParser<'_> {
    fn parse(&mut self) -> Option<()> {
        // What the open groups are as terms.
        let mut open: Vec<Term> = Vec::new();
        let mut last = Term::Assertion;
        while let Some(character) = self.rest.next() {
            last = match character {
                '(' => {
                    if open.len() == MAX_GROUPS {
                        return None;
                    }
                    open.push(self.open_group()?);
                    Term::Assertion
                }
                ')' => open.pop()?,
                '|' | '^' | '$' => Term::Assertion,
                '*' | '+' | '?' | '{' => {
                    if last == Term::Assertion {
                        return None;
                    }
                    self.quantifier(character)?;
                    Term::Assertion
                }
                '[' => {
                    self.class()?;
                    Term::Atom
                }
                ']' | '}' => return None,
                '\\' => self.escape()?,
                _ => Term::Atom,
            };
        }
        open.is_empty().then_some(())
    }

    /// Reads what follows the opening parenthesis of a group.
    fn open_group(&mut self) -> Option<Term> {
        if !self.skip("?") {
            self.groups += 1;
            return Some(Term::Atom);
        }
        if self.skip(":") {
            return Some(Term::Atom);
        }
        if ["=", "!", "<=", "<!"].iter().any(|kind| self.skip(kind)) {
            return Some(Term::Assertion);
        }
        if self.skip("<") {
            let name = self.name()?;
            if self.names.contains(&name) {
                return None;
            }
            self.names.push(name);
            self.groups += 1;
            return Some(Term::Atom);
        }
        None
    }

    /// Reads the name of a group and the `>` after it.
    fn name(&mut self) -> Option<String> {
        let (name, _) = self.rest.as_str().split_once('>')?;
        let name = name.to_owned();
        let mut characters = name.chars();
        let is_start = |c: char| c.is_alphabetic() || c == '_' || c == '$';
        if !characters.next().is_some_and(is_start)
            || !characters.all(|c| is_start(c) || c.is_numeric())
        {
            return None;
        }
        self.skip(&name);
        self.skip(">");
        Some(name)
    }

    /// Reads the rest of a quantifier.
    fn quantifier(&mut self, first: char) -> Option<()> {
        if first == '{' {
            let (range, _) = self.rest.as_str().split_once('}')?;
            let range = range.to_owned();
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let (low, high) = match range.split_once(',') {
                None => (&*range, None),
                Some((low, "")) => (low, None),
                Some((low, high)) => (low, Some(high)),
            };
            if !is_number(low) || !high.is_none_or(is_number) {
                return None;
            }
            if high.is_some_and(|high| is_greater(low, high)) {
                return None;
            }
            self.skip(&range);
            self.skip("}");
        }
        self.skip("?");
        Some(())
    }

    /// Reads a character class after its opening bracket.
    fn class(&mut self) -> Option<()> {
        self.skip("^");
        loop {
            let low = match self.rest.next()? {
                ']' => return Some(()),
                character => self.class_atom(character)?,
            };
            let is_range =
                self.rest.as_str().starts_with('-') && !self.rest.as_str().starts_with("-]");
            if !is_range {
                continue;
            }
            self.skip("-");
            let character = self.rest.next()?;
            match (low, self.class_atom(character)?) {
                (ClassAtom::Character(low), ClassAtom::Character(high)) if low <= high => {}
                _ => return None,
            }
        }
    }

    fn class_atom(&mut self, character: char) -> Option<ClassAtom> {
        if character != '\\' {
            return Some(ClassAtom::Character(u32::from(character)));
        }
        let escaped = self.rest.next()?;
        match escaped {
            'b' => Some(ClassAtom::Character(8)),
            '-' => Some(ClassAtom::Character(u32::from('-'))),
            _ => self.character_escape(escaped),
        }
    }

    /// Reads an escape outside of a character class, after the backslash.
    fn escape(&mut self) -> Option<Term> {
        let escaped = self.rest.next()?;
        match escaped {
            'b' | 'B' => return Some(Term::Assertion),
            'k' => {
                if !self.skip("<") {
                    return None;
                }
                let name = self.name()?;
                self.referenced_names.push(name);
            }
            '1'..='9' => {
                let mut number = escaped.to_digit(10)?;
                while let Some(digit) = self.rest.clone().next().and_then(|c| c.to_digit(10)) {
                    self.rest.next();
                    number = number.saturating_mul(10).saturating_add(digit);
                }
                self.highest_reference = self.highest_reference.max(number);
            }
            _ => {
                self.character_escape(escaped)?;
            }
        }
        Some(Term::Atom)
    }

    /// Reads an escape that means one character or a set of them.
    fn character_escape(&mut self, escaped: char) -> Option<ClassAtom> {
        let code = match escaped {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => return Some(ClassAtom::Set),
            'p' | 'P' => return self.property(),
            't' => 9,
            'n' => 10,
            'v' => 11,
            'f' => 12,
            'r' => 13,
            '0' if !self.rest.as_str().starts_with(|c: char| c.is_ascii_digit()) => 0,
            'c' => match self.rest.next()? {
                letter if letter.is_ascii_alphabetic() => u32::from(letter) % 32,
                _ => return None,
            },
            'x' => self.hex(2)?,
            'u' => self.unicode_escape()?,
            other if SYNTAX_CHARACTERS.contains(other) => u32::from(other),
            _ => return None,
        };
        Some(ClassAtom::Character(code))
    }

    /// Reads the braces after `\u`, or its four digits.
    fn unicode_escape(&mut self) -> Option<u32> {
        if !self.skip("{") {
            let first = self.hex(4)?;
            let after = self.rest.clone();
            // Two surrogates are one character.
            if (0xd800..0xdc00).contains(&first)
                && self.skip("\\u")
                && let Some(second @ 0xdc00..0xe000) = self.hex(4)
            {
                return Some(0x10000 + (first - 0xd800) * 0x400 + (second - 0xdc00));
            }
            self.rest = after;
            return Some(first);
        }
        let (digits, _) = self.rest.as_str().split_once('}')?;
        let digits = digits.to_owned();
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let code = match significant {
            "" if !digits.is_empty() => 0,
            _ => u32::from_str_radix(significant, 16).ok()?,
        };
        self.skip(&digits);
        self.skip("}");
        (code <= 0x0010_ffff).then_some(code)
    }

    fn hex(&mut self, count: usize) -> Option<u32> {
        let digits = self.rest.as_str().get(..count)?.to_owned();
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        self.skip(&digits);
        u32::from_str_radix(&digits, 16).ok()
    }

    /// Reads the name of a Unicode property.
    fn property(&mut self) -> Option<ClassAtom> {
        if !self.skip("{") {
            return None;
        }
        let (name, _) = self.rest.as_str().split_once('}')?;
        let name = name.to_owned();
        if !is_property(&name) {
            return None;
        }
        self.skip(&name);
        self.skip("}");
        Some(ClassAtom::Set)
    }

    /// Skips a text if it comes next.
    fn skip(&mut self, text: &str) -> bool {
        match self.rest.as_str().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.chars();
                true
            }
            None => false,
        }
    }
}

/// Returns whether JavaScript knows a property of characters. A rare one may be missing here.
fn is_property(name: &str) -> bool {
    let contains = |list: &str, word: &str| list.split(' ').any(|each| each == word);
    match name.split_once('=') {
        None => contains(CATEGORIES, name) || contains(PROPERTIES, name),
        Some(("gc" | "General_Category", category)) => contains(CATEGORIES, category),
        Some(("sc" | "scx" | "Script" | "Script_Extensions", script)) => contains(SCRIPTS, script),
        Some(_) => false,
    }
}

/// Compares two numbers of any length.
fn is_greater(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    (a.len(), a) > (b.len(), b)
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn patterns_are_valid_as_in_javascript() {
        for valid in [
            "",
            "^[a-z0-9._%+-]+@[a-z]+\\.[a-z]{2,}$",
            r"^\d{4}-\d{2}(?:T\d{1,2})?$",
            r"[\w\-]+\/\.",
            r"(?<year>\d+)\k<year>\1",
            r"(?=a)(?!b)(?<=c)(?<!d)e*?",
            r"\u{1F600}[\ud83d\ude00-\ud83d\ude01]\u0041\x41\cA\0",
            r"\p{L}\P{Lu}\p{Script=Greek}[^][]",
            "é|",
        ] {
            assert!(is_valid(valid), "{valid}");
        }
        for invalid in [
            r"\-",
            r"\_",
            r"\A",
            r"\ ",
            "(",
            ")",
            "[",
            "]",
            "}",
            "a{",
            "a{,2}",
            "a{2,1}",
            "*",
            "a**",
            "a++",
            "^*",
            "(?=a)*",
            "(?i)a",
            "(?P<n>a)",
            "(?>a)",
            "(?<1>a)",
            "(?<n>a)(?<n>b)",
            r"\k<n>",
            r"\1",
            r"\01",
            r"\x4",
            r"\u{110000}",
            r"\p{Nope}",
            r"\pL",
            r"[a-\d]",
            "[b-a]",
            "\\",
        ] {
            assert!(!is_valid(invalid), "{invalid}");
        }
    }
}
