//! Rewrites a line of Python into the Starlark that works.

use super::is_parseable;
use super::line::TokenizedLine;
use super::operators as op;
use crate::lexer::TokenKind;

/// Maximum number of rewrites applied to one line.
const MAX_CHANGES: usize = 40;

type Rewrite = fn(&TokenizedLine<'_>) -> Option<String>;

/// Rewrites of expressions, which can occur anywhere.
const EXPRESSIONS: [Rewrite; 13] = [
    op::await_keyword,
    op::identity,
    op::format_fields,
    op::digit_separators,
    op::concatenation,
    op::generator,
    op::dict_spread,
    op::list_spread,
    op::set_literal,
    op::comparison_chain,
    op::power,
    op::logical_operators,
    op::walrus,
];

/// Rewrites of whole statements.
const STATEMENTS: [Rewrite; 7] = [
    increment,
    power_assignment,
    chained_assignment,
    starred_target,
    trailing_comma,
    slice_assignment,
    bare_annotation,
];

/// Applies all known rewrites to a line. Returns the result if it changed and parses.
///
/// `is_statement` also enables the rewrites of whole statements.
pub(super) fn rewrite_line(line: &str, is_statement: bool) -> Option<String> {
    let mut text = line.to_owned();
    for _ in 0..MAX_CHANGES {
        let current = TokenizedLine::new(&text);
        let statements = STATEMENTS.iter().filter(|_| is_statement);
        let changed = EXPRESSIONS
            .iter()
            .chain(statements)
            .find_map(|rewrite| rewrite(&current));
        match changed {
            Some(rewritten) if rewritten != text => text = rewritten,
            _ => break,
        }
    }
    let is_rewritten = text != line && text.split('\n').all(is_parseable);
    is_rewritten.then_some(text)
}

/// Returns the positions of `=` outside brackets.
fn find_assignments(line: &TokenizedLine<'_>) -> Vec<usize> {
    let has_several = line.find(";").is_some() || line.text.contains('\n');
    if has_several || line.find("lambda").is_some() {
        return Vec::new();
    }
    (0..line.len())
        .filter(|at| line.level(*at) == 0 && line.matches(*at, "="))
        .collect()
}

fn power_assignment(line: &TokenizedLine<'_>) -> Option<String> {
    let at = line.find("**=")?;
    let target = line.span(0, at);
    let value = line.after(at);
    Some(format!(
        "{}{target} = pow({target}, {value})",
        line.indent()
    ))
}

/// `x++` becomes `x += 1`.
fn increment(line: &TokenizedLine<'_>) -> Option<String> {
    let last = line.len().checked_sub(2)?;
    let operator = Some(line.token(last)).filter(|operator| matches!(*operator, "+" | "-"))?;
    let is_increment = line.matches(last + 1, operator) && line.ends_value(last.checked_sub(1)?);
    is_increment.then(|| format!("{}{} {operator}= 1", line.indent(), line.span(0, last)))
}

/// `a = b = 1` becomes `b = 1; a = b`.
fn chained_assignment(line: &TokenizedLine<'_>) -> Option<String> {
    let equals = find_assignments(line);
    if equals.len() < 2 {
        return None;
    }
    let mut targets = Vec::new();
    let mut from = 0;
    for at in &equals {
        targets.push(line.span(from, *at));
        from = at + 1;
    }
    let value = line.span(from, line.len());
    let last = targets.pop()?;
    let mut statements = vec![format!("{last} = {value}")];
    statements.extend(targets.iter().map(|target| format!("{target} = {last}")));
    Some(format!("{}{}", line.indent(), statements.join("; ")))
}

/// `a, *b = xs` becomes assignments by index.
fn starred_target(line: &TokenizedLine<'_>) -> Option<String> {
    let [equals] = find_assignments(line)[..] else {
        return None;
    };
    let targets = line.split(0, equals, ",");
    let star = targets
        .iter()
        .position(|(from, _)| line.matches(*from, "*"))?;
    let after_star = targets.len() - star - 1;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (at, (from, to)) in targets.iter().enumerate() {
        let from = if at == star { from + 1 } else { *from };
        names.push(line.span(from, *to));
        values.push(match at.cmp(&star) {
            std::cmp::Ordering::Less => format!("items[{at}]"),
            std::cmp::Ordering::Greater => format!("items[-{}]", targets.len() - at),
            std::cmp::Ordering::Equal if after_star > 0 => format!("items[{star}:-{after_star}]"),
            std::cmp::Ordering::Equal => format!("items[{star}:]"),
        });
    }
    let value = line.after(equals);
    Some(format!(
        "{}items = list({value}); {} = {}",
        line.indent(),
        names.join(", "),
        values.join(", ")
    ))
}

/// `x = 1,` becomes `x = (1,)`.
fn trailing_comma(line: &TokenizedLine<'_>) -> Option<String> {
    let last = line.len().checked_sub(1)?;
    if !line.matches(last, ",") || line.level(last) != 0 {
        return None;
    }
    let start = match find_assignments(line)[..] {
        [at] => at + 1,
        _ if line.matches(0, "return") => 1,
        _ => return None,
    };
    let value = line.span(start, line.len());
    Some(line.replace(start, line.len(), &format!("({value})")))
}

/// `a[1:2] = b` becomes a concatenation with the parts around the slice.
fn slice_assignment(line: &TokenizedLine<'_>) -> Option<String> {
    let [equals] = find_assignments(line)[..] else {
        return None;
    };
    let close = equals.checked_sub(1).filter(|at| line.matches(*at, "]"))?;
    let open = (0..close).find(|open| line.closing_bracket(*open) == Some(close))?;
    let bounds = line.split(open + 1, close, ":");
    let colons = (open + 1..close)
        .filter(|at| line.level(*at) == line.level(open + 1) && line.matches(*at, ":"));
    if colons.count() != 1 {
        return None;
    }
    let target = line.span(0, open);
    let (from, to) = if line.matches(open + 1, ":") {
        (None, bounds.last().filter(|_| bounds.len() > 1))
    } else {
        (bounds.first(), bounds.get(1))
    };
    let mut parts = Vec::new();
    if let Some((a, b)) = from {
        parts.push(format!("{target}[:{}]", line.span(*a, *b)));
    }
    parts.push(format!("list({})", line.after(equals)));
    if let Some((a, b)) = to {
        parts.push(format!("{target}[{}:]", line.span(*a, *b)));
    }
    Some(format!("{}{target} = {}", line.indent(), parts.join(" + ")))
}

/// `x: int` becomes `x = None`.
fn bare_annotation(line: &TokenizedLine<'_>) -> Option<String> {
    let is_bare = line.is_kind(0, TokenKind::Name)
        && line.matches(1, ":")
        && line.len() > 2
        && line.find("=").is_none()
        && !matches!(line.token(0), "else" | "try" | "finally" | "lambda");
    is_bare.then(|| format!("{}{} = None", line.indent(), line.token(0)))
}
