//! Rewrites of Python expressions that Starlark lacks. Each applies one change to a line.

use super::line::TokenizedLine;
use crate::lexer::{TokenKind, find_fields};

/// `await f()` becomes `f()`, since calls are synchronous.
pub(super) fn await_keyword(line: &TokenizedLine<'_>) -> Option<String> {
    let at = line.find("await").or_else(|| line.find("async"))?;
    Some(format!(
        "{}{}",
        &line.text[..line.start(at)],
        &line.text[line.start(at + 1)..]
    ))
}

/// `is` and `is not` become comparisons.
pub(super) fn identity(line: &TokenizedLine<'_>) -> Option<String> {
    let at = line.find("is")?;
    Some(if line.matches(at + 1, "not") {
        line.replace(at, at + 2, "!=")
    } else {
        line.replace(at, at + 1, "==")
    })
}

/// `1_000` becomes `1000`.
pub(super) fn digit_separators(line: &TokenizedLine<'_>) -> Option<String> {
    let at = (0..line.len())
        .find(|at| line.is_kind(*at, TokenKind::Number) && line.token(*at).contains('_'))?;
    Some(line.replace(at, at + 1, &line.token(at).replace('_', "")))
}

/// `"a" "b"` becomes `"a" + "b"`.
pub(super) fn concatenation(line: &TokenizedLine<'_>) -> Option<String> {
    let text = |at: usize| line.is_kind(at, TokenKind::String);
    let first = (0..line.len()).find(|at| text(*at) && text(at + 1))?;
    let end = (first..line.len())
        .find(|at| !text(*at))
        .unwrap_or(line.len());
    let parts: Vec<&str> = (first..end).map(|at| line.token(at)).collect();
    let sum = parts.join(" + ");
    // A suffix would otherwise apply to the last part only.
    let has_suffix = matches!(line.token(end), "." | "[" | "%" | "*") && !text(end);
    let sum = if has_suffix { format!("({sum})") } else { sum };
    Some(line.replace(first, end, &sum))
}

/// `sum(x for x in xs)` becomes `sum([x for x in xs])`.
pub(super) fn generator(line: &TokenizedLine<'_>) -> Option<String> {
    for at in 0..line.len() {
        if !line.matches(at, "for") {
            continue;
        }
        let Some(open) = line
            .enclosing_bracket(at)
            .filter(|open| line.matches(*open, "("))
        else {
            continue;
        };
        let close = line.closing_bracket(open)?;
        let inner = line.span(open + 1, close);
        let is_call = open > 0 && line.ends_value(open - 1);
        let is_next = |at: Option<usize>| at.is_some_and(|at| line.matches(at, "next"));
        return Some(if is_call && is_next(open.checked_sub(1)) {
            line.replace(open + 1, close, &format!("iter([{inner}])"))
        } else if is_call {
            line.replace(open + 1, close, &format!("[{inner}]"))
        } else if line.previous(open) == "(" && is_next(open.checked_sub(2)) {
            line.replace(open, close + 1, &format!("iter([{inner}])"))
        } else {
            line.replace(open, close + 1, &format!("[{inner}]"))
        });
    }
    None
}

/// `{1, 2}` and `{x for x in xs}` become `set([…])`.
pub(super) fn set_literal(line: &TokenizedLine<'_>) -> Option<String> {
    for open in 0..line.len() {
        if !line.matches(open, "{") {
            continue;
        }
        let Some(close) = line.closing_bracket(open).filter(|close| *close > open + 1) else {
            continue;
        };
        let level = line.level(open) + 1;
        let is_dict = (open + 1..close)
            .any(|at| line.level(at) == level && (line.matches(at, ":") || line.matches(at, "**")));
        if !is_dict {
            let inner = line.span(open + 1, close);
            return Some(line.replace(open, close + 1, &format!("set([{inner}])")));
        }
    }
    None
}

/// `{**a, "y": 2}` becomes `a | {"y": 2}`.
pub(super) fn dict_spread(line: &TokenizedLine<'_>) -> Option<String> {
    let open = (0..line.len()).find(|at| {
        let close = line.closing_bracket(*at).unwrap_or(*at);
        line.matches(*at, "{")
            && line
                .bracket_items(*at, close)
                .iter()
                .any(|(from, _)| line.matches(*from, "**"))
    })?;
    let parts = spread_parts(line, open, "**", str::to_owned)?;
    let whole = match &parts[..] {
        [only] if !only.starts_with('{') => format!("dict({only})"),
        several => several.join(" | "),
    };
    let close = line.closing_bracket(open)?;
    Some(line.replace(
        open,
        close + 1,
        &parenthesize_unless_alone(line, open, close, whole, parts.len()),
    ))
}

