//! Names that Python has and a script has not.

use super::super::globals;
use super::super::server::nearest;
use super::modules;

/// What to write instead of a name that nothing has.
pub(super) fn hint(name: &str, _line: &str) -> Option<String> {
    let text = match name {
        "true" => "write `True`".to_owned(),
        "false" => "write `False`".to_owned(),
        "null" | "undefined" | "nil" => "write `None`".to_owned(),
        "xrange" => "write `range`".to_owned(),
        "unicode" => "write `str`".to_owned(),
        "frozenset" => "write `set`".to_owned(),
        "open" => "a script has no files: call a tool that reads or writes them".to_owned(),
        "eval" | "exec" | "compile" | "__import__" => {
            "a script cannot run text as code: write the code itself, or `json.loads` for data"
                .to_owned()
        }
        "input" => "a script has nobody to ask: take the value from the task".to_owned(),
        "exit" | "quit" => {
            "a script ends with its last line; end it early with `fail(\"why\")`".to_owned()
        }
        "globals" | "locals" | "vars" | "id" | "hash" => {
            "keep what you need in a dict of your own".to_owned()
        }
        "defaultdict" => "write `d = {}` and `d.setdefault(key, []).append(x)`".to_owned(),
        "Counter" => "write `counts = {}` and `counts[k] = counts.get(k, 0) + 1`".to_owned(),
        "OrderedDict" => "write `dict`: its order is kept".to_owned(),
        "namedtuple" | "dataclass" | "super" | "self" => {
            "there are no classes: use dicts, like `{\"x\": 1}`".to_owned()
        }
        "deepcopy" => "write `json.loads(json.dumps(x))`".to_owned(),
        "mean" => "write `sum(xs) / len(xs)`".to_owned(),
        "print_" | "pprint" => "write `print(json.dumps(x, indent=2))`".to_owned(),
        "struct" => "write a dict, like `{\"x\": 1}`".to_owned(),
        error if error.ends_with("Error") || error.ends_with("Exception") => {
            "errors have no types: `fail(\"message\")` raises, and `attempt(lambda: …)` catches"
                .to_owned()
        }
        // What is done with it is to sleep, as a rule.
        "time" => modules::instead("time"),
        module if is_module(module) => {
            let hint = modules::instead(module);
            let hint = hint.strip_prefix("leave the line out: ").unwrap_or(&hint);
            hint.to_owned()
        }
        other => {
            let names: Vec<String> = globals::names().collect();
            let near = nearest(other, names.iter().map(String::as_str))?;
            if strsim::damerau_levenshtein(other, near) > 2 {
                return None;
            }
            format!("did you mean `{near}`?")
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
