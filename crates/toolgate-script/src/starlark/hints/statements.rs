//! Hints for Python statements that Starlark lacks.

use super::super::source::ScriptSource;
use super::line::TokenizedLine;
use super::rewrite::rewrite_line;
use super::{is_parseable, modules};
use crate::lexer::TokenKind;

/// Returns a hint for a statement, chosen by its first token.
pub(super) fn hint(line: &TokenizedLine<'_>, source: &ScriptSource, number: u32) -> Option<String> {
    match line.token(0) {
        "while" => Some(while_hint(line)),
        "try" if line.matches(1, ":") => Some(try_hint(source, number)),
        "except" | "finally" => Some(
            "remove it: `tried = attempt(lambda: …)` puts the error in `tried[\"error\"]` if `tried[\"ok\"]` \
             is False, and the code below always runs"
                .to_owned(),
        ),
        "else" if follows_loop(source, number, line.indent().len()) => Some(
            "loops do not support `else`: set `found = False` before the loop, `found = True` before \
             each `break`, and write `if not found:` here"
                .to_owned(),
        ),
        "import" => Some(import_hint(line)),
        "from" => Some(modules::replacement_hint(line.span(1, module_end(line, 1)))),
        "class" => Some(
            "classes are not available: keep data in dicts, like `{\"x\": 1}`, and write functions \
             that take them"
                .to_owned(),
        ),
        "with" => Some(
            "`with` is not available: call the function directly and use its return value".to_owned(),
        ),
        "raise" => Some(raise_hint(line)),
        "assert" => assert_hint(line),
        "del" => Some(del_hint(line)),
        "nonlocal" | "global" => Some(nonlocal_hint(line)),
        "yield" => Some(
            "generators are not available: collect the values with `items.append(x)` and \
             `return items` at the end"
                .to_owned(),
        ),
        "@" => Some(decorator_hint(line, source, number)),
        "match" if line.last() == Some(":") && line.len() > 2 && !line.matches(1, "=") => {
            let subject = line.span(1, line.len() - 1);
            Some(format!(
                "`match` is not available: write `value = {subject}`, then `if value == …:` and `elif`"
            ))
        }
        "case" if line.last() == Some(":") && line.len() > 2 => {
            Some("write `elif value == …:` for each case, and `else:` for the last".to_owned())
        }
        _ => None,
    }
    .map(|hint| hint.replace('\n', "` and then `"))
}

