//! Expressions that Python has and Starlark spells otherwise, one change at a time.

use super::super::lex::Shape;
use super::super::scan::formatted;
use super::line::Line;

/// `await f()` as `f()`: calls are synchronous.
pub(super) fn without_await(line: &Line<'_>) -> Option<String> {
    let at = line.find("await").or_else(|| line.find("async"))?;
    Some(format!(
        "{}{}",
        &line.text[..line.start(at)],
        &line.text[line.start(at + 1)..]
    ))
}

/// `is` and `is not` as comparisons.
pub(super) fn identity(line: &Line<'_>) -> Option<String> {
    let at = line.find("is")?;
    Some(if line.says(at + 1, "not") {
        line.replaced(at, at + 2, "!=")
    } else {
        line.replaced(at, at + 1, "==")
    })
}

/// `1_000` without its marks.
pub(super) fn digits(line: &Line<'_>) -> Option<String> {
    let at =
        (0..line.len()).find(|at| line.is(*at, Shape::Number) && line.word(*at).contains('_'))?;
    Some(line.replaced(at, at + 1, &line.word(at).replace('_', "")))
}

/// `"a" "b"` with a plus between.
pub(super) fn concatenation(line: &Line<'_>) -> Option<String> {
    let text = |at: usize| line.is(at, Shape::Text);
    let first = (0..line.len()).find(|at| text(*at) && text(at + 1))?;
    let behind = (first..line.len())
        .find(|at| !text(*at))
        .unwrap_or(line.len());
    let parts: Vec<&str> = (first..behind).map(|at| line.word(at)).collect();
    let sum = parts.join(" + ");
    // What follows would take the last part alone.
    let binds = matches!(line.word(behind), "." | "[" | "%" | "*") && !text(behind);
    let sum = if binds { format!("({sum})") } else { sum };
    Some(line.replaced(first, behind, &sum))
}

/// `sum(x for x in xs)` with brackets.
pub(super) fn generator(line: &Line<'_>) -> Option<String> {
    for at in 0..line.len() {
        if !line.says(at, "for") {
            continue;
        }
        let Some(open) = line.opened(at).filter(|open| line.says(*open, "(")) else {
            continue;
        };
        let close = line.close(open)?;
        let inner = line.span(open + 1, close);
        let is_call = open > 0 && line.ends_value(open - 1);
        let is_next = |at: Option<usize>| at.is_some_and(|at| line.says(at, "next"));
        return Some(if is_call && is_next(open.checked_sub(1)) {
            line.replaced(open + 1, close, &format!("iter([{inner}])"))
        } else if is_call {
            line.replaced(open + 1, close, &format!("[{inner}]"))
        } else if line.before(open) == "(" && is_next(open.checked_sub(2)) {
            line.replaced(open, close + 1, &format!("iter([{inner}])"))
        } else {
            line.replaced(open, close + 1, &format!("[{inner}]"))
        });
    }
    None
}

/// `{1, 2}` and `{x for x in xs}` as `set([…])`.
pub(super) fn set_literal(line: &Line<'_>) -> Option<String> {
    for open in 0..line.len() {
        if !line.says(open, "{") {
            continue;
        }
        let Some(close) = line.close(open).filter(|close| *close > open + 1) else {
            continue;
        };
        let level = line.level(open) + 1;
        let pairs = (open + 1..close)
            .any(|at| line.level(at) == level && (line.says(at, ":") || line.says(at, "**")));
        if !pairs {
            let inner = line.span(open + 1, close);
            return Some(line.replaced(open, close + 1, &format!("set([{inner}])")));
        }
    }
    None
}

/// `{**a, "y": 2}` as `a | {"y": 2}`.
pub(super) fn dict_spread(line: &Line<'_>) -> Option<String> {
    let open = (0..line.len()).find(|at| {
        let close = line.close(*at).unwrap_or(*at);
        line.says(*at, "{")
            && line
                .items(*at, close)
                .iter()
                .any(|(from, _)| line.says(*from, "**"))
    })?;
    let parts = spread(line, open, "**", |value| value.to_owned(), ("{", "}"))?;
    let whole = match &parts[..] {
        [only] if !only.starts_with('{') => format!("dict({only})"),
        several => several.join(" | "),
    };
    let close = line.close(open)?;
    Some(line.replaced(
        open,
        close + 1,
        &alone(line, open, close, whole, parts.len()),
    ))
}

