//! Where in the arguments something is: `options.path`, `items[3]`.

use super::super::words;
use super::Complaint;

const LONGEST: usize = 200;

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// A way down into the arguments, linked upwards.
pub(super) struct Place<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
    pub(super) depth: usize,
    /// Whether a name on the way looks like that of a secret.
    pub(super) is_secret: bool,
}

impl<'a> Place<'a> {
    pub(super) const ROOT: Place<'static> = Place {
        parent: None,
        step: Step::Root,
        depth: 0,
        is_secret: false,
    };

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self {
            is_secret: self.is_secret || words::looks_secret(key),
            ..self.below(Step::Key(key))
        }
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        self.below(Step::Index(index))
    }

    fn below(&'a self, step: Step<'a>) -> Self {
        Self {
            parent: Some(self),
            step,
            depth: self.depth + 1,
            is_secret: self.is_secret,
        }
    }

    /// The place as a message names it.
    pub(super) fn shown(&self) -> String {
        match self.step {
            Step::Root => "the object".to_owned(),
            _ => format!("`{}`", self.path()),
        }
    }

    fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut place = self;
        while let Some(parent) = place.parent {
            steps.push(place.step);
            place = parent;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Step::Root => {}
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) if !is_plain(key) => {
                    path.push_str(&format!("[\"{}\"]", words::name(key)));
                }
                Step::Key(key) if path.is_empty() => path.push_str(&words::name(key)),
                Step::Key(key) => path.push_str(&format!(".{}", words::name(key))),
            }
        }
        words::line(&path, LONGEST)
    }

    pub(super) fn complaint(&self, text: String) -> Complaint {
        Complaint {
            text,
            depth: self.depth,
            is_type: false,
        }
    }

    pub(super) fn missing(&self, key: &str) -> String {
        format!("{} is missing", self.key(key).shown())
    }

    /// Says that a name is not known here, and which one may be meant.
    pub(super) fn unknown(&self, key: &str, known: &[&str]) -> String {
        let place = self.key(key);
        match words::nearest(key, known.iter().copied()) {
            Some(near) => format!(
                "unknown argument {}, did you mean `{}`?",
                place.shown(),
                words::name(near)
            ),
            None => format!("unknown argument {}", place.shown()),
        }
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && !key.contains(['.', '[', ']', '"', ' '])
}
