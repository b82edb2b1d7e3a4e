//! A parsed configuration file with the line and column of each value.

use std::collections::HashMap;
use std::fmt;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

/// Syntax of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// JSON; comments and trailing commas are accepted.
    Json,
    Toml,
}

/// A parsed file. `value` is an empty object if the text is not well-formed.
#[derive(Clone, Debug)]
pub struct Document {
    pub name: String,
    pub value: Value,
    pub(super) syntax_error: Option<(ConfigLocation, String)>,
    /// Byte offset of the value (or of its key, in an object) at each JSON pointer.
    offsets: HashMap<String, usize>,
    text: String,
    /// Byte offset of each line's start.
    lines: Vec<usize>,
    /// JSON pointer of `value` in the text; not empty for an overlay.
    root: String,
    is_project: bool,
}

/// Location of a value in a configuration file, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLocation {
    pub file: String,
    /// Line and column, starting at 1.
    pub position: Option<(usize, usize)>,
    /// Dotted key, such as `mcp.client_configs[0].name`.
    pub key: String,
}

impl Document {
    pub fn parse(name: &str, format: ConfigFormat, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut document = Self {
            name: name.to_owned(),
            value: Value::Object(Map::new()),
            syntax_error: None,
            offsets: HashMap::new(),
            text: text.to_owned(),
            lines: std::iter::once(0)
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
            root: String::new(),
            is_project: false,
        };
        let parsed = match format {
            ConfigFormat::Json => document.parse_json(text),
            ConfigFormat::Toml => document.parse_toml(text),
        };
        match parsed {
            Ok(value) => document.value = value,
            Err((offset, message)) => {
                let location = ConfigLocation {
                    file: name.to_owned(),
                    position: offset.map(|offset| document.position(offset)),
                    key: String::new(),
                };
                document.syntax_error = Some((location, message));
            }
        }
        document
    }

    /// Creates a document without a file, such as for settings made through the API.
    pub fn from_value(name: &str, value: Value) -> Self {
        Self {
            name: name.to_owned(),
            value,
            syntax_error: None,
            offsets: HashMap::new(),
            text: String::new(),
            lines: Vec::new(),
            root: String::new(),
            is_project: false,
        }
    }

    /// Marks the document as the file of a project, which may use only the environment variables that
    /// the user's own file allows.
    pub fn into_project(self) -> Self {
        Self {
            is_project: true,
            ..self
        }
    }

    pub fn is_project(&self) -> bool {
        self.is_project
    }

    /// Removes a top-level key.
    pub fn remove_key(&mut self, key: &str) {
        if let Some(fields) = self.value.as_object_mut() {
            fields.shift_remove(key);
        }
    }

    /// Returns the overlay for one environment as a separate document.
    pub(super) fn overlay(&self, environment: &str) -> Option<Self> {
        let value = self.value["environments"].get(environment)?.clone();
        Some(Self {
            value,
            root: format!("/environments/{}", escape_step(environment)),
            ..self.clone()
        })
    }

    /// Source text of the document.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Location of a JSON pointer, or of its nearest known ancestor.
    pub fn location(&self, pointer: &str) -> ConfigLocation {
        let pointer = &format!("{}{pointer}", self.root);
        let mut known = pointer.as_str();
        while !self.offsets.contains_key(known) {
            match known.rfind('/') {
                Some(cut) => known = &known[..cut],
                None => break,
            }
        }
        ConfigLocation {
            file: self.name.clone(),
            position: self
                .offsets
                .get(known)
                .filter(|_| !known.is_empty())
                .map(|&offset| self.position(offset)),
            key: dotted_key(pointer),
        }
    }

    /// Whether the text has a syntax error.
    pub fn has_syntax_error(&self) -> bool {
        self.syntax_error.is_some()
    }

    /// Converts a byte offset to line and column, starting at 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        // `lines` starts with 0 and offsets come from the parser, so both lookups succeed.
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    fn parse_json(&mut self, text: &str) -> Result<Value, (Option<usize>, String)> {
        let options = jsonc_parser::ParseOptions::default();
        let parsed =
            jsonc_parser::parse_to_ast(text, &jsonc_parser::CollectOptions::default(), &options)
                .map_err(|error| (Some(error.range().start), error.kind().to_string()))?;
        match parsed.value {
            Some(value) => self.read_json(&value, &mut String::new()),
            None => Ok(Value::Object(Map::new())),
        }
    }