/// Returns a general hint for a parse error if the line itself cannot be rewritten, for example because
/// the statement spans several lines.
pub(super) fn general_hint(message: &str, text: &str) -> Option<String> {
    let line = TokenizedLine::new(text);
    if message.contains("`return` cannot be used outside") {
        let value = match line.find("return").map(|at| line.after(at)) {
            Some("") | None => "None",
            Some(value) => value,
        };
        return Some(format!(
            "write `result = {value}`: the value of `result` is the script's result"
        ));
    }
    if message.contains("popitem") {
        return Some("write `key = list(d)[-1]`, and then `value = d.pop(key)`".to_owned());
    }
    let annotation = ["type annotation", "type expression", "`tuple[]`"];
    let hint = if annotation.iter().any(|words| message.contains(words)) {
        match without_annotations(&line) {
            Some(plain) => return Some(format!("write `{plain}`")),
            None => "remove the annotations",
        }
    } else if message.contains("keyword 'for'") {
        "put brackets around the comprehension: `sum([x for x in xs])`"
    } else if line.matches(0, "print") && !line.matches(1, "(") {
        "write `print(…)` with parentheses"
    } else if message.contains("string literal") || message.contains("f-string start") {
        "put ` + ` between adjacent strings"
    } else if message.contains("f-string") {
        "write `{format(x, \".2f\")}` for `{x:.2f}`, and `{repr(x)}` for `{x!r}`"
    } else if message.contains("unexpected keyword 'else'") {
        "`else:` is only allowed after `if`"
    } else if message.contains("`**`") || message.contains("'**'") {
        "write `pow(a, b)` for `a ** b`, and `a | b` for `{**a, **b}`"
    } else if message.contains("comparisons are not associative") {
        "write `a < b and b < c` for `a < b < c`"
    } else if message.contains("'async'")
        || message.contains("`async`")
        || message.contains("`await`")
    {
        "calls are synchronous: remove `async` and `await`"
    } else if text.starts_with('\t') || message.to_lowercase().contains("tab") {
        "indent with spaces"
    } else if message.contains("unexpected symbol ':'") && text.contains(":=") {
        "assign on a separate line before"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

fn while_hint(line: &TokenizedLine<'_>) -> String {
    let end = line.len() - usize::from(line.last() == Some(":"));
    let condition = line.span(1, end);
    if matches!(condition, "True" | "1") {
        return "`while` is not available: write `for _ in range(10000):` and exit it with `break` as \
                before"
            .to_owned();
    }
    let stop = format!("if not ({condition}): break");
    let stop = rewrite_line(&stop, true).unwrap_or(stop);
    format!(
        "`while` is not available: write `for _ in range(10000):` and start its body with `{stop}`"
    )
}

/// Returns the lines of the block below a line.
fn block_lines(source: &ScriptSource, number: u32) -> Vec<&str> {
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let own_indent = source.line(number).map_or(0, indent_of);
    let mut lines = Vec::new();
    let mut at = number + 1;
    while let Some(line) = source.line(at) {
        if !line.trim().is_empty() {
            if indent_of(line) <= own_indent {
                break;
            }
            lines.push(line);
        }
        at += 1;
    }
    lines
}

fn try_hint(source: &ScriptSource, number: u32) -> String {
    let then =
        "then `if tried[\"ok\"]:` with `tried[\"value\"]`, and `else:` with `tried[\"error\"]`";
    let body = block_lines(source, number);
    if let [only] = body[..] {
        let line = TokenizedLine::new(only);
        let equals = (0..line.len()).find(|at| line.level(*at) == 0 && line.matches(*at, "="));
        let value = match equals {
            Some(at) => line.after(at),
            None => line.span(0, line.len()),
        };
        let value = rewrite_line(value, false).unwrap_or_else(|| value.to_owned());
        let call = format!("tried = attempt(lambda: {value})");
        let is_statement = matches!(line.token(0), "return" | "raise" | "if" | "for" | "while");
        if !is_statement && is_parseable(&call) {
            return format!("`try` is not available: write `{call}`, {then}");
        }
    }
    format!(
        "`try` is not available: move the body into a function, `def step():`, and write \
         `tried = attempt(step)`, {then}"
    )
}

/// Returns whether the block before a line, at the same indentation, belongs to a loop.
fn follows_loop(source: &ScriptSource, number: u32, indent: usize) -> bool {
    (1..number)
        .rev()
        .filter_map(|at| source.line(at))
        .find(|line| {
            let body = line.trim_start();
            !body.is_empty() && line.len() - body.len() <= indent
        })
        .is_some_and(|line| {
            let body = line.trim_start();
            body.starts_with("for ") || body.starts_with("while ")
        })
}

/// Returns the hints for all imported modules, without duplicates.
fn import_hint(line: &TokenizedLine<'_>) -> String {
    let mut hints: Vec<String> = Vec::new();
    for (from, to) in line.split(1, line.len(), ",") {
        let hint = modules::replacement_hint(line.span(from, module_end(line, from).min(to)));
        let hint = match (hints.is_empty(), hint.strip_prefix("remove this line: ")) {
            (false, Some(rest)) => rest.to_owned(),
            _ => hint,
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.join("; ")
}

fn module_end(line: &TokenizedLine<'_>, from: usize) -> usize {
    (from..line.len())
        .find(|at| matches!(line.token(*at), "import" | "as" | ","))
        .unwrap_or(line.len())
}

/// `raise X("m")` becomes `fail("m")`.
fn raise_hint(line: &TokenizedLine<'_>) -> String {
    let end = line.find("from").unwrap_or(line.len());
    let open = (1..end).find(|at| line.matches(*at, "("));
    let call = match open.and_then(|open| Some((open, line.closing_bracket(open)?))) {
        Some((open, close)) if close > open + 1 => {
            format!("fail({})", line.span(open + 1, close))
        }
        _ if end > 1 => format!("fail(\"{}\")", line.span(1, end).trim_end_matches("()")),
        _ => "fail(tried[\"error\"])".to_owned(),
    };
    let call = rewrite_line(&call, false).unwrap_or(call);
    format!("write `{call}`; `attempt(lambda: …)` catches it")
}

/// `assert c, m` becomes `if not (c): fail(m)`.
fn assert_hint(line: &TokenizedLine<'_>) -> Option<String> {
    let parts = line.split(1, line.len(), ",");
    let (from, to) = *parts.first()?;
    let condition = line.span(from, to);
    let message = match parts.get(1) {
        Some((from, _)) => line.span(*from, line.len()).to_owned(),
        None => format!("\"assertion failed: {}\"", condition.replace('"', "'")),
    };
    let test = format!("if not ({condition}): fail({message})");
    let test = rewrite_line(&test, true).unwrap_or(test);
    Some(format!("write `{test}`"))
}

/// `del d[k]` becomes `d.pop(k)`.
fn del_hint(line: &TokenizedLine<'_>) -> String {
    let targets = line.split(1, line.len(), ",");
    if targets.len() > 1 {
        let hints = targets
            .iter()
            .map(|(from, to)| format!("del {}", line.span(*from, *to)));
        let hints: Vec<String> = hints
            .map(|statement| del_hint(&TokenizedLine::new(&statement)))
            .collect();
        return hints.join(", and then ");
    }
    let last = line.len().saturating_sub(1);
    let open = (1..last)
        .find(|open| line.matches(*open, "[") && line.closing_bracket(*open) == Some(last));
    match open {
        Some(open) if !(open + 1..last).any(|at| line.matches(at, ":")) => {
            let (object, key) = (line.span(1, open), line.span(open + 1, last));
            format!("write `{object}.pop({key})`")
        }
        Some(open) => {
            let object = line.span(1, open);
            format!(
                "write `{object} = …` with the remaining parts, like `{object}[:1] + {object}[2:]`"
            )
        }
        None => "remove this line: names need not be deleted".to_owned(),
    }
}

/// `nonlocal c` becomes a dict that both functions can modify.
fn nonlocal_hint(line: &TokenizedLine<'_>) -> String {
    let name = line.token(1);
    format!(
        "remove this line: a function cannot assign to a name outside it, but it can modify a dict: \
         write `state = {{\"{name}\": 0}}` outside and `state[\"{name}\"] += 1` here"
    )
}

fn decorator_hint(line: &TokenizedLine<'_>, source: &ScriptSource, number: u32) -> String {
    let decorator = line.span(1, line.len());
    if decorator.starts_with("dataclass") {
        return "classes are not available: use dicts, like `{\"x\": 1}`".to_owned();
    }
    let below = source.line(number + 1).map(TokenizedLine::new);
    let name = below
        .filter(|below| below.matches(0, "def") && below.is_kind(1, TokenKind::Name))
        .map(|below| below.token(1));
    match name {
        Some(name) => {
            format!("remove this line, and write `{name} = {decorator}({name})` below the function")
        }
        None => "remove this line, and call the decorator below the function".to_owned(),
    }
}

/// Returns a line without its type annotations.
fn without_annotations(line: &TokenizedLine<'_>) -> Option<String> {
    if line.is_kind(0, TokenKind::Name) && line.matches(1, ":") {
        let equals = line.find("=")?;
        return Some(format!("{} = {}", line.token(0), line.after(equals)));
    }
    if !line.matches(0, "def") {
        return None;
    }
    let open = line.find("(")?;
    let close = line.closing_bracket(open)?;
    let mut parameters = Vec::new();
    for (from, to) in line.bracket_items(open, close) {
        let level = line.level(from);
        let colon = (from..to).find(|at| line.level(*at) == level && line.matches(*at, ":"));
        let equals = (from..to).find(|at| line.level(*at) == level && line.matches(*at, "="));
        parameters.push(match (colon, equals) {
            (Some(colon), Some(equals)) => {
                format!("{}={}", line.span(from, colon), line.span(equals + 1, to))
            }
            (Some(colon), None) => line.span(from, colon).to_owned(),
            (None, _) => line.span(from, to).to_owned(),
        });
    }
    Some(format!(
        "def {}({}):",
        line.span(1, open),
        parameters.join(", ")
    ))
}
