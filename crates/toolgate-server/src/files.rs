//! Locates and reads the configuration files, and locates the data directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use toolgate::Environment;
use toolgate_core::config::{ConfigFormat, Document};

/// Top-level keys that identify a `config.json` as Toolgate's; the name alone is too common.
const TOOLGATE_KEYS: [&str; 3] = ["mcp", "mcp_servers", "providers"];
const PROJECT_TOML: &str = "toolgate.toml";
const PROJECT_JSON: &str = "config.json";

/// Modification time, size and inode of a file.
pub(crate) type FileStamp = (SystemTime, u64, u64);

/// Returns the environment of this process. Apart from flags, nothing else reads it.
#[allow(
    clippy::disallowed_methods,
    reason = "the CLI reads the environment and passes it on"
)]
pub(crate) fn environment() -> Environment {
    Environment::new(|name| std::env::var(name).ok())
}

/// Loads the file at `path`, or else the user's and the project's files, in merge order.
///
/// `environment_name` selects one of the configuration's `environments`.
pub(crate) fn load_documents(
    path: Option<&Path>,
    environment_name: Option<&str>,
    environment: &Environment,
) -> anyhow::Result<Vec<Document>> {
    let mut documents = read_documents(path, environment)?;
    documents.extend(environment_name.map(|name| {
        let value = serde_json::json!({"environment": name});
        Document::from_value("--environment", value)
    }));
    Ok(documents)
}

/// Returns the stamps of the files that [`load_documents`] reads.
pub(crate) fn file_stamps(
    path: Option<&Path>,
    environment: &Environment,
) -> Vec<Option<FileStamp>> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    match path {
        Some(path) => vec![stamp(path)],
        None => vec![
            user_config_path(environment).and_then(|path| stamp(&path)),
            stamp(Path::new(PROJECT_TOML)),
            stamp(Path::new(PROJECT_JSON)),
        ],
    }
}

fn read_documents(path: Option<&Path>, environment: &Environment) -> anyhow::Result<Vec<Document>> {
    if let Some(path) = path {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        return Ok(vec![parse(path, &text)]);
    }
    let user = user_config_path(environment);
    let mut documents = Vec::new();
    documents.extend(user.map(|path| read_optional(&path)).transpose()?.flatten());
    match read_optional(Path::new(PROJECT_TOML))? {
        Some(project) => documents.push(project),
        None => {
            let json = read_optional(Path::new(PROJECT_JSON))?;
            documents.extend(json.filter(is_toolgate_config));
        }
    }
    Ok(documents)
}

fn user_config_path(environment: &Environment) -> Option<PathBuf> {
    config_home(environment).map(|home| home.join("toolgate/toolgate.toml"))
}

/// Returns whether a `config.json` belongs to Toolgate. One that cannot be parsed may, so its errors are
/// reported.
fn is_toolgate_config(document: &Document) -> bool {
    document.has_syntax_error()
        || TOOLGATE_KEYS
            .iter()
            .any(|key| document.value.get(key).is_some())
}

/// Returns the data directory, creating it with access for its owner only.
pub(crate) fn data_dir(
    path: Option<PathBuf>,
    environment: &Environment,
) -> anyhow::Result<PathBuf> {
    let path = match path.or_else(|| data_home(environment).map(|home| home.join("toolgate"))) {
        Some(path) => path,
        None => bail!("no data directory: set --data-dir or HOME"),
    };
    if !path.is_dir() {
        let created = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path);
        created
            .with_context(|| format!("cannot create the data directory `{}`", path.display()))?;
    }
    Ok(path)
}

fn read_optional(path: &Path) -> anyhow::Result<Option<Document>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(parse(path, &text))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

fn parse(path: &Path, text: &str) -> Document {
    let json = path
        .extension()
        .is_some_and(|extension| extension == "json" || extension == "jsonc");
    let format = if json {
        ConfigFormat::Json
    } else {
        ConfigFormat::Toml
    };
    Document::parse(&path.display().to_string(), format, text)
}

fn config_home(environment: &Environment) -> Option<PathBuf> {
    xdg_dir(environment, "XDG_CONFIG_HOME", ".config")
}

fn data_home(environment: &Environment) -> Option<PathBuf> {
    xdg_dir(environment, "XDG_DATA_HOME", ".local/share")
}

/// Returns an XDG base directory: the variable's value, or the default below HOME.
fn xdg_dir(environment: &Environment, variable: &str, below_home: &str) -> Option<PathBuf> {
    let configured = environment
        .get(variable)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    configured.or_else(|| {
        environment
            .get("HOME")
            .map(|home| Path::new(&home).join(below_home))
    })
}
