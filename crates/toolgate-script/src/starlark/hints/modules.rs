//! Modules that Python programmers import, and what there is instead.

/// What to write instead of importing a module.
pub(super) fn instead(module: &str) -> String {
    let root = module.split('.').next().unwrap_or(module);
    let there = match root {
        "json" | "math" => {
            return format!("leave the line out: `{root}` is there without import");
        }
        "typing" | "collections.abc" | "__future__" => {
            return "leave the line out: annotations are hints, and `Any`, `Optional`, `List` and \
                    `Dict` are there without import"
                .to_owned();
        }
        "functools" => "`reduce(function, xs, initial)` is there without import",
        "collections" => {
            "count with `counts[k] = counts.get(k, 0) + 1`, group with \
             `groups.setdefault(k, []).append(x)`"
        }
        "itertools" => "chain lists with `a + b`, combine with `[(a, b) for a in xs for b in ys]`",
        "statistics" => "the mean is `sum(xs) / len(xs)`",
        "re" => {
            "there are no patterns: use `split`, `find`, `startswith`, `replace`, `partition` and \
             `in` of strings"
        }
        "datetime" | "time" | "calendar" | "zoneinfo" | "dateutil" => {
            "there is no clock, and nothing sleeps: dates in ISO form compare as texts, and \
             `d.split(\"-\")` gives their parts"
        }
        "random" | "uuid" | "secrets" => {
            "there is no randomness: every run of a script is the same"
        }
        "copy" => "copy with `list(xs)` or `dict(d)`",
        "operator" => "write a lambda: `lambda x: x[\"key\"]` for `itemgetter(\"key\")`",
        "heapq" | "bisect" => "use `sorted(xs)[:n]`, `min` and `max`",
        "dataclasses" | "enum" => "there are no classes: use dicts, like `{\"x\": 1}`",
        "asyncio" | "concurrent" | "threading" | "multiprocessing" => {
            "calls are synchronous; side by side they run with \
             `parallel([(server.tool, {\"argument\": value}), …])`"
        }
        "string" => "write the characters as a text",
        "pprint" => "write `print(json.dumps(x, indent=2))`",
        "base64" | "hashlib" | "urllib" | "html" | "csv" | "io" | "textwrap" => {
            "there is nothing like it here: work with strings, or let a tool do it"
        }
        "os" | "sys" | "pathlib" | "subprocess" | "shutil" | "glob" | "tempfile" | "socket"
        | "requests" | "httpx" | "aiohttp" => {
            "a script reaches nothing but the tools of the servers: call those"
        }
        _ => {
            "there are no modules; `json` and `math` are there without import, and servers by name"
        }
    };
    format!("leave the line out: {there}")
}
