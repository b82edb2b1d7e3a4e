//! Statements that Python has and Starlark has not.

use super::super::lex::Shape;
use super::super::source::Source;
use super::line::Line;
use super::rewrite::rewritten;
use super::{modules, parses};

/// What to write instead of a statement, told by its first word.
pub(super) fn hint(line: &Line<'_>, source: &Source, number: u32) -> Option<String> {
    match line.word(0) {
        "while" => Some(looped(line)),
        "try" if line.says(1, ":") => Some(attempted(source, number)),
        "except" | "finally" => Some(
            "leave it out: `tried = attempt(lambda: …)` has the error in `tried[\"error\"]` if `tried[\"ok\"]` \
             is False, and what stands below runs in any case"
                .to_owned(),
        ),
        "else" if follows_loop(source, number, line.indent().len()) => Some(
            "a loop has no `else`: set `found = False` before it, `found = True` before each \
             `break`, and write `if not found:` here"
                .to_owned(),
        ),
        "import" => Some(imported(line)),
        "from" => Some(modules::instead(line.span(1, module_end(line, 1)))),
        "class" => Some(
            "there are no classes: keep data in dicts, like `{\"x\": 1}`, and write functions that \
             take them"
                .to_owned(),
        ),
        "with" => Some(
            "there is no `with`: call what it opens, and use its value as any other".to_owned(),
        ),
        "raise" => Some(raised(line)),
        "assert" => asserted(line),
        "del" => Some(deleted(line)),
        "nonlocal" | "global" => Some(shared(line)),
        "yield" => Some(
            "a function gives one value: collect with `items.append(x)`, and `return items` at its \
             end"
                .to_owned(),
        ),
        "@" => Some(decorated(line, source, number)),
        "match" if line.last() == Some(":") && line.len() > 2 && !line.says(1, "=") => {
            let subject = line.span(1, line.len() - 1);
            Some(format!(
                "there is no `match`: write `value = {subject}`, then `if value == …:` and `elif`"
            ))
        }
        "case" if line.last() == Some(":") && line.len() > 2 => {
            Some("write `elif value == …:` for each case, and `else:` for the last".to_owned())
        }
        _ => None,
    }
    .map(|hint| hint.replace('\n', "` and then `"))
}

