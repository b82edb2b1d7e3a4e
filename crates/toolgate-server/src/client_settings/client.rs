//! The clients: where their settings are, and what connects them. A client that cannot take a key from an
//! environment variable, or knows only child processes, starts `toolgate mcp`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use toolgate::Environment;
use url::Url;

use super::{Entry, Format};

/// A client that can be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
    Windsurf,
    Zed,
    GeminiCli,
    Cline,
    Goose,
    #[value(name = "opencode")]
    OpenCode,
}

/// The system that a client runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
    Windows,
}

/// What a client is to be connected to.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// URL of the endpoint, for clients that use HTTP.
    pub(crate) url: Url,
    /// The command that starts this program, for clients that start a process, with its arguments.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) key: Option<ConnectionKey>,
}

/// The key that a client sends.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionKey {
    /// Name of the variable that contains it.
    pub(crate) variable: String,
    /// The key itself, if it is to be written into the file.
    pub(crate) value: Option<String>,
}

/// Folders of the user.
struct Folders<'a> {
    platform: Platform,
    environment: &'a Environment,
}

impl Platform {
    pub(crate) fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

impl Client {
    /// Returns the client's settings file.
    pub(crate) fn settings_file(
        self,
        platform: Platform,
        environment: &Environment,
    ) -> anyhow::Result<PathBuf> {
        let folders = Folders {
            platform,
            environment,
        };
        let file = self.settings_path(&folders);
        file.context("the settings file of this client is not known, because HOME is not set; name the file with --file")
    }

    /// Returns the entry that connects the client, for its settings file.
    pub(crate) fn entry(self, connection: &Connection, file: PathBuf) -> Entry {
        let format = match self {
            Self::Codex => Format::Toml,
            Self::Goose => Format::Yaml,
            _ => Format::Json,
        };
        let section: &[&str] = match self {
            Self::VsCode => &["servers"],
            Self::Codex => &["mcp_servers"],
            Self::Zed => &["context_servers"],
            Self::Goose => &["extensions"],
            Self::OpenCode => &["mcp"],
            _ => &["mcpServers"],
        };
        Entry {
            file,
            format,
            section,
            members: self.members(connection),
        }
    }

    /// Returns what the user must still do.
    pub(crate) fn next_step(self, connection: &Connection) -> String {
        let restart = match self {
            Self::ClaudeDesktop => "quit and restart Claude Desktop",
            Self::ClaudeCode | Self::Codex | Self::GeminiCli | Self::Goose | Self::OpenCode => {
                "start a new session"
            }
            Self::Cursor | Self::VsCode | Self::Windsurf | Self::Zed | Self::Cline => {
                "reload the servers in the client's MCP settings"
            }
        };
        match &connection.key {
            Some(ConnectionKey {
                variable,
                value: None,
            }) => format!("set {variable} in the environment of the client, then {restart}"),
            _ => restart.to_owned(),
        }
    }

