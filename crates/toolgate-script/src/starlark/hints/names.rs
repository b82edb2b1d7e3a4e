//! Hints for undefined names that exist in Python.

use super::super::globals;
use super::super::server::find_similar;
use super::modules;

/// Returns a hint for an undefined name.
pub(super) fn hint(name: &str) -> Option<String> {
    let text = match name {
        "true" => "write `True`".to_owned(),
        "false" => "write `False`".to_owned(),
        "null" | "undefined" | "nil" => "write `None`".to_owned(),
        "xrange" => "write `range`".to_owned(),
        "unicode" => "write `str`".to_owned(),
        "frozenset" => "write `set`".to_owned(),
        "open" => "scripts cannot access files: call a tool that reads or writes them".to_owned(),
        "eval" | "exec" | "compile" | "__import__" => {
            "scripts cannot evaluate strings as code: write the code itself, or `json.loads` for data"
                .to_owned()
        }
        "input" => "scripts cannot prompt for input: take the value from the task".to_owned(),
        "exit" | "quit" => {
            "a script ends with its last line; to end it early, write `fail(\"reason\")`".to_owned()
        }
        "globals" | "locals" | "vars" | "id" | "hash" => {
            "keep the values you need in a dict".to_owned()
        }
        "defaultdict" => "write `d = {}` and `d.setdefault(key, []).append(x)`".to_owned(),
        "Counter" => "write `counts = {}` and `counts[k] = counts.get(k, 0) + 1`".to_owned(),
        "OrderedDict" => "write `dict`: it keeps insertion order".to_owned(),
        "namedtuple" | "dataclass" | "super" | "self" => {
            "classes are not available: use dicts, like `{\"x\": 1}`".to_owned()
        }
        "deepcopy" => "write `json.loads(json.dumps(x))`".to_owned(),
        "mean" => "write `sum(xs) / len(xs)`".to_owned(),
        "print_" | "pprint" => "write `print(json.dumps(x, indent=2))`".to_owned(),
        "struct" => "write a dict, like `{\"x\": 1}`".to_owned(),
        error if error.ends_with("Error") || error.ends_with("Exception") => {
            "there are no exception types: `fail(\"message\")` raises an error, and \
             `attempt(lambda: …)` catches it"
                .to_owned()
        }
        // Usually `time.sleep(…)`, so the whole line can go.
        "time" => modules::replacement_hint("time"),
        module if is_module(module) => {
            let hint = modules::replacement_hint(module);
            let hint = hint.strip_prefix("remove this line: ").unwrap_or(&hint);
            hint.to_owned()
        }
        other => {
            let names: Vec<String> = globals::public_names().collect();
            let similar = find_similar(other, names.iter().map(String::as_str))?;
            if strsim::damerau_levenshtein(other, similar) > 2 {
                return None;
            }
            format!("did you mean `{similar}`?")
        }
    };
    Some(text)
}

fn is_module(name: &str) -> bool {
    matches!(
        name,
        "re" | "datetime"
            | "random"
            | "os"
            | "sys"
            | "uuid"
            | "itertools"
            | "functools"
            | "collections"
            | "statistics"
            | "asyncio"
            | "copy"
            | "operator"
            | "base64"
            | "hashlib"
            | "urllib"
            | "requests"
            | "string"
            | "heapq"
            | "timedelta"
            | "typing"
    )
}
