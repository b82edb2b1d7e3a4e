//! Requests with files, sent as `multipart/form-data`. One field can be replaced while every other byte
//! stays as the caller sent it, which the usual parsers, made for streams, do not support.
//!
//! Forms that parsers could read differently are rejected, so that a provider sees the same fields.

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;

/// Maximum number of parts.
const MAX_PARTS: usize = 256;
/// Maximum length of a boundary, by RFC 2046.
const MAX_BOUNDARY_BYTES: usize = 70;

/// A form with the byte ranges of its fields.
#[derive(Clone, Debug)]
pub struct Form {
    body: Bytes,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    value: Range<usize>,
}

/// Error returned when a form is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the body must be `multipart/form-data` with a boundary")]
    NotAForm,
    #[error("the form is malformed: {0}")]
    Malformed(&'static str),
    #[error("the form contains field `{0}` more than once")]
    DuplicateField(String),
}

impl Form {
    /// Returns whether a content type is that of a form.
    pub fn is_form(content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("multipart/form-data")
    }

    pub fn parse(content_type: &str, body: Bytes) -> Result<Self, FormError> {
        let boundary = boundary(content_type).ok_or(FormError::NotAForm)?;
        let delimiter = format!("\r\n--{boundary}");
        let mut fields: Vec<Field> = Vec::new();
        // The first delimiter has no line break before it.
        let mut at = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
            Some(_) => delimiter.len() - 2,
            None => return Err(FormError::Malformed("it does not start with its boundary")),
        };
        loop {
            let rest = &body[at..];
            if rest.starts_with(b"--") {
                return Ok(Self { body, fields });
            }
            if !rest.starts_with(b"\r\n") {
                return Err(FormError::Malformed(
                    "a boundary is not followed by a line break",
                ));
            }
            if fields.len() == MAX_PARTS {
                return Err(FormError::Malformed("it has too many parts"));
            }
            let end = memmem::find(rest, delimiter.as_bytes())
                .ok_or(FormError::Malformed("its last boundary is missing"))?;
            let head_end = memmem::find(&rest[..end], b"\r\n\r\n")
                .ok_or(FormError::Malformed("a part has no end of its headers"))?;
            let name = part_name(&rest[..head_end])?;
            if fields.iter().any(|field| field.name == name) && !name.ends_with("[]") {
                return Err(FormError::DuplicateField(name));
            }
            fields.push(Field {
                name,
                value: at + head_end + 4..at + end,
            });
            at += end + delimiter.len();
        }
    }

    /// Returns a field that is text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        std::str::from_utf8(&self.body[field.value.clone()]).ok()
    }

    /// Returns the body with another value of a field, which must exist.
    pub fn with_field(&self, name: &str, value: &str) -> Bytes {
        let Some(field) = self.fields.iter().find(|field| field.name == name) else {
            return self.body.clone();
        };
        let mut edited = Vec::with_capacity(self.body.len() + value.len());
        edited.extend_from_slice(&self.body[..field.value.start]);
        edited.extend_from_slice(value.as_bytes());
        edited.extend_from_slice(&self.body[field.value.end..]);
        edited.into()
    }
}

/// Returns the boundary in a content type.
fn boundary(content_type: &str) -> Option<&str> {
    let (essence, parameters) = content_type.split_once(';')?;
    if !Form::is_form(essence) {
        return None;
    }
    let mut found = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then(|| value.trim().trim_matches('"'))
    });
    let boundary = found.next()?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let is_valid = (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())
        && boundary.bytes().all(is_allowed)
        && found.next().is_none();
    is_valid.then_some(boundary)
}

/// Returns the name of a part from its headers.
fn part_name(head: &[u8]) -> Result<String, FormError> {
    let malformed = FormError::Malformed("a part has no simple `name` in `Content-Disposition`");
    let head = std::str::from_utf8(head).map_err(|_| malformed.clone())?;
    let mut dispositions = head.split("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    });
    let (Some(disposition), None) = (dispositions.next(), dispositions.next()) else {
        return Err(malformed);
    };
    let mut parameters = disposition.split(';').map(str::trim);
    if !parameters
        .next()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("form-data"))
    {
        return Err(malformed);
    }
    let mut names = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        // `name*` would be an encoded name.
        let name = name.trim().trim_end_matches('*');
        name.eq_ignore_ascii_case("name")
            .then_some((parameter, value))
    });
    match (names.next(), names.next()) {
        (Some((parameter, value)), None) if parameter.starts_with("name=") => {
            let name = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'));
            let name = name.filter(|name| !name.contains(['"', '\\', '%']));
            name.map(str::to_owned).ok_or(malformed)
        }
        _ => Err(malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=b1";

    fn parse(body: &'static str) -> Result<Form, FormError> {
        Form::parse(TYPE, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn field_is_read_and_replaced() {
        let form = parse(
            "--b1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\nContent-Type: audio/mpeg\r\n\r\n\x01\r\n--b\r\n--b1\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nopenai/whisper-1\r\n--b1--\r\n",
        )
        .unwrap();
        assert_eq!(form.get("model"), Some("openai/whisper-1"));
        assert_eq!(form.get("stream"), None);
        let edited = form.with_field("model", "w");
        let again = Form::parse(TYPE, edited.clone()).unwrap();
        assert_eq!(again.get("model"), Some("w"));
        assert_eq!(again.get("file"), Some("\x01\r\n--b"));
        assert_eq!(edited.len(), form.body.len() - "openai/whisper-1".len() + 1);
    }

    #[test]
    fn ambiguous_forms_are_rejected() {
        for body in [
            "",
            "--b1",
            "preamble\r\n--b1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nx",
            "--b1\r\nContent-Disposition: form-data; name=model\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Disposition: form-data; name=\"m%6fdel\"\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Disposition: form-data; name=\"a\"; name*=utf-8''model\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Disposition: attachment; name=\"model\"\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Type: text/plain\r\n\r\nx\r\n--b1--",
            "--b1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nx\r\n--b1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ny\r\n--b1--",
        ] {
            assert!(parse(body).is_err(), "{body:?}");
        }
        for kind in [
            "multipart/form-data",
            "multipart/mixed; boundary=b1",
            "multipart/form-data; boundary=b1; boundary=b2",
            "multipart/form-data; boundary=\"b\n1\"",
        ] {
            let body = Bytes::from_static(b"--b1--");
            assert_eq!(
                Form::parse(kind, body).unwrap_err(),
                FormError::NotAForm,
                "{kind}"
            );
        }
        assert!(parse("--b1--\r\n").unwrap().get("model").is_none());
    }
}
