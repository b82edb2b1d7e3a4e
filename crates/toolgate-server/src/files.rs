//! Which configuration files there are, and where data is kept.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use toolgate::Environment;
use toolgate_core::config::{Document, Format};

/// Keys of which one makes a `config.json` ours.
const OUR_KEYS: [&str; 3] = ["mcp", "mcp_servers", "providers"];
const PROJECT: &str = "toolgate.toml";
const PROJECT_JSON: &str = "config.json";

/// When a file was written, its size, and which file it is.
pub(crate) type Stamp = (SystemTime, u64, u64);

/// The environment of this process; the only place that reads it besides the flags.
#[allow(
    clippy::disallowed_methods,
    reason = "the CLI reads the environment and passes it on"
)]
pub(crate) fn environment() -> Environment {
    Environment::new(|name| std::env::var(name).ok())
}

/// The named file, or the user's and the project's, in the order in which they are merged.
///
/// `chosen` is the configuration's environment that a flag or variable chose.
pub(crate) fn documents(
    named: Option<&Path>,
    chosen: Option<&str>,
    environment: &Environment,
) -> anyhow::Result<Vec<Document>> {
    let mut documents = in_files(named, environment)?;
    documents.extend(chosen.map(|chosen| {
        let value = serde_json::json!({"environment": chosen});
        Document::from_value("--environment", value)
    }));
    Ok(documents)
}

/// When the files that [`documents`] reads were written, and their sizes.
pub(crate) fn stamps(named: Option<&Path>, environment: &Environment) -> Vec<Option<Stamp>> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    match named {
        Some(path) => vec![stamp(path)],
        None => vec![
            user_file(environment).and_then(|path| stamp(&path)),
            stamp(Path::new(PROJECT)),
            stamp(Path::new(PROJECT_JSON)),
        ],
    }
}

fn in_files(named: Option<&Path>, environment: &Environment) -> anyhow::Result<Vec<Document>> {
    if let Some(path) = named {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        return Ok(vec![parse(path, &text)]);
    }
    let user = user_file(environment);
    let mut documents = Vec::new();
    documents.extend(user.map(|path| optional(&path)).transpose()?.flatten());
    match optional(Path::new(PROJECT))? {
        Some(project) => documents.push(project),
        None => {
            let json = optional(Path::new(PROJECT_JSON))?;
            documents.extend(json.filter(is_ours));
        }
    }
    Ok(documents)
}

fn user_file(environment: &Environment) -> Option<PathBuf> {
    config_home(environment).map(|home| home.join("toolgate/toolgate.toml"))
}

/// One that cannot be read may well be ours, and its mistake must be told.
fn is_ours(document: &Document) -> bool {
    document.is_broken() || OUR_KEYS.iter().any(|key| document.value.get(key).is_some())
}

/// The data directory; one that is made is for its owner alone.
pub(crate) fn data_dir(
    named: Option<PathBuf>,
    environment: &Environment,
) -> anyhow::Result<PathBuf> {
    let path = match named.or_else(|| data_home(environment).map(|home| home.join("toolgate"))) {
        Some(path) => path,
        None => bail!("there is no place for data: set --data-dir, or HOME"),
    };
    if !path.is_dir() {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path);
        made.with_context(|| format!("cannot make the data directory `{}`", path.display()))?;
    }
    Ok(path)
}

fn optional(path: &Path) -> anyhow::Result<Option<Document>> {
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
    let format = if json { Format::Json } else { Format::Toml };
    Document::parse(&path.display().to_string(), format, text)
}

fn config_home(environment: &Environment) -> Option<PathBuf> {
    base(environment, "XDG_CONFIG_HOME", ".config")
}

fn data_home(environment: &Environment) -> Option<PathBuf> {
    base(environment, "XDG_DATA_HOME", ".local/share")
}

fn base(environment: &Environment, variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = environment
        .get(variable)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    set.or_else(|| {
        environment
            .get("HOME")
            .map(|home| Path::new(&home).join(below_home))
    })
}
