//! Project files: configuration files that are found in the working folder.
//!
//! Such a file may come from anyone, and it names commands to run and URLs to send secrets to. It is
//! used only after the user has trusted exactly this content at this path. The hashes of trusted files
//! are in the user's data directory, never in one that a project file selects.

mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use toolgate::Environment;
use toolgate_core::config::Document;
use toolgate_core::hash::sha256_hex;

use crate::files;
pub(crate) use summary::summarize;

pub(crate) const PROJECT_TOML: &str = "toolgate.toml";
pub(crate) const PROJECT_JSON: &str = "config.json";
/// Top-level keys that identify a `config.json` as Toolgate's; the name alone is too common.
const TOOLGATE_KEYS: [&str; 3] = ["mcp", "mcp_servers", "providers"];
const TRUST_FILE: &str = "trusted.json";

/// A configuration file in the working folder.
#[derive(Clone, Debug)]
pub(crate) struct ProjectFile {
    pub(crate) document: Document,
    /// Absolute path without symbolic links.
    pub(crate) path: PathBuf,
    /// Hash of the whole file.
    pub(crate) hash: String,
}

impl ProjectFile {
    /// Reads the project file of the working folder, if there is one.
    pub(crate) fn find() -> anyhow::Result<Option<Self>> {
        match Self::read(Path::new(PROJECT_TOML))? {
            Some(project) => Ok(Some(project)),
            None => {
                let project = Self::read(Path::new(PROJECT_JSON))?;
                Ok(project.filter(|project| is_toolgate_config(&project.document)))
            }
        }
    }

    fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read `{}`", path.display()));
            }
        };
        let absolute = fs::canonicalize(path)
            .with_context(|| format!("cannot resolve `{}`", path.display()))?;
        Ok(Some(Self {
            document: files::parse(path, &text).into_project(),
            path: absolute,
            hash: sha256_hex(&text),
        }))
    }
}

/// Returns whether a `config.json` belongs to Toolgate. One that cannot be parsed may, so its errors are
/// reported.
fn is_toolgate_config(document: &Document) -> bool {
    document.has_syntax_error()
        || TOOLGATE_KEYS
            .iter()
            .any(|key| document.value.get(key).is_some())
}

/// The project files that the user has trusted.
#[derive(Debug)]
pub(crate) struct TrustStore {
    file: PathBuf,
}

impl TrustStore {
    pub(crate) fn open(environment: &Environment) -> anyhow::Result<Self> {
        let file = trust_file(environment).context(
            "no data directory to look up trusted files in: set HOME or XDG_DATA_HOME, or use --config",
        )?;
        Ok(Self { file })
    }

    /// Returns whether the user has trusted this content of the file.
    pub(crate) fn contains(&self, project: &ProjectFile) -> anyhow::Result<bool> {
        let trusted = self.read()?;
        let hash = project.path.to_str().and_then(|path| trusted.get(path));
        Ok(hash == Some(&project.hash))
    }

    /// Trusts this content of the file, in place of an earlier one.
    pub(crate) fn add(&self, project: &ProjectFile) -> anyhow::Result<()> {
        let path = project.path.to_str().with_context(|| {
            format!(
                "`{}` is not valid UTF-8; use --config",
                project.path.display()
            )
        })?;
        let mut trusted = self.read()?;
        trusted.insert(path.to_owned(), project.hash.clone());
        let text = serde_json::to_string_pretty(&trusted)?;
        self.write(&text)
            .with_context(|| format!("cannot write `{}`", self.file.display()))
    }

    fn read(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let file = self.file.display();
        match fs::read_to_string(&self.file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("cannot parse `{file}`; delete it and trust files again")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read `{file}`")),
        }
    }

    /// Replaces the file as a whole, so that a reader sees the old or the new content.
    fn write(&self, text: &str) -> std::io::Result<()> {
        if let Some(folder) = self.file.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder)?;
        }
        let new = self
            .file
            .with_extension(format!("{}.new", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&new, &self.file)
    }
}

/// Returns the path of the file with the hashes of trusted files.
pub(crate) fn trust_file(environment: &Environment) -> Option<PathBuf> {
    Some(files::user_data_dir(environment)?.join(TRUST_FILE))
}