/// `[*a, 2]` as `list(a) + [2]`.
pub(super) fn list_spread(line: &Line<'_>) -> Option<String> {
    let open = (0..line.len()).find(|at| {
        let close = line.close(*at).unwrap_or(*at);
        let is_literal = *at == 0 || !line.ends_value(at - 1);
        line.says(*at, "[")
            && is_literal
            && line
                .items(*at, close)
                .iter()
                .any(|(from, _)| line.says(*from, "*"))
    })?;
    let list = |value: &str| format!("list({value})");
    let parts = spread(line, open, "*", list, ("[", "]"))?;
    let close = line.close(open)?;
    let whole = parts.join(" + ");
    Some(line.replaced(
        open,
        close + 1,
        &alone(line, open, close, whole, parts.len()),
    ))
}

/// The parts of a literal: spread values by themselves, and what stands between them in brackets.
fn spread(
    line: &Line<'_>,
    open: usize,
    star: &str,
    value: impl Fn(&str) -> String,
    brackets: (&str, &str),
) -> Option<Vec<String>> {
    let close = line.close(open)?;
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<&str> = Vec::new();
    let flush = |plain: &mut Vec<&str>, parts: &mut Vec<String>| {
        if !plain.is_empty() {
            parts.push(format!("{}{}{}", brackets.0, plain.join(", "), brackets.1));
            plain.clear();
        }
    };
    for (from, to) in line.items(open, close) {
        if line.says(from, star) {
            flush(&mut plain, &mut parts);
            let spread = line.span(from + 1, to);
            let simple = line.value_end(from + 1) == to || star == "*";
            parts.push(if simple {
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

/// In parentheses, unless it stands alone.
fn alone(line: &Line<'_>, open: usize, close: usize, text: String, parts: usize) -> String {
    let before = matches!(
        line.before(open),
        "" | "=" | "(" | "[" | "{" | "," | ":" | "return"
    );
    let after = matches!(line.word(close + 1), "" | ")" | "]" | "}" | ",");
    if parts < 2 || (before && after) {
        text
    } else {
        format!("({text})")
    }
}

/// `1 < x < 3` as `1 < x and x < 3`.
pub(super) fn comparison_chain(line: &Line<'_>) -> Option<String> {
    const COMPARISONS: [&str; 7] = ["<", ">", "<=", ">=", "==", "!=", "in"];
    const ENDS: [&str; 12] = [
        "and", "or", ",", "=", "if", "else", "for", ":", "lambda", "return", ";", ":=",
    ];
    let mut last: Vec<Option<usize>> = vec![None];
    let mut looping: Vec<bool> = vec![false];
    for at in 0..line.len() {
        let word = line.word(at);
        if line.is(at, Shape::Text) {
            continue;
        }
        match word {
            "(" | "[" | "{" => {
                last.push(None);
                looping.push(false);
                continue;
            }
            ")" | "]" | "}" => {
                last.pop();
                looping.pop();
                continue;
            }
            _ => {}
        }
        let (Some(last), Some(looping)) = (last.last_mut(), looping.last_mut()) else {
            return None;
        };
        if word == "for" {
            *looping = true;
        }
        if word == "in" && *looping {
            *looping = false;
            *last = None;
        } else if COMPARISONS.contains(&word) {
            if let Some(first) = *last {
                let middle = line.span(first + 1, at);
                // Called twice, it might do something twice.
                if middle.contains('(') && !middle.starts_with("len(") {
                    return None;
                }
                let gap = if line.end(at - 1) == line.start(at) {
                    " "
                } else {
                    ""
                };
                let both = format!("{gap}and {middle} {word}");
                return Some(line.replaced(at, at + 1, &both));
            }
            *last = Some(at);
        } else if word == "not" && !line.says(at + 1, "in") {
            // It would bind to the first half alone.
            return None;
        } else if ENDS.contains(&word) {
            *last = None;
        }
    }
    None
}

/// `a ** b` as `pow(a, b)`, the last one first.
pub(super) fn power(line: &Line<'_>) -> Option<String> {
    let at = (1..line.len())
        .rev()
        .find(|at| line.says(*at, "**") && line.ends_value(at - 1))?;
    let start = line.value_start(at - 1);
    let end = line.value_end(at + 1);
    let power = format!("pow({}, {})", line.span(start, at), line.span(at + 1, end));
    Some(line.replaced(start, end, &power))
}

/// `&&` and `||` as words.
pub(super) fn double_signs(line: &Line<'_>) -> Option<String> {
    if let Some(at) = line.find("&&") {
        return Some(line.replaced(at, at + 1, "and"));
    }
    let at = line.find("|").filter(|at| line.says(at + 1, "|"))?;
    Some(line.replaced(at, at + 2, "or"))
}

/// `(n := f())` on a line before.
pub(super) fn walrus(line: &Line<'_>) -> Option<String> {
    let at = line.find(":=")?;
    let open = line.opened(at).filter(|open| line.says(*open, "("))?;
    // In a `while` or a comprehension it would have to be done again and again.
    if open + 2 != at || line.find("for").is_some() || line.says(0, "elif") {
        return None;
    }
    let close = line.close(open)?;
    let name = line.word(at - 1);
    let value = line.span(at + 1, close);
    let rest = line.replaced(open, close + 1, name);
    Some(format!(
        "{}{name} = {value}\n{}",
        line.indent(),
        rest.trim_start()
    ))
}

/// Where a formatted text has a `!r` or its like.
pub(super) fn conversion(line: &Line<'_>) -> Option<usize> {
    (0..line.len()).find_map(|at| {
        let literal = Some(line.word(at)).filter(|_| line.is(at, Shape::Text))?;
        let (open, _) = formatted(literal).into_iter().find(|(open, end)| {
            let inner = literal.get(open + 1..end - 1).unwrap_or_default();
            Field::parse(inner).conversion.is_some()
        })?;
        Some(line.start(at) + open)
    })
}

/// `{x:.2f}`, `{x!r}` and `{x=}` as calls.
pub(super) fn fields(line: &Line<'_>) -> Option<String> {
    for at in 0..line.len() {
        let literal = line.word(at);
        if !line.is(at, Shape::Text) {
            continue;
        }
        for (open, end) in formatted(literal) {
            if end <= open + 1 || !literal[..end].ends_with('}') {
                continue;
            }
            let field = Field::parse(&literal[open + 1..end - 1]);
            let quote = if literal.contains('\'') && literal.find('\'') < literal.find('"') {
                '"'
            } else {
                '\''
            };
            if let Some(better) = field.spelled(quote) {
                let text = format!("{}{better}{}", &literal[..open], &literal[end..]);
                return Some(line.replaced(at, at + 1, &text));
            }
        }
    }
    None
}

/// The parts of a field in a formatted text.
struct Field<'a> {
    expression: &'a str,
    shown: bool,
    conversion: Option<char>,
    spec: Option<&'a str>,
}

impl<'a> Field<'a> {
    fn parse(inner: &'a str) -> Self {
        let line = Line::new(inner);
        let mut field = Self {
            expression: inner,
            shown: false,
            conversion: None,
            spec: None,
        };
        let has_lambda = line.find("lambda").is_some();
        let colon = (0..line.len()).filter(|_| !has_lambda).find(|at| {
            line.level(*at) == 0 && line.word(*at).starts_with(':') && line.is(*at, Shape::Sign)
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
        let compared = ["==", "!=", "<=", ">="]
            .iter()
            .any(|sign| trimmed.ends_with(sign));
        if trimmed.ends_with('=') && !compared {
            field.shown = true;
            field.expression = &trimmed[..trimmed.len() - 1];
        }
        field
    }

    /// The field with calls in place of marks.
    fn spelled(&self, quote: char) -> Option<String> {
        if self.spec.is_none() && self.conversion.is_none() && !self.shown {
            return None;
        }
        let expression = self.expression.trim();
        let value = match self.conversion {
            Some('s') => format!("str({expression})"),
            Some(_) => format!("repr({expression})"),
            None if self.shown && self.spec.is_none() => format!("repr({expression})"),
            None => expression.to_owned(),
        };
        let value = match self.spec {
            Some(spec) if spec.contains('{') => format!("format({value}, f{quote}{spec}{quote})"),
            Some(spec) => format!("format({value}, {quote}{spec}{quote})"),
            None => value,
        };
        let label = if self.shown { self.expression } else { "" };
        let label = if self.shown {
            format!("{label}=")
        } else {
            label.to_owned()
        };
        Some(format!("{label}{{{value}}}"))
    }
}
