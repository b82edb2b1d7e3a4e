//! The functions that a gateway runs, for the linker to put side by side.
//!
//! Of a large program the system maps whole pieces around every function that runs. Functions that
//! run lie apart in the order of the compiler, so that most of the program ends up in memory.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::callgrind::Counted;
use crate::case::{self, At};
use crate::flags::Flags;
use crate::gateway;
use crate::{say, tell};

/// Requests of each case, and connections that they come by.
const TIMES: u64 = 60;
const CONNECTIONS: usize = 8;

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let binary = fs::canonicalize(gateway::binary(flags.get("binary"))?)?;
    let file = PathBuf::from(flags.get("file").unwrap_or("benches/order.txt"));
    let folder = tempfile::tempdir()?;
    tell("starting it");
    let by_the_linker = ["--demangle=no"];
    let mut counted =
        Counted::start_with(&by_the_linker, &binary, At::Injecting, folder.path(), TIMES).await?;
    let (_, start) = counted.dump().await?;
    // Scripts are for processes of their own, which valgrind does not let start.
    let cases = case::all().into_iter();
    for case in cases.filter(|case| !case.name.starts_with("script")) {
        tell(&case.name);
        counted.ask(&case, TIMES, CONNECTIONS).await?;
    }
    let (_, requests) = counted.dump().await?;
    // What every request needs comes first, then what only the start needs.
    let mut seen = HashSet::new();
    let order: Vec<&str> = [&requests, &start]
        .into_iter()
        .flat_map(|dump| functions(dump, &binary))
        .filter(|name| seen.insert(*name))
        .collect();
    if !order.iter().any(|name| name.contains("toolgate")) {
        bail!("{} is stripped of its names", binary.display());
    }
    fs::write(&file, order.join("\n") + "\n")?;
    say(&format!(
        "{} functions are in {}",
        order.len(),
        file.display()
    ));
    Ok(())
}

/// The functions of a program in a dump, by the names that the linker knows.
///
/// A file or function is named where it is first mentioned, behind a number that stands for it from
/// then on.
fn functions<'a>(dump: &'a str, program: &Path) -> Vec<&'a str> {
    let mut names: HashMap<(&str, &str), &str> = HashMap::new();
    let mut is_ours = false;
    let mut found = Vec::new();
    for line in dump.lines() {
        let Some((word, said)) = line.split_once('=') else {
            continue;
        };
        let (number, name) = said.split_once(' ').unwrap_or((said, ""));
        let kind = word.trim_start_matches('c');
        if !name.is_empty() {
            names.insert((kind, number), name);
        }
        let name = names.get(&(kind, number)).copied().unwrap_or_default();
        match word {
            "ob" => is_ours = Path::new(name) == program,
            // One that calls itself is told apart by an apostrophe and a number.
            "fn" if is_ours => found.extend(name.split('\'').next()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_the_program_are_found_in_a_dump() {
        let dump = "ob=(1) /lib/libc.so.6\nfn=(1) malloc\n16 3\ncob=(2) /bin/gate\n\
                    cfn=(2) _ZN1b17h1E'2\ncalls=1 5\n16 9\n\
                    ob=(2)\nfn=(2)\n12 9\ncob=(1)\ncfn=(1)\ncalls=1 1\nfn=(3) _ZN1a17h0E\n";
        let names = functions(dump, Path::new("/bin/gate"));
        assert_eq!(names, ["_ZN1b17h1E", "_ZN1a17h0E"]);
    }
}
