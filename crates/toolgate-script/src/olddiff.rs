#![allow(warnings)]
mod fields;
mod lex;
mod lexer;
mod preview;
use proptest::prelude::*;
const PIECES: &[&str] = &[
    "yt.a()",
    "yt.b()",
    "yt",
    ".a()",
    "getattr(yt, 'a')()",
    "getattr(",
    "yt, ",
    "\"a\"",
    "'b'",
    ")",
    ")()",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "f\"",
    "f'",
    "f\"\"\"",
    "fr'",
    "r\"",
    "r'",
    "b'",
    "{",
    "}",
    "{{",
    "}}",
    "{yt.a()}",
    "{yt}",
    ":",
    "!r",
    "\\",
    "\\\\",
    "\\\"",
    "\\n",
    "\n",
    "\n",
    "\r\n",
    "\r",
    "#",
    "# it's",
    " ",
    "  ",
    "+",
    "x = ",
    "[",
    "]",
    "(",
    ",",
    ";",
    "=",
    "str(",
    "x",
    "0",
    "1.",
    "...",
    "lambda: ",
    ".5",
    "1e+",
    "1e+5",
    "1e-yt.a",
    "0x1e+yt",
    "==",
    "**",
    "//=",
    ":=",
    "@=",
    "@",
    "->",
    "..",
    ".",
    "t'",
    "T\"{yt.a}\"",
    "if ",
    "```",
    "\t",
    "\u{feff}",
    "é",
    "\u{c}",
    "\\\n",
    "\\\r\n",
    "{x:>3}",
    "{x!r}",
    "{x=}",
    "{x:'>3}",
    "{d['a']}",
    "{d[\"a\"]}",
    "yt=1",
    "yt =1",
    "hasattr(yt,r'a',",
    "def getattr(",
    "x.getattr(",
    "u'",
    "rb'",
    "\u{7f}",
    "\u{b}",
];
fn cases() -> u32 {
    std::env::var("N")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20000)
}
#[test]
fn diff_preview() {
    let mut c = ProptestConfig::with_cases(cases());
    c.failure_persistence = None;
    let mut r = proptest::test_runner::TestRunner::new(c);
    r.run(
        &proptest::collection::vec(prop::sample::select(PIECES), 1..10).prop_map(|p| p.concat()),
        |code| {
            if !code.is_ascii() && (code.contains("t'") || code.contains("T\"") || code.contains("t\"")) { return Ok(()); }
        let new = crate::preview::find_mentions(&code, &["yt"]);
            let old = preview::find_mentions(&code, &["yt"]);
            if code.contains('\n')
                || code.contains("t'")
                || code.contains("T\"")
                || code.contains("t\"")
            {
                for (s, ts) in &old.tools {
                    for t in ts {
                        prop_assert!(new.may_call(s, t), "MISS {:?} {:?} {:?}", code, old, new);
                    }
                }
                for s in &old.servers {
                    prop_assert!(new.has_server(s), "MISS {:?} {:?} {:?}", code, old, new);
                }
            } else {
                prop_assert_eq!(&new, &old, "{:?}", code);
            }
            Ok(())
        },
    )
    .unwrap();
}
#[test]
fn diff_tokens() {
    let mut c = ProptestConfig::with_cases(cases());
    c.failure_persistence = None;
    let mut r = proptest::test_runner::TestRunner::new(c);
    let mut differing = std::cell::Cell::new(0);
    r.run(
        &proptest::collection::vec(prop::sample::select(PIECES), 1..10).prop_map(|p| p.concat()),
        |code| {
            let new: Vec<(String, &str)> = crate::lexer::tokenize(&code)
                .iter()
                .map(|t| (format!("{:?}", t.kind), &code[t.start..t.end]))
                .collect();
            let old: Vec<(String, &str)> = lex::tokenize(&code)
                .iter()
                .map(|t| (format!("{:?}", t.kind), &code[t.start..t.end]))
                .collect();
            if ["t'", "T\"", ".5", "1e", "@=", "..1", "..0", ".0"]
                .iter()
                .any(|p| code.contains(p))
            {
                return Ok(());
            }
            if new != old {
                differing.set(differing.get() + 1);
                if differing.get() < 25 {
                    eprintln!("DIFF {code:?}\n  old {old:?}\n  new {new:?}");
                }
            }
            for (k, s) in &new {
                if k == "String" && crate::lexer::find_fields(s) != fields::find_fields(s) {
                    eprintln!(
                        "FIELDS {s:?} old {:?} new {:?}",
                        fields::find_fields(s),
                        crate::lexer::find_fields(s)
                    );
                }
            }
            Ok(())
        },
    )
    .unwrap();
    eprintln!("differing {}", differing.get());
}
#[test]
fn speed() {
    let code = include_str!("../benches/tokens/scripts/salaries.star").repeat(40) + &"x = f\"{a} {b[1]} {youtube.get(id=1)} text\" + \"plain string\"  # comment\nif x == 3 and y != 4:\n    z = foo(a, b=2)\n".repeat(200);
    for _ in 0..3 {
        let t = std::time::Instant::now();
        for _ in 0..50 {
            std::hint::black_box(preview::find_mentions(&code, &["hr", "youtube"]));
        }
        let a = t.elapsed();
        let t = std::time::Instant::now();
        for _ in 0..50 {
            std::hint::black_box(crate::preview::find_mentions(&code, &["hr", "youtube"]));
        }
        let b = t.elapsed();
        let t = std::time::Instant::now();
        for _ in 0..50 {
            std::hint::black_box(lex::tokenize(&code));
        }
        let c = t.elapsed();
        let t = std::time::Instant::now();
        for _ in 0..50 {
            std::hint::black_box(crate::lexer::tokenize(&code));
        }
        let d = t.elapsed();
        eprintln!(
            "bytes {} preview old {a:?} new {b:?}; tokenize old {c:?} new {d:?}",
            code.len()
        );
    }
}
