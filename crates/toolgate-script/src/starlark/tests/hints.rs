//! Hints for Python that Starlark does not support.

use super::failure;

/// Scripts and the expected hint for the first line that fails.
const CASES: &[(&str, &str)] = &[
    ("x = 3\nx **= 2", "write `x = pow(x, 2)`"),
    (
        "return 5",
        "write `result = 5`: the value of `result` is the script's result",
    ),
    (
        "x = 1\nif x is not None and 1 < x <= 3:\n    pass",
        "write `if x != None and 1 < x and x <= 3:`",
    ),
    (
        "total = sum(\n    x for x in [1]\n)",
        "put brackets around the comprehension: `sum([x for x in xs])`",
    ),
    (
        "w = 5\nprint(f\"{'a':>{w}}|{w=}\")",
        "write `print(f\"{format('a', f'>{w}')}|w={repr(w)}\")`",
    ),
    (
        "item = {\"id\": 1}\nprint(item.title)",
        "write `print(item[\"title\"])`",
    ),
    (
        "a, *b, c = [1, 2, 3]",
        "write `items = list([1, 2, 3]); a, b, c = items[0], items[1:-1], items[-1]`",
    ),
    (
        "def f(x):\n    raise ValueError(f\"bad {x!r}\")",
        "write `fail(f\"bad {repr(x)}\")`; `attempt(lambda: …)` catches it",
    ),
    (
        "d = {}\ndel d[\"a\"], d[\"b\"]",
        "write `d.pop(\"a\")`, and then write `d.pop(\"b\")`",
    ),
    ("def f():\n\treturn 1", "indent with spaces"),
    (
        "print(\"n: \" + 5)",
        "convert to a string first: write `str(x)`",
    ),
    (
        "x = None\nfor y in x:\n    pass",
        "write `for y in (x or []):`",
    ),
    (
        "x = \"abc\"\nfor c in x:\n    pass",
        "write `for c in x.elems():`",
    ),
    ("for i in 10:\n    pass", "write `for i in range(10):`"),
    (
        "result = \"b\".rjust(5, \"*\")",
        "write `result = format(\"b\", \"*>5\")`",
    ),
    (
        "async def f():\n    return await files.open()",
        "write `def f():`",
    ),
    (
        "result = dict.fromkeys([\"a\"], 0)",
        "write `result = {key: 0 for key in [\"a\"]}`",
    ),
    (
        "result = 2 ** 3 ** 2 + -2 ** 2",
        "write `result = pow(2, pow(3, 2)) + -pow(2, 2)`",
    ),
    ("a = b = c = []", "write `c = []; a = c; b = c`"),
    (
        "if (n := len([1])) > 0: result = n",
        "write `n = len([1])` and then `if n > 0: result = n`",
    ),
    (
        "result = \"{:>9}|{n:<5}\".format(\"a\", n=\"b\")",
        "write `result = \"{}|{}\".format(format(\"a\", \">9\"), format(\"b\", \"<5\"))`",
    ),
    ("x = 1\nx++", "write `x += 1`"),
    (
        "result = \"a\" \"b\".upper()",
        "write `result = (\"a\" + \"b\").upper()`",
    ),
    ("files.open()[\"items\"].sort()", "write `xs = sorted(xs)`"),
    (
        "result = not 1 < 2 < 3",
        "write `a < b and b < c` for `a < b < c`",
    ),
    (
        "result = 0 < f() < 3",
        "write `a < b and b < c` for `a < b < c`",
    ),
    ("a = [1]\na[:1] = [5]", "write `a = list([5]) + a[1:]`"),
    (
        "d = {\"a\": 1}\nd.popitem()",
        "write `key = list(d)[-1]`, and then `value = d.pop(key)`",
    ),
    (
        "while x < 3 and x is not None:\n    pass",
        "`while` is not available: write `for _ in range(10000):` and start its body with `if not (x < 3 and x != None): break`",
    ),
    (
        "x = datetime.now()",
        "there is no clock and no sleep: ISO dates compare as strings, and `d.split(\"-\")` returns their parts",
    ),
    (
        "from collections.abc import Iterable",
        "remove this line: annotations are not checked, and `Any`, `Optional`, `List` and `Dict` are \
         available without import",
    ),
    (
        "x = timedelta(days=1)",
        "there is no clock and no sleep: ISO dates compare as strings, and `d.split(\"-\")` returns \
         their parts",
    ),
    ("pritn(1)", "did you mean `print`?"),
    ("x = null", "write `None`"),
    (
        "x = files.open\nx.query",
        "call the tool first: `server.tool(argument=value)` returns its result",
    ),
];

#[test]
fn hints_show_lines_that_work() {
    for (code, hint) in CASES {
        let failure = failure(code);
        assert_eq!(
            failure.hints.first().map(String::as_str),
            Some(*hint),
            "{code}\n{failure:?}"
        );
    }
}

#[test]
fn hints_cover_all_lines_at_once() {
    let code = "import json, re\ns = {1, 2}\nd = {**s, \"b\": 2}\nx = [\n    y = 1,\n]\nif s is None:\n    pass";
    let failure = failure(code);
    assert_eq!(failure.line, Some(1));
    assert!(failure.hints[0].starts_with("remove this line: `json` is available without import; "));
    assert_eq!(
        failure.hints[1..],
        [
            "line 2: write `s = set([1, 2])`",
            "line 3: write `d = s | {\"b\": 2}`",
            "line 7: write `if s == None:`",
        ]
    );
}
