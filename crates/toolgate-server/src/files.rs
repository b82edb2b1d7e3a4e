//! Locates and reads the configuration files, and locates the data directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use toolgate::Environment;
use toolgate_core::Config;
use toolgate_core::config::{ConfigFormat, Document, StoreKeySource};

use crate::project::{self, PROJECT_JSON, PROJECT_TOML, ProjectFile, TrustStore};

/// Modification time, size and inode of a file.
pub(crate) type FileStamp = (SystemTime, u64, u64);

/// Variables that name files and directories with secrets of the gateway.
const PATH_VARIABLES: [&str; 3] = [
    "TOOLGATE_DATA_DIR",
    "TOOLGATE_STORE_KEY_FILE",
    "TOOLGATE_ADMIN_KEY_FILE",
];
/// Files with keys in a data directory.
const KEY_FILES: [&str; 2] = ["store.key", "admin.key"];

/// Which configuration files to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigSelection {
    /// The only file to read; `None` for the user's and the project's.
    pub(crate) path: Option<PathBuf>,
    /// Whether to ignore the project's file.
    pub(crate) no_project: bool,
    /// Name of the configuration's `environments` entry to use.
    pub(crate) environment_name: Option<String>,
}

/// The configuration files as they are on disk.
#[derive(Debug)]
pub(crate) struct LoadedFiles {
    /// The file that was selected explicitly, or the user's own.
    own: Option<Document>,
    pub(crate) project: ProjectState,
    /// Selects an environment.
    environment: Option<Document>,
}

#[derive(Debug)]
pub(crate) enum ProjectState {
    Absent,
    Trusted(Box<Document>),
    Untrusted(Box<ProjectFile>),
}

impl LoadedFiles {
    /// Returns the documents in merge order, with the file of the project whether it is trusted or not.
    pub(crate) fn all_documents(&self) -> Vec<Document> {
        self.documents_with(match &self.project {
            ProjectState::Absent => None,
            ProjectState::Trusted(document) => Some(document),
            ProjectState::Untrusted(project) => Some(&project.document),
        })
    }

    /// Returns the documents in merge order, with `last_trusted` in place of an untrusted project file.
    pub(crate) fn trusted_documents_or(&self, last_trusted: Option<&Document>) -> Vec<Document> {
        self.documents_with(match &self.project {
            ProjectState::Absent => None,
            ProjectState::Trusted(document) => Some(document),
            ProjectState::Untrusted(_) => last_trusted,
        })
    }

    /// Returns the documents in merge order, or an error that describes an untrusted project file.
    pub(crate) fn into_trusted(self) -> anyhow::Result<Vec<Document>> {
        if let ProjectState::Untrusted(project) = &self.project {
            bail!(
                "the configuration file in this folder is not trusted. It would be used as follows:\n\n{}\n\nTo use it, run `toolgate trust`. To do without it, pass --no-project. A file that is passed with --config needs no trust.",
                project::summarize(project)
            );
        }
        Ok(self.all_documents())
    }

    fn documents_with(&self, project: Option<&Document>) -> Vec<Document> {
        let documents = self.own.iter().chain(project).chain(&self.environment);
        documents.cloned().collect()
    }
}

/// Returns the environment of this process. Apart from flags, nothing else reads it.
#[allow(
    clippy::disallowed_methods,
    reason = "the CLI reads the environment and passes it on"
)]
pub(crate) fn environment() -> Environment {
    Environment::new(|name| std::env::var(name).ok())
}

/// Reads the selected file, or else the user's and the project's.
pub(crate) fn load(
    selection: &ConfigSelection,
    environment: &Environment,
) -> anyhow::Result<LoadedFiles> {
    let (own, project) = match &selection.path {
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            (Some(parse(path, &text)), ProjectState::Absent)
        }
        None => {
            let user = user_config_path(environment);
            let user = user.map(|path| read_optional(&path)).transpose()?.flatten();
            let project = if selection.no_project {
                ProjectState::Absent
            } else {
                find_project(environment)?
            };
            (user, project)
        }
    };
    let name = selection.environment_name.as_ref();
    let environment = name.map(|name| {
        let value = serde_json::json!({"environment": name});
        Document::from_value("--environment", value)
    });
    Ok(LoadedFiles {
        own,
        project,
        environment,
    })
}

fn find_project(environment: &Environment) -> anyhow::Result<ProjectState> {
    let Some(project) = ProjectFile::find()? else {
        return Ok(ProjectState::Absent);
    };
    Ok(if TrustStore::open(environment)?.contains(&project)? {
        ProjectState::Trusted(Box::new(project.document))
    } else {
        ProjectState::Untrusted(Box::new(project))
    })
}

