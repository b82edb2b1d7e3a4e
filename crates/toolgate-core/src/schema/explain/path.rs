//! Location of a value in the arguments: `options.path`, `items[3]`.

use super::super::message_text;
use super::Problem;
use crate::nearest::find_nearest;

const MAX_PATH_CHARS: usize = 200;

#[derive(Clone, Copy)]
enum PathSegment<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// Path to a value in the arguments, linked to its parent.
pub(in crate::schema) struct ArgumentPath<'a> {
    parent: Option<&'a Self>,
    segment: PathSegment<'a>,
    pub(super) depth: usize,
    /// Whether a name on the path looks like that of a secret.
    pub(super) is_secret: bool,
}

impl<'a> ArgumentPath<'a> {
    pub(in crate::schema) const ROOT: ArgumentPath<'static> = ArgumentPath {
        parent: None,
        segment: PathSegment::Root,
        depth: 0,
        is_secret: false,
    };

    pub(in crate::schema) fn key(&'a self, key: &'a str) -> Self {
        Self {
            is_secret: self.is_secret || message_text::looks_secret(key),
            ..self.below(PathSegment::Key(key))
        }
    }

    pub(in crate::schema) fn index(&'a self, index: usize) -> Self {
        self.below(PathSegment::Index(index))
    }

    fn below(&'a self, segment: PathSegment<'a>) -> Self {
        Self {
            parent: Some(self),
            segment,
            depth: self.depth + 1,
            is_secret: self.is_secret,
        }
    }

    /// Text that names the location in a message.
    pub(super) fn to_text(&self) -> String {
        match self.segment {
            PathSegment::Root => "the object".to_owned(),
            _ => format!("`{}`", self.to_dotted()),
        }
    }

    pub(in crate::schema) fn to_dotted(&self) -> String {
        let mut segments = Vec::new();
        let mut current = self;
        while let Some(parent) = current.parent {
            segments.push(current.segment);
            current = parent;
        }
        let mut path = String::new();
        for segment in segments.into_iter().rev() {
            match segment {
                PathSegment::Root => {}
                PathSegment::Index(index) => path.push_str(&format!("[{index}]")),
                PathSegment::Key(key) if !is_plain(key) => {
                    path.push_str(&format!("[\"{}\"]", message_text::escape_name(key)));
                }
                PathSegment::Key(key) if path.is_empty() => {
                    path.push_str(&message_text::escape_name(key))
                }
                PathSegment::Key(key) => {
                    path.push_str(&format!(".{}", message_text::escape_name(key)))
                }
            }
        }
        message_text::escape_line(&path, MAX_PATH_CHARS)
    }

    pub(super) fn problem(&self, text: String) -> Problem {
        Problem {
            text,
            depth: self.depth,
            is_wrong_type: false,
        }
    }

    pub(super) fn missing_message(&self, key: &str) -> String {
        format!("{} is missing", self.key(key).to_text())
    }

    /// Message for an unknown name, with the most similar known one as a suggestion.
    pub(super) fn unknown_message(&self, key: &str, known: &[&str]) -> String {
        let path = self.key(key);
        match find_nearest(key, known.iter().copied()) {
            Some(suggestion) => format!(
                "unknown argument {}, did you mean `{}`?",
                path.to_text(),
                message_text::escape_name(suggestion)
            ),
            None => format!("unknown argument {}", path.to_text()),
        }
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && !key.contains(['.', '[', ']', '"', ' '])
}