    fn members(self, connection: &Connection) -> Map<String, Value> {
        let Connection {
            url,
            program,
            arguments,
            key,
        } = connection;
        let url = url.as_str();
        let members = match self {
            Self::ClaudeDesktop | Self::Zed => {
                with_env(json!({"command": program, "args": arguments}), key.as_ref())
            }
            Self::Cline => {
                let entry = json!({"type": "stdio", "command": program, "args": arguments});
                with_env(entry, key.as_ref())
            }
            // It does not replace variables in every version and place, but passes them on to processes.
            Self::ClaudeCode if key.as_ref().is_some_and(|key| key.value.is_none()) => {
                json!({"type": "stdio", "command": program, "args": arguments})
            }
            Self::ClaudeCode => {
                with_header(json!({"type": "http", "url": url}), key.as_ref(), "KEY")
            }
            Self::Cursor => with_header(json!({"url": url}), key.as_ref(), "${env:KEY}"),
            Self::VsCode => {
                let entry = json!({"type": "http", "url": url});
                with_header(entry, key.as_ref(), "${env:KEY}")
            }
            Self::Windsurf => with_header(json!({"serverUrl": url}), key.as_ref(), "${env:KEY}"),
            Self::GeminiCli => with_header(json!({"httpUrl": url}), key.as_ref(), "${KEY}"),
            Self::OpenCode => {
                let entry = json!({"type": "remote", "url": url, "enabled": true});
                with_header(entry, key.as_ref(), "{env:KEY}")
            }
            Self::Codex => match key {
                None => json!({"url": url}),
                Some(ConnectionKey {
                    variable,
                    value: None,
                }) => json!({"url": url, "bearer_token_env_var": variable}),
                Some(ConnectionKey {
                    value: Some(value), ..
                }) => {
                    json!({"url": url, "http_headers": {"Authorization": format!("Bearer {value}")}})
                }
            },
            Self::Goose => goose_members(connection),
        };
        match members {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    fn settings_path(self, folders: &Folders<'_>) -> Option<PathBuf> {
        let below_home = |path: &str| folders.home().map(|home| home.join(path));
        let variable = |name: &str| {
            let value = folders.environment.get(name);
            value.filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        match self {
            Self::ClaudeDesktop => Some(
                folders
                    .application_data()?
                    .join("Claude/claude_desktop_config.json"),
            ),
            Self::ClaudeCode => match variable("CLAUDE_CONFIG_DIR") {
                Some(folder) => Some(folder.join(".claude.json")),
                None => below_home(".claude.json"),
            },
            Self::Cursor => below_home(".cursor/mcp.json"),
            Self::VsCode => Some(folders.application_data()?.join("Code/User/mcp.json")),
            Self::Codex => match variable("CODEX_HOME") {
                Some(folder) => Some(folder.join("config.toml")),
                None => below_home(".codex/config.toml"),
            },
            Self::Windsurf => below_home(".codeium/windsurf/mcp_config.json"),
            Self::Zed => Some(match folders.platform {
                Platform::Windows => folders.application_data()?.join("Zed/settings.json"),
                Platform::Linux | Platform::MacOs => folders.config()?.join("zed/settings.json"),
            }),
            Self::GeminiCli => below_home(".gemini/settings.json"),
            Self::Cline => variable("CLINE_MCP_SETTINGS_PATH").or_else(|| cline_settings(folders)),
            Self::Goose => Some(match folders.platform {
                Platform::Windows => folders
                    .application_data()?
                    .join("Block/goose/config/config.yaml"),
                Platform::Linux | Platform::MacOs => folders.config()?.join("goose/config.yaml"),
            }),
            Self::OpenCode => {
                let folder = folders.config()?.join("opencode");
                let with_comments = folder.join("opencode.jsonc");
                Some(if with_comments.exists() {
                    with_comments
                } else {
                    folder.join("opencode.json")
                })
            }
        }
    }
}

impl Folders<'_> {
    fn home(&self) -> Option<PathBuf> {
        match self.platform {
            Platform::Windows => self.variable("USERPROFILE"),
            Platform::Linux | Platform::MacOs => self.variable("HOME"),
        }
    }

    /// Returns the folder of programs with a window.
    fn application_data(&self) -> Option<PathBuf> {
        match self.platform {
            Platform::Linux => self.config(),
            Platform::MacOs => Some(self.home()?.join("Library/Application Support")),
            Platform::Windows => self.variable("APPDATA"),
        }
    }

    /// Returns the folder of programs that follow XDG on every system.
    fn config(&self) -> Option<PathBuf> {
        let configured = self.variable("XDG_CONFIG_HOME");
        configured.or_else(|| Some(self.home()?.join(".config")))
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        let value = self.environment.get(name);
        value.filter(|value| !value.is_empty()).map(PathBuf::from)
    }
}

/// Returns the settings of Cline: the ones that its extension and command line share or, if only that exists,
/// the file of older extensions.
fn cline_settings(folders: &Folders<'_>) -> Option<PathBuf> {
    let shared = folders
        .home()?
        .join(".cline/data/settings/cline_mcp_settings.json");
    let of_extension = folders.application_data().map(|folder| {
        folder
            .join("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")
    });
    match of_extension.filter(|path| path.exists()) {
        Some(path) if !shared.exists() => Some(path),
        _ => Some(shared),
    }
}

/// Adds the header with the key: a reference to its variable, or the key itself.
fn with_header(mut entry: Value, key: Option<&ConnectionKey>, reference: &str) -> Value {
    if let Some(ConnectionKey { variable, value }) = key {
        let reference = || reference.replace("KEY", variable);
        let value = value.clone().unwrap_or_else(reference);
        entry["headers"] = json!({"Authorization": format!("Bearer {value}")});
    }
    entry
}

/// Adds the variable with the key, if that is to be written into the file.
fn with_env(mut entry: Value, key: Option<&ConnectionKey>) -> Value {
    if let Some(ConnectionKey {
        variable,
        value: Some(value),
    }) = key
    {
        entry["env"] = json!({variable: value});
    }
    entry
}

fn goose_members(connection: &Connection) -> Value {
    let mut entry = json!({
        "enabled": true,
        "type": "stdio",
        "name": super::ENTRY_NAME,
        "description": "Tools of the Toolgate gateway",
        "cmd": connection.program,
        "args": connection.arguments,
        "envs": {},
        "env_keys": [],
        "timeout": 300,
    });
    match &connection.key {
        Some(ConnectionKey {
            variable,
            value: Some(value),
        }) => entry["envs"] = json!({variable: value}),
        Some(ConnectionKey { variable, .. }) => entry["env_keys"] = json!([variable]),
        None => {}
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(client: Client, platform: Platform) -> String {
        let environment = Environment::new(|name| match name {
            "HOME" | "USERPROFILE" => Some("/home/u".to_owned()),
            "APPDATA" => Some("/home/u/AppData/Roaming".to_owned()),
            _ => None,
        });
        let folders = Folders {
            platform,
            environment: &environment,
        };
        let path = client.settings_path(&folders).unwrap();
        path.display().to_string().replace("/home/u/", "~/")
    }

    #[test]
    fn settings_are_where_each_client_keeps_them() {
        use Platform::{Linux, MacOs, Windows};
        let desktop = "Claude/claude_desktop_config.json";
        for (client, platform, expected) in [
            (Client::ClaudeDesktop, Linux, format!("~/.config/{desktop}")),
            (
                Client::ClaudeDesktop,
                MacOs,
                format!("~/Library/Application Support/{desktop}"),
            ),
            (
                Client::ClaudeDesktop,
                Windows,
                format!("~/AppData/Roaming/{desktop}"),
            ),
            (
                Client::VsCode,
                MacOs,
                "~/Library/Application Support/Code/User/mcp.json".to_owned(),
            ),
            (
                Client::VsCode,
                Linux,
                "~/.config/Code/User/mcp.json".to_owned(),
            ),
            (Client::Zed, MacOs, "~/.config/zed/settings.json".to_owned()),
            (
                Client::Zed,
                Windows,
                "~/AppData/Roaming/Zed/settings.json".to_owned(),
            ),
            (
                Client::Goose,
                Windows,
                "~/AppData/Roaming/Block/goose/config/config.yaml".to_owned(),
            ),
            (Client::Codex, Windows, "~/.codex/config.toml".to_owned()),
        ] {
            assert_eq!(path(client, platform), expected, "{client:?}");
        }
    }
}
