//! Checked settings about the definitions of tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ServerConfig, ServerConnection};

/// What happens when a server changes the definition of a tool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnDefinitionChange {
    /// Nothing; the definitions are not remembered.
    Off,
    /// It is reported.
    #[default]
    Warn,
    /// The tool is hidden until an administrator trusts the new definition.
    Pin,
}

/// What happens to a definition that contains suspicious text.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnSuspiciousDefinition {
    /// Nothing; definitions are not scanned.
    Off,
    /// It is reported.
    #[default]
    Warn,
    /// The tool is hidden until an administrator trusts the definition.
    Block,
}

/// How the definitions of a server are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSettings {
    pub on_change: OnDefinitionChange,
    pub on_suspicion: OnSuspiciousDefinition,
}

/// Settings that need not be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionOverrides {
    pub on_change: Option<OnDefinitionChange>,
    pub on_suspicion: Option<OnSuspiciousDefinition>,
}

impl DefinitionSettings {
    const OFF: Self = Self {
        on_change: OnDefinitionChange::Off,
        on_suspicion: OnSuspiciousDefinition::Off,
    };

    /// Whether a tool may be hidden because of its definition.
    pub fn can_hide(self) -> bool {
        self.on_change == OnDefinitionChange::Pin
            || self.on_suspicion == OnSuspiciousDefinition::Block
    }

    pub fn is_off(self) -> bool {
        self == Self::OFF
    }
}

impl DefinitionOverrides {
    pub(super) fn new(
        on_change: Option<OnDefinitionChange>,
        on_suspicion: Option<OnSuspiciousDefinition>,
    ) -> Self {
        Self {
            on_change,
            on_suspicion,
        }
    }

    /// Combines settings of several files: the strictest applies.
    pub(super) fn tighten(&mut self, other: Self) {
        self.on_change = self.on_change.max(other.on_change);
        self.on_suspicion = self.on_suspicion.max(other.on_suspicion);
    }
}

impl Config {
    /// Returns how the definitions of a server are treated. Those of the embedding program are its own.
    pub fn definition_settings(&self, server: &ServerConfig) -> DefinitionSettings {
        if server.connection == ServerConnection::InProcess {
            return DefinitionSettings::OFF;
        }
        let (own, global) = (server.definitions, self.definitions);
        DefinitionSettings {
            on_change: own.on_change.or(global.on_change).unwrap_or_default(),
            on_suspicion: own.on_suspicion.or(global.on_suspicion).unwrap_or_default(),
        }
    }
}
