//! Hints for run-time errors, chosen by the evaluator's message.

use super::is_parseable;
use super::line::TokenizedLine;
use crate::lexer::TokenKind;

/// Returns a hint for a line that failed with `message`.
pub(super) fn hint(message: &str, text: &str) -> Option<String> {
    let line = TokenizedLine::new(text);
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.contains("has no attribute") {
        let (kind, name) = (quoted.first()?, quoted.get(1)?);
        return missing_attribute_hint(&line, kind, name);
    }
    if message.contains("replacement field") || message.starts_with("Key `:") {
        return format_method_hint(&line);
    }
    if message.contains("(iter)") {
        // A message without quotes gets the general hint.
        return iteration_hint(&line, quoted.last().copied().unwrap_or(""));
    }
    let annotation = ["type annotation", "type expression", "`tuple[]`"];
    if annotation.iter().any(|words| message.contains(words)) {
        return super::statements::general_hint(message, text);
    }
    let hint = if message.contains("was not found")
        || message.contains("Key") && message.contains("not found")
    {
        "write `d.get(key)` or `d.get(key, default)` if a key may be missing; `print(list(d))` shows \
         the existing keys"
    } else if message.contains("Operation `+`") && quoted.contains(&"str") {
        "convert to a string first: write `str(x)`"
    } else if message.contains("Operation") && quoted.contains(&"bool") {
        "convert a bool to a number first: write `int(x)`"
    } else if message.contains("`[]`") && quoted.contains(&"function") {
        "this is a function that is not called; to read a dict's key, write `d[\"items\"]`"
    } else if message.contains("not supported") && quoted.contains(&"NoneType") {
        "the value is None: check `if x != None:` first, or write `(x or {})` or `(x or [])`"
    } else if ["&", "|", "-", "^"]
        .iter()
        .any(|sign| message.contains(&format!("Operation `{sign}`")))
    {
        "write `set(a) & set(b)`: lists and dict keys are not sets"
    } else if message.contains("mutate") || message.contains("iterat") {
        "iterate over a copy: `for x in list(xs):`"
    } else if message.contains("ndex") && message.contains("out of") {
        "check the length first: `xs[0] if xs else None`"
    } else if message.contains("hash") {
        "keys must be strings, numbers or tuples: write `tuple(xs)` or `json.dumps(x)`"
    } else if message.contains("referenced before assignment") {
        "assign the name first; a function cannot assign to a name outside it, but it can modify a \
         dict"
    } else if message.contains("i32") || message.contains("Integer overflow") {
        "ranges and repetitions are limited to 2147483647"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// Returns a hint for an attribute that a value does not have.
fn missing_attribute_hint(line: &TokenizedLine<'_>, kind: &str, name: &str) -> Option<String> {
    let found = (1..line.len()).find(|at| line.matches(*at, name) && line.previous(*at) == ".");
    let Some(at) = found else {
        return attribute_hint(kind, name);
    };
    let start = line.value_start(at - 2);
    let object = line.span(start, at - 1);
    let close = line
        .closing_bracket(at + 1)
        .filter(|_| line.matches(at + 1, "("));
    let Some(close) = close else {
        // `item.title` on a dict.
        if kind == "dict" {
            let rewritten = line.replace(at - 1, at + 1, &format!("[\"{name}\"]"));
            return Some(suggest_line(&rewritten));
        }
        return attribute_hint(kind, name);
    };
    let arguments = line.span(at + 2, close);
    let statement = match (kind, name) {
        ("list", "sort") if arguments.is_empty() => Some(format!("sorted({object})")),
        ("list", "sort") => Some(format!("sorted({object}, {arguments})")),
        ("list", "reverse") => Some(format!("list(reversed({object}))")),
        _ => None,
    };
    // The rewritten line would repeat a call that produces the list.
    if statement.is_some() && (start > 0 || object.contains('(')) {
        return attribute_hint(kind, name);
    }
    if let Some(value) = statement {
        return Some(suggest_line(&format!(
            "{}{object} = {value}",
            line.indent()
        )));
    }
    if matches!(name, "encode" | "decode") {
        return encoding_hint(line, kind, start, close);
    }
    let call = MethodCall {
        object,
        kind,
        name,
        open: at + 1,
        close,
    };
    let Some(call) = call.replacement(line) else {
        return attribute_hint(kind, name);
    };
    let rewritten = line.replace(start, close + 1, &call);
    // The method, or a related one, may occur more than once in the line.
    let rewritten_line = TokenizedLine::new(&rewritten);
    let family = ["zfill", "ljust", "rjust", "center"].into_iter();
    let family = family.filter(|_| kind == "str").chain([name]);
    for other in family {
        if (1..rewritten_line.len())
            .any(|at| rewritten_line.matches(at, other) && rewritten_line.previous(at) == ".")
        {
            return missing_attribute_hint(&rewritten_line, kind, other);
        }
    }
    Some(suggest_line(&rewritten))
}

/// A call of a method that the type of its object does not have.
struct MethodCall<'a> {
    object: &'a str,
    /// Type of the object.
    kind: &'a str,
    name: &'a str,
    /// Tokens of the parentheses.
    open: usize,
    close: usize,
}

impl MethodCall<'_> {
    /// Returns an equivalent expression.
    fn replacement(&self, line: &TokenizedLine<'_>) -> Option<String> {
        let Self {
            object,
            kind,
            name,
            open,
            close,
        } = *self;
        let arguments = line.span(open + 1, close);
        Some(match (kind, name) {
            ("dict" | "set", "copy") => format!("{kind}({object})"),
            ("list", "copy") => format!("list({object})"),
            ("list" | "tuple", "count") => {
                format!("len([x for x in {object} if x == {arguments}])")
            }
            ("str", "zfill") => format!("format({object}, {})", padding_spec("0>", arguments)?),
            ("str", "ljust") => format!("format({object}, {})", padding_spec("<", arguments)?),
            ("str", "rjust") => format!("format({object}, {})", padding_spec(">", arguments)?),
            ("str", "center") => format!("format({object}, {})", padding_spec("^", arguments)?),
            ("str", "casefold") => format!("{object}.lower()"),
            ("str", "isnumeric" | "isdecimal") => format!("{object}.isdigit()"),
            ("str", "format_map") => format!("{object}.format(**{arguments})"),
            ("dict", "has_key") => format!("({arguments} in {object})"),
            ("dict", "iteritems") => format!("{object}.items()"),
            ("function", "fromkeys") => {
                let parts = line.bracket_items(open, close);
                let (from, to) = parts.first()?;
                let value = parts
                    .get(1)
                    .map_or("None", |(from, to)| line.span(*from, *to));
                format!("{{key: {value} for key in {}}}", line.span(*from, *to))
            }
            _ => return None,
        })
    }
}

