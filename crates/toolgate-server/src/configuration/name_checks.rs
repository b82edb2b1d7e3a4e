//! Checks of a changed configuration against the one in force: new names that refer to nothing, and
//! restrictions that a renamed server would escape.

use toolgate_core::Config;
use toolgate_core::config::{NameOwner, NameProblem};

use super::ChangeError;
use super::manager::RunningManager;

impl RunningManager {
    /// Fails if a changed configuration contains new names of servers or tools that do not exist.
    pub(super) fn check_new_names(&self, config: &Config) -> Result<(), ChangeError> {
        let new = self.find_new_name_problems(config);
        if new.is_empty() {
            return Ok(());
        }
        let messages = new.iter().map(ToString::to_string);
        Err(ChangeError::Invalid(messages.collect()))
    }

    /// Finds names of servers and tools that do not exist, unless the configuration in force contains
    /// them too: what a server's lists name is known only once it is connected.
    pub(super) fn find_new_name_problems(&self, config: &Config) -> Vec<NameProblem> {
        let catalog = self.gateway.catalog();
        let before = self.snapshot.load().config.find_name_problems(&catalog);
        let mut problems = config.find_name_problems(&catalog);
        problems.retain(|problem| {
            !matches!(problem.owner, NameOwner::Server(_)) && !problem.is_in(&before)
        });
        problems
    }

    /// Fails if a server that the files rename would escape a restriction.
    pub(super) fn check_lost_restrictions(&self) -> Result<(), ChangeError> {
        let Ok((config, _)) = self.manager.layers.build_config() else {
            // Applying the layers reports why they are invalid.
            return Ok(());
        };
        let before = self.snapshot.load().config.known_servers();
        let lost = config.find_lost_restrictions(&before);
        if lost.is_empty() {
            return Ok(());
        }
        let messages = lost.iter().map(ToString::to_string);
        Err(ChangeError::Invalid(messages.collect()))
    }
}
