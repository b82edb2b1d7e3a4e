//! Hints for imports of Python modules.

/// Returns a hint on what to use instead of a module.
pub(super) fn replacement_hint(module: &str) -> String {
    let root = match module {
        // Its types only occur in annotations, unlike those of `collections`.
        "collections.abc" => module,
        _ => module.split('.').next().unwrap_or(module),
    };
    let alternative = match root {
        "json" | "math" => {
            return format!("remove this line: `{root}` is available without import");
        }
        "typing" | "collections.abc" | "__future__" => {
            return "remove this line: annotations are not checked, and `Any`, `Optional`, `List` and \
                    `Dict` are available without import"
                .to_owned();
        }
        "functools" => "`reduce(function, xs, initial)` is available without import",
        "collections" => {
            "count with `counts[k] = counts.get(k, 0) + 1`, group with \
             `groups.setdefault(k, []).append(x)`"
        }
        "itertools" => "chain lists with `a + b`, combine with `[(a, b) for a in xs for b in ys]`",
        "statistics" => "the mean is `sum(xs) / len(xs)`",
        "re" => {
            "regular expressions are not available: use the string methods `split`, `find`, \
             `startswith`, `replace`, `partition`, and `in`"
        }
        "datetime" | "timedelta" | "time" | "calendar" | "zoneinfo" | "dateutil" => {
            "there is no clock and no sleep: ISO dates compare as strings, and `d.split(\"-\")` returns \
             their parts"
        }
        "random" | "uuid" | "secrets" => "there is no randomness: scripts are deterministic",
        "copy" => "copy with `list(xs)` or `dict(d)`",
        "operator" => "write a lambda: `lambda x: x[\"key\"]` for `itemgetter(\"key\")`",
        "heapq" | "bisect" => "use `sorted(xs)[:n]`, `min` and `max`",
        "dataclasses" | "enum" => "classes are not available: use dicts, like `{\"x\": 1}`",
        "asyncio" | "concurrent" | "threading" | "multiprocessing" => {
            "calls are synchronous; to run them concurrently, write \
             `parallel([(server.tool, {\"argument\": value}), …])`"
        }
        "string" => "write the characters as a string",
        "pprint" => "write `print(json.dumps(x, indent=2))`",
        "base64" | "hashlib" | "urllib" | "html" | "csv" | "io" | "textwrap" => {
            "there is no equivalent: work with strings, or use a tool"
        }
        "os" | "sys" | "pathlib" | "subprocess" | "shutil" | "glob" | "tempfile" | "socket"
        | "requests" | "httpx" | "aiohttp" => {
            "scripts have no access to the system or the network: call the servers' tools instead"
        }
        _ => "there are no modules; `json`, `math` and the servers are available without import",
    };
    format!("remove this line: {alternative}")
}
