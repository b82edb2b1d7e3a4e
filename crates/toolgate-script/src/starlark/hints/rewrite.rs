//! A line in the spelling that works.

use super::super::lex::Shape;
use super::line::Line;
use super::operators as op;
use super::parses;

/// How many changes one line may need.
const CHANGES: usize = 40;

type Change = fn(&Line<'_>) -> Option<String>;

/// Changes of expressions, which may stand anywhere.
const EXPRESSIONS: [Change; 13] = [
    op::without_await,
    op::identity,
    op::fields,
    op::digits,
    op::concatenation,
    op::generator,
    op::dict_spread,
    op::list_spread,
    op::set_literal,
    op::comparison_chain,
    op::power,
    op::double_signs,
    op::walrus,
];

/// Changes of whole statements.
const STATEMENTS: [Change; 7] = [
    increment,
    power_assignment,
    chained_assignment,
    starred_target,
    trailing_comma,
    slice_assignment,
    bare_annotation,
];

/// The line with everything changed that is known, if it can be parsed then.
pub(super) fn rewritten(line: &str, whole: bool) -> Option<String> {
    let mut text = line.to_owned();
    for _ in 0..CHANGES {
        let current = Line::new(&text);
        let statements = STATEMENTS.iter().filter(|_| whole);
        let changed = EXPRESSIONS
            .iter()
            .chain(statements)
            .find_map(|change| change(&current));
        match changed {
            Some(better) if better != text => text = better,
            _ => break,
        }
    }
    let done = text != line && text.split('\n').all(parses);
    done.then_some(text)
}

/// Where `=` stands outside of brackets.
fn equals(line: &Line<'_>) -> Vec<usize> {
    let several = line.find(";").is_some() || line.text.contains('\n');
    if several || line.find("lambda").is_some() {
        return Vec::new();
    }
    (0..line.len())
        .filter(|at| line.level(*at) == 0 && line.says(*at, "="))
        .collect()
}

fn power_assignment(line: &Line<'_>) -> Option<String> {
    let at = line.find("**=")?;
    let target = line.span(0, at);
    let value = line.behind(at);
    Some(format!(
        "{}{target} = pow({target}, {value})",
        line.indent()
    ))
}

/// `x++` as `x += 1`.
fn increment(line: &Line<'_>) -> Option<String> {
    let last = line.len().checked_sub(2)?;
    let sign = Some(line.word(last)).filter(|sign| matches!(*sign, "+" | "-"))?;
    let twice = line.says(last + 1, sign) && line.ends_value(last.checked_sub(1)?);
    twice.then(|| format!("{}{} {sign}= 1", line.indent(), line.span(0, last)))
}

/// `a = b = 1` as `b = 1; a = b`.
fn chained_assignment(line: &Line<'_>) -> Option<String> {
    let equals = equals(line);
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

/// `a, *b = xs` by indexes.
fn starred_target(line: &Line<'_>) -> Option<String> {
    let [equals] = equals(line)[..] else {
        return None;
    };
    let targets = line.parts(0, equals, ",");
    let star = targets.iter().position(|(from, _)| line.says(*from, "*"))?;
    let behind = targets.len() - star - 1;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (at, (from, to)) in targets.iter().enumerate() {
        let from = if at == star { from + 1 } else { *from };
        names.push(line.span(from, *to));
        values.push(match at.cmp(&star) {
            std::cmp::Ordering::Less => format!("items[{at}]"),
            std::cmp::Ordering::Greater => format!("items[-{}]", targets.len() - at),
            std::cmp::Ordering::Equal if behind > 0 => format!("items[{star}:-{behind}]"),
            std::cmp::Ordering::Equal => format!("items[{star}:]"),
        });
    }
    let value = line.behind(equals);
    Some(format!(
        "{}items = list({value}); {} = {}",
        line.indent(),
        names.join(", "),
        values.join(", ")
    ))
}

/// `x = 1,` as `x = (1,)`.
fn trailing_comma(line: &Line<'_>) -> Option<String> {
    let last = line.len().checked_sub(1)?;
    if !line.says(last, ",") || line.level(last) != 0 {
        return None;
    }
    let start = match equals(line)[..] {
        [at] => at + 1,
        _ if line.says(0, "return") => 1,
        _ => return None,
    };
    let value = line.span(start, line.len());
    Some(line.replaced(start, line.len(), &format!("({value})")))
}

/// `a[1:2] = b` by the parts around it.
fn slice_assignment(line: &Line<'_>) -> Option<String> {
    let [equals] = equals(line)[..] else {
        return None;
    };
    let close = equals.checked_sub(1).filter(|at| line.says(*at, "]"))?;
    let open = (0..close).find(|open| line.close(*open) == Some(close))?;
    let bounds = line.parts(open + 1, close, ":");
    let colons = (open + 1..close)
        .filter(|at| line.level(*at) == line.level(open + 1) && line.says(*at, ":"));
    if colons.count() != 1 {
        return None;
    }
    let target = line.span(0, open);
    let (from, to) = if line.says(open + 1, ":") {
        (None, bounds.last().filter(|_| bounds.len() > 1))
    } else {
        (bounds.first(), bounds.get(1))
    };
    let mut parts = Vec::new();
    if let Some((a, b)) = from {
        parts.push(format!("{target}[:{}]", line.span(*a, *b)));
    }
    parts.push(format!("list({})", line.behind(equals)));
    if let Some((a, b)) = to {
        parts.push(format!("{target}[{}:]", line.span(*a, *b)));
    }
    Some(format!("{}{target} = {}", line.indent(), parts.join(" + ")))
}

/// `x: int` says nothing without a value.
fn bare_annotation(line: &Line<'_>) -> Option<String> {
    let bare = line.is(0, Shape::Name)
        && line.says(1, ":")
        && line.len() > 2
        && line.find("=").is_none()
        && !matches!(line.word(0), "else" | "try" | "finally" | "lambda");
    bare.then(|| format!("{}{} = None", line.indent(), line.word(0)))
}
