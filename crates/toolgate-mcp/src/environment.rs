//! The gateway's environment variables, as far as anything here may look at them.

use std::fmt;
use std::sync::Arc;

/// A look-up of variables; reading the real environment is left to the program.
#[derive(Clone)]
pub struct Environment(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What every child gets; everything else must be named in its config.
pub const MINIMAL: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

impl Environment {
    pub fn new(look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