/// Suggests a line without `encode` and `decode`.
fn encoding_hint(
    line: &TokenizedLine<'_>,
    kind: &str,
    start: usize,
    close: usize,
) -> Option<String> {
    let dot = (start..close)
        .rev()
        .find(|at| line.matches(*at, ".") && matches!(line.token(at + 1), "encode" | "decode"))?;
    let object = line.span(start, dot);
    let object = match kind {
        "bytes" => format!("str({object})"),
        _ => object.to_owned(),
    };
    let mut end = close + 1;
    // `encode` is usually followed by `decode`, and the other way round.
    while line.matches(end, ".") && matches!(line.token(end + 1), "decode" | "encode") {
        end = line.closing_bracket(end + 2)? + 1;
    }
    let rewritten = suggest_line(&line.replace(start, end, &object));
    Some(format!("strings need no encoding: {rewritten}"))
}

/// Returns a general hint for a missing attribute, without rewriting the line.
fn attribute_hint(kind: &str, name: &str) -> Option<String> {
    Some(match (kind, name) {
        ("list", "sort") => "write `xs = sorted(xs)`".to_owned(),
        (_, "copy") => "write `list(xs)` or `dict(d)`".to_owned(),
        ("dict", name) => format!("write `d[\"{name}\"]`, or `d.get(\"{name}\")` if it may be missing"),
        ("tool", _) => "call the tool first: `server.tool(argument=value)` returns its result".to_owned(),
        ("NoneType", _) => "the value is None: print it first, and check `if x != None:`".to_owned(),
        ("list", _) => {
            "a list has `append`, `extend`, `insert`, `pop`, `remove`, `index`, `clear`; to read an \
             item, write `xs[0]`"
                .to_owned()
        }
        ("str", _) => {
            "the value is a string; if it contains JSON, write `json.loads(x)`".to_owned()
        }
        _ => return None,
    })
}

/// Returns an expression for the format specification that pads to a width.
fn padding_spec(mark: &str, arguments: &str) -> Option<String> {
    let line = TokenizedLine::new(arguments);
    let parts = line.split(0, line.len(), ",");
    let (from, to) = *parts.first()?;
    let width = line.span(from, to);
    let fill = match parts.get(1) {
        Some((from, to)) => {
            let fill = line.span(*from, *to);
            fill.get(1..fill.len().checked_sub(1)?)?
        }
        None => "",
    };
    Some(if width.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("\"{fill}{mark}{width}\"")
    } else {
        format!("\"{fill}{mark}\" + str({width})")
    })
}