/// What can be said without knowing how to write the line: it goes on over several lines, say.
pub(super) fn general(message: &str, text: &str) -> Option<String> {
    let line = Line::new(text);
    if message.contains("`return` cannot be used outside") {
        let value = match line.find("return").map(|at| line.behind(at)) {
            Some("") | None => "None",
            Some(value) => value,
        };
        return Some(format!(
            "write `result = {value}`: the value of `result` is the answer"
        ));
    }
    if message.contains("popitem") {
        return Some("write `key = list(d)[-1]`, and then `value = d.pop(key)`".to_owned());
    }
    let annotation = ["type annotation", "type expression", "`tuple[]`"];
    let hint = if annotation.iter().any(|words| message.contains(words)) {
        match without_annotations(&line) {
            Some(plain) => return Some(format!("write `{plain}`")),
            None => "annotations may be left out",
        }
    } else if message.contains("keyword 'for'") {
        "put brackets around the comprehension: `sum([x for x in xs])`"
    } else if line.says(0, "print") && !line.says(1, "(") {
        "write `print(…)` with parentheses"
    } else if message.contains("string literal") || message.contains("f-string start") {
        "put ` + ` between texts that stand side by side"
    } else if message.contains("f-string") {
        "write `{format(x, \".2f\")}` for `{x:.2f}`, and `{repr(x)}` for `{x!r}`"
    } else if message.contains("unexpected keyword 'else'") {
        "`else:` stands behind `if` only"
    } else if message.contains("`**`") || message.contains("'**'") {
        "write `pow(a, b)` for `a ** b`, and `a | b` for `{**a, **b}`"
    } else if message.contains("comparisons are not associative") {
        "write `a < b and b < c` for `a < b < c`"
    } else if message.contains("'async'")
        || message.contains("`async`")
        || message.contains("`await`")
    {
        "calls are synchronous: leave `async` and `await` out"
    } else if text.starts_with('\t') || message.to_lowercase().contains("tab") {
        "indent with spaces"
    } else if message.contains("unexpected symbol ':'") && text.contains(":=") {
        "assign on a line of its own before"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

fn looped(line: &Line<'_>) -> String {
    let end = line.len() - usize::from(line.last() == Some(":"));
    let condition = line.span(1, end);
    if matches!(condition, "True" | "1") {
        return "there is no `while`: write `for _ in range(10000):`, and leave it with `break` as \
                you do"
            .to_owned();
    }
    let stop = format!("if not ({condition}): break");
    let stop = rewritten(&stop, true).unwrap_or(stop);
    format!("there is no `while`: write `for _ in range(10000):`, and first in its body `{stop}`")
}

/// The lines of the block below a line.
fn block(source: &Source, number: u32) -> Vec<&str> {
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let own = source.line(number).map_or(0, indent_of);
    let mut lines = Vec::new();
    let mut at = number + 1;
    while let Some(line) = source.line(at) {
        if !line.trim().is_empty() {
            if indent_of(line) <= own {
                break;
            }
            lines.push(line);
        }
        at += 1;
    }
    lines
}

fn attempted(source: &Source, number: u32) -> String {
    let then =
        "then `if tried[\"ok\"]:` with `tried[\"value\"]`, and `else:` with `tried[\"error\"]`";
    let body = block(source, number);
    if let [only] = body[..] {
        let line = Line::new(only);
        let equals = (0..line.len()).find(|at| line.level(*at) == 0 && line.says(*at, "="));
        let value = match equals {
            Some(at) => line.behind(at),
            None => line.span(0, line.len()),
        };
        let value = rewritten(value, false).unwrap_or_else(|| value.to_owned());
        let call = format!("tried = attempt(lambda: {value})");
        let is_statement = matches!(line.word(0), "return" | "raise" | "if" | "for" | "while");
        if !is_statement && parses(&call) {
            return format!("there is no `try`: write `{call}`, {then}");
        }
    }
    format!(
        "there is no `try`: put the body into a function, `def step():`, and write \
         `tried = attempt(step)`, {then}"
    )
}

/// Whether the block before a line, at its own depth, is that of a loop.
fn follows_loop(source: &Source, number: u32, indent: usize) -> bool {
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

/// What to write instead of each module, without saying the same twice.
fn imported(line: &Line<'_>) -> String {
    let mut hints: Vec<String> = Vec::new();
    for (from, to) in line.parts(1, line.len(), ",") {
        let hint = modules::instead(line.span(from, module_end(line, from).min(to)));
        let hint = match (hints.is_empty(), hint.strip_prefix("leave the line out: ")) {
            (false, Some(rest)) => rest.to_owned(),
            _ => hint,
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.join("; ")
}

fn module_end(line: &Line<'_>, from: usize) -> usize {
    (from..line.len())
        .find(|at| matches!(line.word(*at), "import" | "as" | ","))
        .unwrap_or(line.len())
}

/// `raise X("m")` as `fail("m")`.
fn raised(line: &Line<'_>) -> String {
    let end = line.find("from").unwrap_or(line.len());
    let open = (1..end).find(|at| line.says(*at, "("));
    let call = match open.and_then(|open| Some((open, line.close(open)?))) {
        Some((open, close)) if close > open + 1 => {
            format!("fail({})", line.span(open + 1, close))
        }
        _ if end > 1 => format!("fail(\"{}\")", line.span(1, end).trim_end_matches("()")),
        _ => "fail(tried[\"error\"])".to_owned(),
    };
    let call = rewritten(&call, false).unwrap_or(call);
    format!("write `{call}`; `attempt(lambda: …)` catches it")
}

/// `assert c, m` as a test and a failure.
fn asserted(line: &Line<'_>) -> Option<String> {
    let parts = line.parts(1, line.len(), ",");
    let (from, to) = *parts.first()?;
    let condition = line.span(from, to);
    let message = match parts.get(1) {
        Some((from, _)) => line.span(*from, line.len()).to_owned(),
        None => format!("\"not so: {}\"", condition.replace('"', "'")),
    };
    let test = format!("if not ({condition}): fail({message})");
    let test = rewritten(&test, true).unwrap_or(test);
    Some(format!("write `{test}`"))
}

/// `del d[k]` as `d.pop(k)`.
fn deleted(line: &Line<'_>) -> String {
    let targets = line.parts(1, line.len(), ",");
    if targets.len() > 1 {
        let each = targets
            .iter()
            .map(|(from, to)| format!("del {}", line.span(*from, *to)));
        let each: Vec<String> = each.map(|one| deleted(&Line::new(&one))).collect();
        return each.join(", and then ");
    }
    let last = line.len().saturating_sub(1);
    let open = (1..last).find(|open| line.says(*open, "[") && line.close(*open) == Some(last));
    match open {
        Some(open) if !(open + 1..last).any(|at| line.says(at, ":")) => {
            let (object, key) = (line.span(1, open), line.span(open + 1, last));
            format!("write `{object}.pop({key})`")
        }
        Some(open) => {
            let object = line.span(1, open);
            format!(
                "write `{object} = …` with the parts that stay, like `{object}[:1] + {object}[2:]`"
            )
        }
        None => "leave the line out: names need not be deleted".to_owned(),
    }
}

/// `nonlocal c` with a dict that both functions see.
fn shared(line: &Line<'_>) -> String {
    let name = line.word(1);
    format!(
        "leave the line out: a function cannot assign to a name outside of it, but it can change a \
         dict: write `state = {{\"{name}\": 0}}` outside, and `state[\"{name}\"] += 1` here"
    )
}

fn decorated(line: &Line<'_>, source: &Source, number: u32) -> String {
    let decorator = line.span(1, line.len());
    if decorator.starts_with("dataclass") {
        return "there are no classes: use dicts, like `{\"x\": 1}`".to_owned();
    }
    let below = source.line(number + 1).map(Line::new);
    let name = below
        .filter(|below| below.says(0, "def") && below.is(1, Shape::Name))
        .map(|below| below.word(1));
    match name {
        Some(name) => {
            format!(
                "leave the line out, and write `{name} = {decorator}({name})` below the function"
            )
        }
        None => "leave the line out, and call the decorator below the function".to_owned(),
    }
}

/// A line without its annotations.
fn without_annotations(line: &Line<'_>) -> Option<String> {
    if line.is(0, Shape::Name) && line.says(1, ":") {
        let equals = line.find("=")?;
        return Some(format!("{} = {}", line.word(0), line.behind(equals)));
    }
    if !line.says(0, "def") {
        return None;
    }
    let open = line.find("(")?;
    let close = line.close(open)?;
    let mut parameters = Vec::new();
    for (from, to) in line.items(open, close) {
        let level = line.level(from);
        let colon = (from..to).find(|at| line.level(*at) == level && line.says(*at, ":"));
        let equals = (from..to).find(|at| line.level(*at) == level && line.says(*at, "="));
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