/// `[*a, 2]` becomes `list(a) + [2]`.
pub(super) fn list_spread(line: &TokenizedLine<'_>) -> Option<String> {
    let open = (0..line.len()).find(|at| {
        let close = line.closing_bracket(*at).unwrap_or(*at);
        let is_literal = *at == 0 || !line.ends_value(at - 1);
        line.matches(*at, "[")
            && is_literal
            && line
                .bracket_items(*at, close)
                .iter()
                .any(|(from, _)| line.matches(*from, "*"))
    })?;
    let list = |value: &str| format!("list({value})");
    let parts = spread_parts(line, open, "*", list)?;
    let close = line.closing_bracket(open)?;
    let whole = parts.join(" + ");
    Some(line.replace(
        open,
        close + 1,
        &parenthesize_unless_alone(line, open, close, whole, parts.len()),
    ))
}

/// Splits a literal into its spread values and bracketed groups of the items between them.
fn spread_parts(
    line: &TokenizedLine<'_>,
    open: usize,
    star: &str,
    value: impl Fn(&str) -> String,
) -> Option<Vec<String>> {
    let close = line.closing_bracket(open)?;
    let (left, right) = (line.token(open), line.token(close));
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<&str> = Vec::new();
    let flush = |plain: &mut Vec<&str>, parts: &mut Vec<String>| {
        if !plain.is_empty() {
            parts.push(format!("{left}{}{right}", plain.join(", ")));
            plain.clear();
        }
    };
    for (from, to) in line.bracket_items(open, close) {
        if line.matches(from, star) {
            flush(&mut plain, &mut parts);
            let spread = line.span(from + 1, to);
            let is_simple = line.value_end(from + 1) == to || star == "*";
            parts.push(if is_simple {
                value(spread)
            } else {
                format!("({spread})")
            });
        } else {
            plain.push(line.span(from, to));
        }
    }
    flush(&mut plain, &mut parts);
    Some(parts)
}

/// Parenthesizes an expression unless its surroundings already delimit it.
fn parenthesize_unless_alone(
    line: &TokenizedLine<'_>,
    open: usize,
    close: usize,
    text: String,
    parts: usize,
) -> String {
    let before = matches!(
        line.previous(open),
        "" | "=" | "(" | "[" | "{" | "," | ":" | "return"
    );
    let after = matches!(line.token(close + 1), "" | ")" | "]" | "}" | ",");
    if parts < 2 || (before && after) {
        text
    } else {
        format!("({text})")
    }
}

/// `1 < x < 3` becomes `1 < x and x < 3`.
pub(super) fn comparison_chain(line: &TokenizedLine<'_>) -> Option<String> {
    const COMPARISONS: [&str; 7] = ["<", ">", "<=", ">=", "==", "!=", "in"];
    const ENDS: [&str; 12] = [
        "and", "or", ",", "=", "if", "else", "for", ":", "lambda", "return", ";", ":=",
    ];
    let mut last: Vec<Option<usize>> = vec![None];
    let mut in_for: Vec<bool> = vec![false];
    for at in 0..line.len() {
        let token = line.token(at);
        if line.is_kind(at, TokenKind::String) {
            continue;
        }
        match token {
            "(" | "[" | "{" => {
                last.push(None);
                in_for.push(false);
                continue;
            }
            ")" | "]" | "}" => {
                last.pop();
                in_for.pop();
                continue;
            }
            _ => {}
        }
        let (Some(last), Some(in_for)) = (last.last_mut(), in_for.last_mut()) else {
            return None;
        };
        if token == "for" {
            *in_for = true;
        }
        if token == "in" && *in_for {
            *in_for = false;
            *last = None;
        } else if COMPARISONS.contains(&token) {
            if let Some(first) = *last {
                let middle = line.span(first + 1, at);
                // A repeated call might repeat its side effects.
                if middle.contains('(') && !middle.starts_with("len(") {
                    return None;
                }
                let gap = if line.end(at - 1) == line.start(at) {
                    " "
                } else {
                    ""
                };
                let both = format!("{gap}and {middle} {token}");
                return Some(line.replace(at, at + 1, &both));
            }
            *last = Some(at);
        } else if token == "not" && !line.matches(at + 1, "in") {
            // `not` would apply to the first half only.
            return None;
        } else if ENDS.contains(&token) {
            *last = None;
        }
    }
    None
}

/// `a ** b` becomes `pow(a, b)`, starting with the last because `**` is right-associative.
pub(super) fn power(line: &TokenizedLine<'_>) -> Option<String> {
    let at = (1..line.len())
        .rev()
        .find(|at| line.matches(*at, "**") && line.ends_value(at - 1))?;
    let start = line.value_start(at - 1);
    let end = line.value_end(at + 1);
    let power = format!("pow({}, {})", line.span(start, at), line.span(at + 1, end));
    Some(line.replace(start, end, &power))
}