    fn read_json(
        &mut self,
        value: &ast::Value<'_>,
        pointer: &mut String,
    ) -> Result<Value, (Option<usize>, String)> {
        self.offsets
            .entry(pointer.clone())
            .or_insert(value.range().start);
        Ok(match value {
            ast::Value::StringLit(text) => Value::String(text.value.to_string()),
            ast::Value::NumberLit(number) => {
                Value::Number(number.value.parse::<Number>().map_err(|_| {
                    (
                        Some(number.range.start),
                        format!("`{}` is not a number", number.value),
                    )
                })?)
            }
            ast::Value::BooleanLit(boolean) => Value::Bool(boolean.value),
            ast::Value::NullKeyword(_) => Value::Null,
            ast::Value::Array(array) => {
                let items = array.elements.iter().enumerate();
                let items: Result<_, _> = items
                    .map(|(i, item)| {
                        self.read_step(pointer, &i.to_string(), item.range().start, |this, p| {
                            this.read_json(item, p)
                        })
                    })
                    .collect();
                Value::Array(items?)
            }
            ast::Value::Object(object) => {
                let mut map = Map::new();
                for property in &object.properties {
                    let name = property.name.as_str().to_owned();
                    let start = property.range.start;
                    let value = self.read_step(pointer, &name, start, |this, p| {
                        this.read_json(&property.value, p)
                    })?;
                    if map.insert(name.clone(), value).is_some() {
                        return Err((Some(start), format!("duplicate key `{name}`")));
                    }
                }
                Value::Object(map)
            }
        })
    }

    fn parse_toml(&mut self, text: &str) -> Result<Value, (Option<usize>, String)> {
        let table = DeTable::parse(text).map_err(|error| {
            (
                error.span().map(|span| span.start),
                error.message().to_owned(),
            )
        })?;
        self.read_table(table.get_ref(), &mut String::new())
    }

    fn read_table(
        &mut self,
        table: &DeTable<'_>,
        pointer: &mut String,
    ) -> Result<Value, (Option<usize>, String)> {
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let mut map = Map::new();
        for (key, value) in keys {
            let start = key.span().start;
            let value = self.read_step(pointer, key.get_ref(), start, |this, p| {
                this.read_toml(value.get_ref(), value.span().start, p)
            })?;
            map.insert(key.get_ref().to_string(), value);
        }
        Ok(Value::Object(map))
    }

    fn read_toml(
        &mut self,
        value: &DeValue<'_>,
        start: usize,
        pointer: &mut String,
    ) -> Result<Value, (Option<usize>, String)> {
        let not_a_number = |text: &str| (Some(start), format!("`{text}` is not a number"));
        Ok(match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(boolean) => Value::Bool(*boolean),
            DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                Value::from(parsed.map_err(|_| not_a_number(integer.as_str()))?)
            }
            DeValue::Float(float) => {
                let parsed = float
                    .as_str()
                    .parse::<f64>()
                    .ok()
                    .and_then(Number::from_f64);
                Value::Number(parsed.ok_or_else(|| not_a_number(float.as_str()))?)
            }
            DeValue::Array(array) => {
                let items = array.iter().enumerate();
                let items: Result<_, _> = items
                    .map(|(i, item)| {
                        let start = item.span().start;
                        self.read_step(pointer, &i.to_string(), start, |this, p| {
                            this.read_toml(item.get_ref(), start, p)
                        })
                    })
                    .collect();
                Value::Array(items?)
            }
            DeValue::Table(table) => self.read_table(table, pointer)?,
        })
    }

    /// Runs `read` one step deeper and records the offset of that step.
    fn read_step<T>(
        &mut self,
        pointer: &mut String,
        step: &str,
        start: usize,
        read: impl FnOnce(&mut Self, &mut String) -> T,
    ) -> T {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&escape_step(step));
        self.offsets.insert(pointer.clone(), start);
        let value = read(self, pointer);
        pointer.truncate(length);
        value
    }
}

/// Escapes one step of a JSON pointer.
pub(super) fn escape_step(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn dotted_key(pointer: &str) -> String {
    let mut out = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if step.parse::<usize>().is_ok() {
            out.push_str(&format!("[{step}]"));
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&step);
        }
    }
    out
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        Ok(())
    }
}
