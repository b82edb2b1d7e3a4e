//! What fails only when it runs, by the words of the error.

use super::super::lex::Shape;
use super::line::Line;
use super::parses;

/// What to write instead of a line that failed.
pub(super) fn hint(message: &str, text: &str) -> Option<String> {
    let line = Line::new(text);
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.contains("has no attribute") {
        let (kind, name) = (quoted.first()?, quoted.get(1)?);
        return attribute(&line, kind, name);
    }
    if message.contains("replacement field") || message.starts_with("Key `:") {
        return replacement(&line);
    }
    if message.contains("(iter)") {
        return iterated(&line, quoted.last().copied().unwrap_or_default());
    }
    let annotation = ["type annotation", "type expression", "`tuple[]`"];
    if annotation.iter().any(|words| message.contains(words)) {
        return super::statements::general(message, text);
    }
    let hint = if message.contains("was not found")
        || message.contains("Key") && message.contains("not found")
    {
        "write `d.get(key)` or `d.get(key, default)` where a key may be missing; `print(list(d))` \
         shows the keys there are"
    } else if message.contains("Operation `+`") && quoted.contains(&"str") {
        "write `str(x)` around what is no text"
    } else if message.contains("Operation") && quoted.contains(&"bool") {
        "write `int(x)` around a truth to count with it"
    } else if message.contains("`[]`") && quoted.contains(&"function") {
        "a function is not called there; a field of a dict is `d[\"items\"]`"
    } else if message.contains("not supported") && quoted.contains(&"NoneType") {
        "the value is None: test `if x != None:` first, or write `(x or {})`, `(x or [])`"
    } else if ["&", "|", "-", "^"]
        .iter()
        .any(|sign| message.contains(&format!("Operation `{sign}`")))
    {
        "write `set(a) & set(b)`: lists, and the keys of dicts, are no sets"
    } else if message.contains("mutate") || message.contains("iterat") {
        "go through a copy: `for x in list(xs):`"
    } else if message.contains("ndex") && message.contains("out of") {
        "test the length first: `xs[0] if xs else None`"
    } else if message.contains("hash") {
        "keys are texts, numbers or tuples: write `tuple(xs)`, or `json.dumps(x)`"
    } else if message.contains("referenced before assignment") {
        "assign the name before; a function cannot assign to a name outside of it, but it can change \
         a dict"
    } else if message.contains("i32") || message.contains("Integer overflow") {
        "ranges and repetitions end at 2147483647"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// A method or a field that a value does not have.
fn attribute(line: &Line<'_>, kind: &str, name: &str) -> Option<String> {
    let found = (1..line.len()).find(|at| line.says(*at, name) && line.before(*at) == ".");
    let Some(at) = found else {
        return named(kind, name);
    };
    let start = line.value_start(at - 2);
    let object = line.span(start, at - 1);
    let close = line.close(at + 1).filter(|_| line.says(at + 1, "("));
    let Some(close) = close else {
        // `item.title` of a dict.
        if kind == "dict" {
            let better = line.replaced(at - 1, at + 1, &format!("[\"{name}\"]"));
            return Some(shown(&better));
        }
        return named(kind, name);
    };
    let arguments = line.span(at + 2, close);
    let statement = match (kind, name) {
        ("list", "sort") if arguments.is_empty() => Some(format!("sorted({object})")),
        ("list", "sort") => Some(format!("sorted({object}, {arguments})")),
        ("list", "reverse") => Some(format!("list(reversed({object}))")),
        _ => None,
    };
    // What is called to get the list would be called twice.
    if statement.is_some() && (start > 0 || object.contains('(')) {
        return named(kind, name);
    }
    if let Some(value) = statement {
        return Some(shown(&format!("{}{object} = {value}", line.indent())));
    }
    if matches!(name, "encode" | "decode") {
        return recoded(line, kind, start, close);
    }
    let Some(call) = call(line, kind, name, (object, at + 1, close)) else {
        return named(kind, name);
    };
    let better = line.replaced(start, close + 1, &call);
    // The method, or another of its family, may stand in the line more than once.
    let again = Line::new(&better);
    let family = ["zfill", "ljust", "rjust", "center"].into_iter();
    let family = family.filter(|_| kind == "str").chain([name]);
    for other in family {
        if (1..again.len()).any(|at| again.says(at, other) && again.before(at) == ".") {
            return attribute(&again, kind, other);
        }
    }
    Some(shown(&better))
}

/// What gives the value that a call of a method would.
fn call(
    line: &Line<'_>,
    kind: &str,
    name: &str,
    (object, open, close): (&str, usize, usize),
) -> Option<String> {
    let arguments = line.span(open + 1, close);
    Some(match (kind, name) {
        ("dict" | "set", "copy") => format!("{kind}({object})"),
        ("list", "copy") => format!("list({object})"),
        ("list" | "tuple", "count") => format!("len([x for x in {object} if x == {arguments}])"),
        ("str", "zfill") => format!("format({object}, {})", padding("0>", arguments)?),
        ("str", "ljust") => format!("format({object}, {})", padding("<", arguments)?),
        ("str", "rjust") => format!("format({object}, {})", padding(">", arguments)?),
        ("str", "center") => format!("format({object}, {})", padding("^", arguments)?),
        ("str", "casefold") => format!("{object}.lower()"),
        ("str", "isnumeric" | "isdecimal") => format!("{object}.isdigit()"),
        ("str", "format_map") => format!("{object}.format(**{arguments})"),
        ("dict", "has_key") => format!("({arguments} in {object})"),
        ("dict", "iteritems") => format!("{object}.items()"),
        ("function", "fromkeys") => {
            let parts = line.items(open, close);
            let (from, to) = parts.first()?;
            let value = parts
                .get(1)
                .map_or("None", |(from, to)| line.span(*from, *to));
            format!("{{key: {value} for key in {}}}", line.span(*from, *to))
        }
        _ => return None,
    })
}

/// `x.encode().decode()` without either.
fn recoded(line: &Line<'_>, kind: &str, start: usize, close: usize) -> Option<String> {
    let dot = (start..close)
        .rev()
        .find(|at| line.says(*at, ".") && matches!(line.word(at + 1), "encode" | "decode"))?;
    let object = line.span(start, dot);
    let object = match kind {
        "bytes" => format!("str({object})"),
        _ => object.to_owned(),
    };
    let mut end = close + 1;
    // What comes of one has the other right behind, as a rule.
    while line.says(end, ".") && matches!(line.word(end + 1), "decode" | "encode") {
        end = line.close(end + 2)? + 1;
    }
    let better = shown(&line.replaced(start, end, &object));
    Some(format!("texts need no encoding: {better}"))
}

/// What there is instead, where the line does not show how it is used.
fn named(kind: &str, name: &str) -> Option<String> {
    Some(match (kind, name) {
        ("list", "sort") => "write `xs = sorted(xs)`".to_owned(),
        (_, "copy") => "write `list(xs)` or `dict(d)`".to_owned(),
        ("dict", name) => format!("write `d[\"{name}\"]`, or `d.get(\"{name}\")` if it may be missing"),
        ("tool", _) => "call the tool first: `server.tool(argument=value)` gives its result".to_owned(),
        ("NoneType", _) => "the value is None: print it first, and test `if x != None:`".to_owned(),
        ("list", _) => {
            "a list has `append`, `extend`, `insert`, `pop`, `remove`, `index`, `clear`; its items are \
             `xs[0]`"
                .to_owned()
        }
        ("str", _) => {
            "the value is a text; if it is JSON, `json.loads(x)` gives what it holds".to_owned()
        }
        _ => return None,
    })
}

/// The specification that pads to a width, as an expression.
fn padding(mark: &str, arguments: &str) -> Option<String> {
    let line = Line::new(arguments);
    let parts = line.parts(0, line.len(), ",");
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

/// A line to write, if it can be parsed.
fn shown(line: &str) -> String {
    if parses(line) {
        format!("write `{}`", line.trim())
    } else {
        format!("write it like `{}`", line.trim())
    }
}

/// A text or a number in the place of a sequence.
fn iterated(line: &Line<'_>, kind: &str) -> Option<String> {
    let at = line.find("for").and_then(|from| {
        (from..line.len()).find(|at| line.says(*at, "in") && line.level(*at) == line.level(from))
    });
    let Some(at) = at else {
        return Some(match kind {
            "NoneType" => "the value is None: write `(x or [])`".to_owned(),
            "int" => "write `range(n)`".to_owned(),
            _ => "write `list(x)` for the characters of a text".to_owned(),
        });
    };
    let level = line.level(at);
    let end = (at + 1..line.len()).find(|end| {
        line.level(*end) < level
            || (line.level(*end) == level
                && matches!(line.word(*end), ":" | "if" | "for")
                && !line.is(*end, Shape::Text))
    });
    let end = end.unwrap_or(line.len());
    let over = line.span(at + 1, end);
    let better = match kind {
        "str" if line.value_end(at + 1) == end => format!("{over}.elems()"),
        "str" => format!("({over}).elems()"),
        "int" => format!("range({over})"),
        "NoneType" => format!("({over} or [])"),
        _ => return None,
    };
    Some(shown(&line.replaced(at + 1, end, &better)))
}

/// `"{:.1f}".format(x)` with the formatting done by `format`.
fn replacement(line: &Line<'_>) -> Option<String> {
    let general = || {
        Some("write `\"{}\".format(format(x, \".2f\"))`, and `\"{}\".format(d[\"k\"])`".to_owned())
    };
    let at = (0..line.len()).find(|at| {
        line.is(*at, Shape::Text) && line.says(at + 1, ".") && line.says(at + 2, "format")
    })?;
    let Some(close) = line.close(at + 3).filter(|_| line.says(at + 3, "(")) else {
        return general();
    };
    let literal = line.word(at);
    let arguments = line.items(at + 3, close);
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
        let Some(value) = value_of(line, &arguments, field, &mut count) else {
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
    Some(shown(&line.replaced(at, close + 1, &call)))
}

/// What a field of a text stands for, of the arguments of `format`.
fn value_of(
    line: &Line<'_>,
    arguments: &[(usize, usize)],
    field: &str,
    count: &mut usize,
) -> Option<String> {
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (name, path) = field.split_at(end);
    let named = |(from, _): &&(usize, usize)| line.says(*from, name) && line.says(from + 1, "=");
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
