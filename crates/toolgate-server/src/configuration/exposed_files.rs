//! Warns about servers whose tools can reach the gateway's own files.
//!
//! A tool that writes files below such a folder could replace the configuration, or read the admin key.
//! Which folders a server uses is known only from its arguments.

use std::path::{Path, PathBuf};

use toolgate_core::Config;
use toolgate_core::config::{ServerConnection, StdioConnection};

use crate::files;

/// Returns a warning for each server that has a folder with one of these files or folders as argument.
pub(crate) fn find_exposed_files(config: &Config, own_files: &[PathBuf]) -> Vec<String> {
    let own_files: Vec<PathBuf> = own_files
        .iter()
        .map(PathBuf::as_path)
        .chain(files::store_key_file(config))
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let mut warnings = Vec::new();
    for server in &config.servers {
        let ServerConnection::Stdio(stdio) = &server.connection else {
            continue;
        };
        let exposed = stdio.args.iter().find_map(|argument| {
            let folders = folders_in(argument, stdio);
            let own = own_files
                .iter()
                .find(|own| folders.iter().any(|folder| own.starts_with(folder)))?;
            Some((argument, own))
        });
        if let Some((argument, own)) = exposed {
            warnings.push(format!(
                "server `{}` can reach the gateway's own files: its argument `{argument}` contains `{}`; give the server another folder, or move these files",
                server.name,
                own.display()
            ));
        }
    }
    warnings
}

/// Returns the existing folders that an argument names: `FOLDER`, `--option=FOLDER`, or `FOLDER:…` as in
/// the mounts of containers.
fn folders_in(argument: &str, stdio: &StdioConnection) -> Vec<PathBuf> {
    let base = stdio.cwd.as_deref().unwrap_or(Path::new("."));
    let value = argument
        .split_once('=')
        .map_or(argument, |(_, value)| value);
    let mount = value.split_once(':').map_or(value, |(source, _)| source);
    let source = mount.rsplit_once('=').map_or(mount, |(_, source)| source);
    let candidates = [argument, value, mount, source].into_iter();
    candidates
        .filter(|text| !text.is_empty())
        .filter_map(|text| base.join(text).canonicalize().ok())
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use toolgate_core::config::{ConfigFormat, Document};

    use super::*;

    #[test]
    fn arguments_that_contain_own_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let own = root.join("a/data");
        for path in ["a/data/deep", "a/other", "b"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        let path = |below: &str| root.join(below).display().to_string();
        for (argument, cwd, expected) in [
            (path(""), path(""), true),
            (path("a"), path(""), true),
            (path("a/data"), path(""), true),
            (path("a/other/.."), path(""), true),
            (format!("--root={}", path("a")), path(""), true),
            (format!("{}:/mnt", path("a")), path(""), true),
            (".".to_owned(), path("a"), true),
            ("/".to_owned(), path(""), true),
            (path("a/data/deep"), path(""), false),
            (path("a/other"), path(""), false),
            (path("b"), path(""), false),
            (".".to_owned(), path("b"), false),
            ("data".to_owned(), path(""), false),
            (String::new(), path("a"), false),
            ("-y".to_owned(), path("a"), false),
        ] {
            let toml = format!(
                "[mcp_servers.files]\ncommand = \"x\"\nargs = [{argument:?}]\ncwd = {cwd:?}\n"
            );
            let document = Document::parse("f", ConfigFormat::Toml, &toml);
            let (config, _) = Config::load(&[document]).unwrap();
            let warnings = find_exposed_files(&config, &[own.clone(), root.join("missing")]);
            assert_eq!(!warnings.is_empty(), expected, "{argument} in {cwd}");
        }
    }
}
