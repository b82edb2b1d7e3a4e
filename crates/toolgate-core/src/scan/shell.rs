//! Shell operators that turn one command into several, or into a different one.
//!
//! Quoting is ignored: neither the shell nor the quotes that the server adds are known here, and
//! `x'; reboot; '` looks quoted only in isolation.

use std::cmp::Reverse;

const OPERATORS: [&str; 10] = ["&&", "||", "$(", "${", "`", ";", "|", ">", "<", "\n"];

/// Describes the first operator in a command that chains, redirects or substitutes.
pub(super) fn find_operator(command: &str) -> Option<String> {
    let command = command.trim();
    let first = OPERATORS
        .into_iter()
        .filter_map(|operator| Some((command.find(operator)?, operator)))
        .min_by_key(|(at, operator)| (*at, Reverse(operator.len())));
    match first {
        Some((_, "\n")) => Some("a multi-line command".to_owned()),
        Some((_, "`")) => Some("a backtick in a command".to_owned()),
        Some((_, operator)) => Some(format!("the shell operator `{operator}` in a command")),
        None => has_background_operator(command)
            .then(|| "the shell operator `&` in a command".to_owned()),
    }
}

/// Returns whether a `&` ends a command. Inside a word it is usually part of a URL.
fn has_background_operator(command: &str) -> bool {
    command
        .split('&')
        .skip(1)
        .any(|after| after.is_empty() || after.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found() {
        for (command, operator) in [
            ("ls; rm -rf /", "`;`"),
            ("a && b", "`&&`"),
            ("a || b", "`||`"),
            ("a | b; c", "`|`"),
            ("echo `id`", "backtick"),
            ("echo $(id)", "`$(`"),
            ("echo ${HOME}", "`${`"),
            ("a > b", "`>`"),
            ("a < b", "`<`"),
            ("a 2>&1", "`>`"),
            ("ls\nrm x", "multi-line"),
            ("sleep 9 &", "`&`"),
            ("sleep 9 & rm x", "`&`"),
            ("sleep 9&\n", "`&`"),
        ] {
            let what = find_operator(command).unwrap();
            assert!(what.contains(operator), "{command}: {what}");
        }
    }

    #[test]
    fn plain_commands_have_no_operator() {
        for command in [
            "",
            "ls -la /tmp",
            "git log --oneline -n 5\n",
            "curl https://example.com/?a=1&b=2",
            "echo $HOME 100% #1 (a) [b] {c} ~ ! ? *",
            "\nmake test\n",
        ] {
            assert_eq!(find_operator(command), None, "{command}");
        }
    }
}
