//! The line of a failed process's standard error that says why it failed. Package runners and
//! interpreters end with lines that do not.

/// Starts of the lines that npm and npx write about an error.
const NPM_PREFIXES: [&str; 2] = ["npm error", "npm ERR!"];
/// Starts of npm's lines, after their prefix, that do not tell why it failed.
const NPM_BOILERPLATE: [&str; 6] = [
    "code ",
    "errno ",
    "syscall ",
    "path ",
    "A complete log of this run",
    "Log files were not written",
];

/// Finds the line that says why a process failed, if it is not simply the last one.
pub(super) fn find_failure_line(text: &str) -> Option<&str> {
    let last = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    if last.starts_with("npm ") {
        return text.lines().find_map(npm_reason);
    }
    // Node writes its version after an uncaught error and its stack.
    if last.starts_with("Node.js v") {
        return text.lines().rev().find(|line| is_error_line(line));
    }
    None
}

fn npm_reason(line: &str) -> Option<&str> {
    let mut prefixes = NPM_PREFIXES.iter();
    let rest = prefixes.find_map(|prefix| line.trim().strip_prefix(prefix))?;
    let rest = rest.trim();
    let is_boilerplate = NPM_BOILERPLATE.iter().any(|start| rest.starts_with(start));
    // Npm repeats the code in front of each line, also of empty ones.
    let is_empty = rest.chars().all(|c| c.is_ascii_digit());
    (!is_boilerplate && !is_empty).then_some(rest)
}

/// Returns whether a line is the message of a thrown error, such as `TypeError: …` or `Error [CODE]: …`.
fn is_error_line(line: &str) -> bool {
    let (name, _) = line.split_once(':').unwrap_or_default();
    let name = name.split(" [").next().unwrap_or_default();
    name.ends_with("Error") && name.chars().all(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telling_line_of_npm_and_node_is_found() {
        let missing = "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/@a%2fb - Not found\nnpm error 404\nnpm error 404  '@a/b@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that you can also install from a\nnpm error 404 tarball, folder, http url, or git folder.\nnpm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log\n";
        let offline = "npm ERR! code ENOTFOUND\nnpm ERR! syscall getaddrinfo\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://registry.example/x failed, reason: getaddrinfo ENOTFOUND\nnpm ERR! network This is a problem related to network connectivity.\n\nnpm ERR! Log files were not written due to an error";
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/x/y.js'\n    at Module._resolve (node:internal:1)\n  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v22.0.0\n";
        let coded = "TypeError [ERR_X]: bad: value\n    at x\n\nNode.js v22.0.0";
        for (text, expected) in [
            (
                missing,
                Some("404 Not Found - GET https://registry.example/@a%2fb - Not found"),
            ),
            (
                offline,
                Some(
                    "network request to https://registry.example/x failed, reason: getaddrinfo ENOTFOUND",
                ),
            ),
            (node, Some("Error: Cannot find module '/x/y.js'")),
            (coded, Some("TypeError [ERR_X]: bad: value")),
            ("npm warn old\nserver: cannot listen\n", None),
            ("", None),
        ] {
            assert_eq!(find_failure_line(text), expected, "{text}");
        }
    }
}