/// Suggests a line, literally if it parses.
fn suggest_line(line: &str) -> String {
    if is_parseable(line) {
        format!("write `{}`", line.trim())
    } else {
        format!("write something like `{}`", line.trim())
    }
}

/// Returns a hint for iterating over a value that is not iterable.
fn iteration_hint(line: &TokenizedLine<'_>, kind: &str) -> Option<String> {
    let at = line.find("for").and_then(|from| {
        (from..line.len()).find(|at| line.matches(*at, "in") && line.level(*at) == line.level(from))
    });
    let Some(at) = at else {
        return Some(match kind {
            "NoneType" => "the value is None: write `(x or [])`".to_owned(),
            "int" => "write `range(n)`".to_owned(),
            _ => "write `list(x)` for the characters of a string".to_owned(),
        });
    };
    let level = line.level(at);
    let end = (at + 1..line.len()).find(|end| {
        line.level(*end) < level
            || (line.level(*end) == level
                && matches!(line.token(*end), ":" | "if" | "for")
                && !line.is_kind(*end, TokenKind::String))
    });
    let end = end.unwrap_or(line.len());
    let iterable = line.span(at + 1, end);
    let rewritten = match kind {
        "str" if line.value_end(at + 1) == end => format!("{iterable}.elems()"),
        "str" => format!("({iterable}).elems()"),
        "int" => format!("range({iterable})"),
        "NoneType" => format!("({iterable} or [])"),
        _ => return None,
    };
    Some(suggest_line(&line.replace(at + 1, end, &rewritten)))
}

/// Rewrites `"{:.1f}".format(x)` to use the function `format`.
fn format_method_hint(line: &TokenizedLine<'_>) -> Option<String> {
    let general = || {
        Some("write `\"{}\".format(format(x, \".2f\"))`, and `\"{}\".format(d[\"k\"])`".to_owned())
    };
    let at = (0..line.len()).find(|at| {
        line.is_kind(*at, TokenKind::String)
            && line.matches(at + 1, ".")
            && line.matches(at + 2, "format")
    })?;
    let Some(close) = line
        .closing_bracket(at + 3)
        .filter(|_| line.matches(at + 3, "("))
    else {
        return general();
    };
    let literal = line.token(at);
    let arguments = line.bracket_items(at + 3, close);
    let mut text = String::new();
    let mut values = Vec::new();
    let mut rest = literal;
    let mut count = 0;
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..=open]);
        rest = &rest[open + 1..];
        if rest.starts_with('{') {
            text.push('{');
            rest = &rest[1..];
            continue;
        }
        let Some(end) = rest.find('}') else {
            return general();
        };
        let (field, spec) = match rest[..end].split_once(':') {
            Some((field, spec)) => (field, Some(spec)),
            None => (&rest[..end], None),
        };
        let Some(value) = format_argument(line, &arguments, field, &mut count) else {
            return general();
        };
        values.push(match spec {
            Some(spec) => format!("format({value}, \"{spec}\")"),
            None => value,
        });
        text.push('}');
        rest = &rest[end + 1..];
    }
    text.push_str(rest);
    let call = format!("{text}.format({})", values.join(", "));
    Some(suggest_line(&line.replace(at, close + 1, &call)))
}

/// Returns the argument of `format` that a replacement field refers to.
fn format_argument(
    line: &TokenizedLine<'_>,
    arguments: &[(usize, usize)],
    field: &str,
    count: &mut usize,
) -> Option<String> {
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (name, path) = field.split_at(end);
    let named =
        |(from, _): &&(usize, usize)| line.matches(*from, name) && line.matches(from + 1, "=");
    let (from, to) = if name.is_empty() {
        *count += 1;
        *arguments.get(*count - 1)?
    } else if let Ok(index) = name.parse::<usize>() {
        *arguments.get(index)?
    } else {
        let (from, to) = arguments.iter().find(named)?;
        (from + 2, *to)
    };
    let value = line.span(from, to);
    let path = match path
        .strip_prefix('[')
        .and_then(|path| path.strip_suffix(']'))
    {
        Some(key) if key.bytes().all(|byte| byte.is_ascii_digit()) => format!("[{key}]"),
        Some(key) => format!("[\"{key}\"]"),
        None => path.to_owned(),
    };
    Some(format!("{value}{path}"))
}
