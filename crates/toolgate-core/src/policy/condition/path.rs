//! The spellings of a path under which a server may open the same file.

/// Number of percent-decoding passes; `%252f` survives a single one.
const MAX_DECODE_PASSES: usize = 3;

/// Returns whether the text has a `..` segment, plain or percent-encoded.
pub(in crate::policy) fn has_parent_segment(text: &str) -> bool {
    let decoded = text
        .to_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/");
    decoded.split(['/', '\\']).any(|segment| segment == "..")
}

/// Returns the normalized paths that a server may read a text as: percent-decoded or not, as a path or
/// as a `file:` URL, and without detours through `/proc`.
pub(super) fn spellings(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut decoded = text.to_owned();
    for _ in 0..=MAX_DECODE_PASSES {
        for path in strip_file_scheme(&decoded) {
            let spellings = [ProcLinks::Keep, ProcLinks::Follow];
            for path in spellings.map(|links| normalize(&path, links)) {
                if !found.contains(&path) {
                    found.push(path);
                }
            }
        }
        let next = percent_decode(&decoded);
        if next == decoded {
            break;
        }
        decoded = next;
    }
    found
}

/// Removes all percent-encoding.
pub(in crate::policy) fn decode(text: &str) -> String {
    let passes = std::iter::successors(Some(text.to_owned()), |text| Some(percent_decode(text)));
    let last = passes.take(MAX_DECODE_PASSES + 1).last();
    last.unwrap_or_default()
}

/// Removes detours from a path: `.`, `..`, empty segments, trailing slashes and links in `/proc`.
pub(in crate::policy) fn simplify(text: &str) -> String {
    normalize(text, ProcLinks::Follow)
}

/// Removes a `file:` scheme in any case, and its host; `url:file:` is Java's. Returns the text with and
/// without what may be a host.
fn strip_file_scheme(text: &str) -> Vec<String> {
    let mut text = text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .replace('\\', "/");
    for scheme in ["url:", "file:"] {
        if text
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        {
            text.drain(..scheme.len());
            if scheme == "file:" {
                let host_and_path = text.strip_prefix("//").map(ToOwned::to_owned);
                let path = host_and_path
                    .as_ref()
                    .and_then(|text| text.find('/').map(|at| text[at..].to_owned()));
                return [Some(text), host_and_path, path]
                    .into_iter()
                    .flatten()
                    .collect();
            }
        }
    }
    vec![text]
}

/// Decodes one layer of percent-encoding.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes `.`, `..` and empty segments and trailing slashes. A leading `..` of a relative path is
/// kept.
fn normalize(text: &str, links: ProcLinks) -> String {
    let text = text.replace('\\', "/");
    let mut segments: Vec<&str> = Vec::new();
    let mut rooted = text.starts_with('/');
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => drop(segments.pop()),
            ".." if rooted => {}
            segment => segments.push(segment),
        }
        let target = find_proc_link(&segments).filter(|_| rooted && links == ProcLinks::Follow);
        if let Some(target) = target {
            segments.clear();
            rooted = target == ProcTarget::Root;
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, segments.join("/"))
}

/// Whether links such as `/proc/self/root` are segments like any other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcLinks {
    Keep,
    Follow,
}

/// Directory that a link in `/proc` leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcTarget {
    Root,
    WorkingDirectory,
}

fn find_proc_link(segments: &[&str]) -> Option<ProcTarget> {
    let is = |text: &str, name: &str| text.eq_ignore_ascii_case(name);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (process, link) = match segments {
        [proc, process, link] if is(proc, "proc") => (process, link),
        [proc, process, task, thread, link]
            if is(proc, "proc") && is(task, "task") && is_number(thread) =>
        {
            (process, link)
        }
        _ => return None,
    };
    if !is_number(process) && !is(process, "self") && !is(process, "thread-self") {
        return None;
    }
    if is(link, "root") {
        Some(ProcTarget::Root)
    } else {
        is(link, "cwd").then_some(ProcTarget::WorkingDirectory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        for (text, plain) in [
            ("/a/../../b", "/b"),
            ("../a/../../b", "../../b"),
            ("a/./b//c/", "a/b/c"),
            ("", ""),
            ("/", "/"),
            ("https://x/y", "https:/x/y"),
        ] {
            assert_eq!(normalize(text, ProcLinks::Follow), plain, "{text}");
        }
    }

    #[test]
    fn links_in_proc_are_removed() {
        for (path, plain) in [
            ("/proc/self/root", "/"),
            ("/proc/self/root/etc", "/etc"),
            ("/proc/12/task/7/root/a/b", "/a/b"),
            ("/proc/self/cwd/a", "a"),
            ("/proc/self/root/proc/1/root/x", "/x"),
            ("/proc/self/status", "/proc/self/status"),
            ("/proc/cpuinfo", "/proc/cpuinfo"),
            ("/proc/self", "/proc/self"),
            ("/proc/self/rooted/x", "/proc/self/rooted/x"),
            ("/srv/proc/self/root/x", "/srv/proc/self/root/x"),
        ] {
            assert_eq!(normalize(path, ProcLinks::Follow), plain, "{path}");
            assert_eq!(normalize(path, ProcLinks::Keep), path);
        }
    }
}
