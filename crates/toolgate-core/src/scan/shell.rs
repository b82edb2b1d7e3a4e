//! Characters that make one command into several, or into another.
//!
//! Quotes are not followed: which shell reads the value, if any, and which quotes its server puts
//! around it, is not known here, and `x'; reboot; '` is quoted only for those who read it alone.

use std::cmp::Reverse;

const OPERATORS: [&str; 10] = ["&&", "||", "$(", "${", "`", ";", "|", ">", "<", "\n"];

/// What chains, redirects or substitutes in a command, in words.
pub(super) fn operator(command: &str) -> Option<String> {
    let command = command.trim();
    let first = OPERATORS
        .into_iter()
        .filter_map(|operator| Some((command.find(operator)?, operator)))
        .min_by_key(|(at, operator)| (*at, Reverse(operator.len())));
    match first {
        Some((_, "\n")) => Some("a command of several lines".to_owned()),
        Some((_, "`")) => Some("a backtick in a command".to_owned()),
        Some((_, operator)) => Some(format!("the shell operator `{operator}` in a command")),
        None => goes_on_behind(command).then(|| "the shell operator `&` in a command".to_owned()),
    }
}

/// Whether a `&` ends a command. Within a word it is most often part of a URL.
fn goes_on_behind(command: &str) -> bool {
    command
        .split('&')
        .skip(1)
        .any(|after| after.is_empty() || after.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators() {
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
            ("ls\nrm x", "several lines"),
            ("sleep 9 &", "`&`"),
            ("sleep 9 & rm x", "`&`"),
            ("sleep 9&\n", "`&`"),
        ] {
            let what = super::operator(command).unwrap();
            assert!(what.contains(operator), "{command}: {what}");
        }
    }

    #[test]
    fn plain_commands() {
        for command in [
            "",
            "ls -la /tmp",
            "git log --oneline -n 5\n",
            "curl https://example.com/?a=1&b=2",
            "echo $HOME 100% #1 (a) [b] {c} ~ ! ? *",
            "\nmake test\n",
        ] {
            assert_eq!(operator(command), None, "{command}");
        }
    }
}