/// `&&` and `||` become `and` and `or`.
pub(super) fn logical_operators(line: &TokenizedLine<'_>) -> Option<String> {
    if let Some(at) = line.find("&&") {
        return Some(line.replace(at, at + 1, "and"));
    }
    let at = line.find("|").filter(|at| line.matches(at + 1, "|"))?;
    Some(line.replace(at, at + 2, "or"))
}

/// `(n := f())` moves to a separate line before.
pub(super) fn walrus(line: &TokenizedLine<'_>) -> Option<String> {
    let at = line.find(":=")?;
    let open = line
        .enclosing_bracket(at)
        .filter(|open| line.matches(*open, "("))?;
    // In a loop condition or a comprehension the assignment would have to be repeated.
    if open + 2 != at || line.find("for").is_some() || line.matches(0, "elif") {
        return None;
    }
    let close = line.closing_bracket(open)?;
    let name = line.token(at - 1);
    let value = line.span(at + 1, close);
    let rest = line.replace(open, close + 1, name);
    Some(format!(
        "{}{name} = {value}\n{}",
        line.indent(),
        rest.trim_start()
    ))
}

/// Returns the offset of an f-string field with a conversion such as `!r`.
pub(super) fn find_conversion(line: &TokenizedLine<'_>) -> Option<usize> {
    (0..line.len()).find_map(|at| {
        let literal = Some(line.token(at)).filter(|_| line.is_kind(at, TokenKind::String))?;
        let (open, _) = find_fields(literal).into_iter().find(|(open, end)| {
            // A field without a closing brace may be too short for the range.
            let inner = literal.get(open + 1..end - 1).unwrap_or_default();
            Field::parse(inner).conversion.is_some()
        })?;
        Some(line.start(at) + open)
    })
}

/// `{x:.2f}`, `{x!r}` and `{x=}` become calls.
pub(super) fn format_fields(line: &TokenizedLine<'_>) -> Option<String> {
    for at in 0..line.len() {
        let literal = line.token(at);
        if !line.is_kind(at, TokenKind::String) {
            continue;
        }
        for (open, end) in find_fields(literal) {
            if end <= open + 1 || !literal[..end].ends_with('}') {
                continue;
            }
            let field = Field::parse(&literal[open + 1..end - 1]);
            let quote = if literal.contains('\'') && literal.find('\'') < literal.find('"') {
                '"'
            } else {
                '\''
            };
            if let Some(rewritten) = field.rewrite(quote) {
                let text = format!("{}{rewritten}{}", &literal[..open], &literal[end..]);
                return Some(line.replace(at, at + 1, &text));
            }
        }
    }
    None
}

/// The parts of an f-string field.
struct Field<'a> {
    expression: &'a str,
    is_debug: bool,
    conversion: Option<char>,
    spec: Option<&'a str>,
}

impl<'a> Field<'a> {
    fn parse(inner: &'a str) -> Self {
        let line = TokenizedLine::new(inner);
        let mut field = Self {
            expression: inner,
            is_debug: false,
            conversion: None,
            spec: None,
        };
        let has_lambda = line.find("lambda").is_some();
        let colon = (0..line.len()).filter(|_| !has_lambda).find(|at| {
            line.level(*at) == 0
                && line.token(*at).starts_with(':')
                && line.is_kind(*at, TokenKind::Operator)
        });
        if let Some(at) = colon {
            field.spec = Some(&inner[line.start(at) + 1..]);
            field.expression = &inner[..line.start(at)];
        }
        let trimmed = field.expression.trim_end();
        let bytes = trimmed.as_bytes();
        if let [.., b'!', kind @ (b'r' | b's' | b'a')] = bytes {
            field.conversion = Some(char::from(*kind));
            field.expression = &trimmed[..trimmed.len() - 2];
        }
        let trimmed = field.expression.trim_end();
        let is_comparison = ["==", "!=", "<=", ">="]
            .iter()
            .any(|operator| trimmed.ends_with(operator));
        if trimmed.ends_with('=') && !is_comparison {
            field.is_debug = true;
            field.expression = &trimmed[..trimmed.len() - 1];
        }
        field
    }

    /// Rewrites the field with calls in place of its format specification, conversion or `=`.
    fn rewrite(&self, quote: char) -> Option<String> {
        if self.spec.is_none() && self.conversion.is_none() && !self.is_debug {
            return None;
        }
        let expression = self.expression.trim();
        let value = match self.conversion {
            Some('s') => format!("str({expression})"),
            Some(_) => format!("repr({expression})"),
            None if self.is_debug && self.spec.is_none() => format!("repr({expression})"),
            None => expression.to_owned(),
        };
        let value = match self.spec {
            Some(spec) if spec.contains('{') => format!("format({value}, f{quote}{spec}{quote})"),
            Some(spec) => format!("format({value}, {quote}{spec}{quote})"),
            None => value,
        };
        let label = if self.is_debug {
            format!("{}=", self.expression)
        } else {
            String::new()
        };
        Some(format!("{label}{{{value}}}"))
    }
}