/// Returns the stamps of the files that [`load`] reads.
pub(crate) fn file_stamps(
    selection: &ConfigSelection,
    environment: &Environment,
) -> Vec<Option<FileStamp>> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    match &selection.path {
        Some(path) => vec![stamp(path)],
        None => vec![
            user_config_path(environment).and_then(|path| stamp(&path)),
            stamp(Path::new(PROJECT_TOML)),
            stamp(Path::new(PROJECT_JSON)),
            project::trust_file(environment).and_then(|path| stamp(&path)),
        ],
    }
}

/// Returns the files and folders that decide what the gateway does, and those with its secrets.
pub(crate) fn own_files(
    selection: &ConfigSelection,
    data_dir: Option<&Path>,
    environment: &Environment,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = data_dir.map(Path::to_owned).into_iter().collect();
    paths.extend(user_data_dir(environment));
    match &selection.path {
        Some(path) => paths.push(path.clone()),
        None => {
            paths.extend(user_config_path(environment));
            if !selection.no_project {
                paths.extend([PROJECT_TOML, PROJECT_JSON].map(PathBuf::from));
            }
        }
    }
    paths
}

/// Returns the files and directories that servers must not see: secrets, and what decides which project
/// files are trusted. Creates the user's data directory, since only what exists can be hidden.
pub(crate) fn hidden_from_servers(
    own: impl IntoIterator<Item = PathBuf>,
    config: &Config,
    environment: &Environment,
) -> Vec<PathBuf> {
    let user = user_data_dir(environment);
    if let Some(Err(error)) = user.as_deref().map(create_private_dir) {
        tracing::debug!(%error, "the user has no data directory");
    }
    // Also those of a gateway that this process is not.
    let variables = PATH_VARIABLES.into_iter();
    let named = variables.filter_map(|name| environment.get(name).map(PathBuf::from));
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let key_file = store_key_file(config).map(Path::to_owned);
    let hidden: BTreeSet<PathBuf> = own
        .into_iter()
        .chain(user)
        .chain(config.listen.data_dir.clone())
        .chain(key_file)
        .chain(named)
        .collect();
    hidden.iter().for_each(|path| warn_of_links(path));
    hidden.into_iter().collect()
}

/// Warns of a key with several names, of which only those are hidden that the gateway knows.
fn warn_of_links(path: &Path) {
    let candidates = if path.is_dir() {
        KEY_FILES.map(|name| path.join(name)).to_vec()
    } else {
        vec![path.to_owned()]
    };
    for file in candidates {
        if fs::metadata(&file).is_ok_and(|metadata| metadata.nlink() > 1) {
            tracing::warn!(
                path = %file.display(),
                "the key file has other hard links, through which servers could read it; replace it by a copy"
            );
        }
    }
}

/// Returns the file with the key of the store, if the configuration names one.
pub(crate) fn store_key_file(config: &Config) -> Option<&Path> {
    match &config.listen.store_key {
        Some(StoreKeySource::File(file)) => Some(file),
        Some(StoreKeySource::Variable(_) | StoreKeySource::Command(_)) | None => None,
    }
}

fn user_config_path(environment: &Environment) -> Option<PathBuf> {
    config_home(environment).map(|home| home.join("toolgate/toolgate.toml"))
}

/// Returns the default data directory of the user.
pub(crate) fn user_data_dir(environment: &Environment) -> Option<PathBuf> {
    data_home(environment).map(|home| home.join("toolgate"))
}

/// Returns the data directory of the gateway that `serve` without flags would start, if it exists.
pub(crate) fn find_data_dir(environment: &Environment) -> Option<PathBuf> {
    let variable = |name| environment.get(name).filter(|value| !value.is_empty());
    let configured = || {
        let selection = ConfigSelection {
            path: variable("TOOLGATE_CONFIG").map(PathBuf::from),
            ..ConfigSelection::default()
        };
        let documents = load(&selection, environment)
            .ok()?
            .trusted_documents_or(None);
        let mut settings = documents.iter().rev().map(|file| &file.value["data_dir"]);
        settings.find_map(|dir| dir.as_str().map(PathBuf::from))
    };
    let path = variable("TOOLGATE_DATA_DIR").map(PathBuf::from);
    path.or_else(configured)
        .or_else(|| user_data_dir(environment))
        .filter(|path| path.is_dir())
}

/// Returns the data directory, creating it with access for its owner only.
pub(crate) fn data_dir(
    path: Option<PathBuf>,
    environment: &Environment,
) -> anyhow::Result<PathBuf> {
    let path = match path.or_else(|| user_data_dir(environment)) {
        Some(path) => path,
        None => bail!("no data directory: set --data-dir or HOME"),
    };
    create_private_dir(&path)
        .with_context(|| format!("cannot create the data directory `{}`", path.display()))?;
    Ok(path)
}

/// Creates a directory with access for its owner only, unless it exists.
fn create_private_dir(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn read_optional(path: &Path) -> anyhow::Result<Option<Document>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(parse(path, &text))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// Parses a configuration file; its format follows from its name.
pub(crate) fn parse(path: &Path, text: &str) -> Document {
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
