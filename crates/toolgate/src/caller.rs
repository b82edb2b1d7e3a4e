//! Who asks.

/// The one on whose behalf something is listed or called.
#[derive(Clone, Debug)]
pub struct Caller {
    pub origin: Origin,
}

/// The door through which a caller came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Http,
    Cli,
    Library,
}

impl Caller {
    pub fn http() -> Self {
        Self {
            origin: Origin::Http,
        }
    }

    pub fn cli() -> Self {
        Self {
            origin: Origin::Cli,
        }
    }

    pub fn library() -> Self {
        Self {
            origin: Origin::Library,
        }
    }
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Cli => "cli",
            Self::Library => "library",
        }
    }
}
