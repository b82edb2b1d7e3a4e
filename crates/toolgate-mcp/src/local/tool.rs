//! One in-process tool: its definition and the function that runs it.

use std::fmt;
use std::future::Future;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_core::catalog::ToolHints;

use super::context::ToolContext;
use super::output::{IntoToolOutput, LocalToolOutput, ToolError};
use super::schema::input_schema;

type ToolOutcome = Result<LocalToolOutput, ToolError>;
type Run = dyn Fn(ToolContext, Box<RawValue>) -> BoxFuture<'static, ToolOutcome> + Send + Sync;

/// A tool of the embedding program.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use toolgate_mcp::local::{Json, LocalTool, ToolContext, ToolHints};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     b: i64,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Sum {
///     sum: i64,
/// }
///
/// let tool = LocalTool::new("add", |_: ToolContext, Add { a, b }: Add| async move {
///     let sum = a.checked_add(b).ok_or("the sum is too large")?;
///     Ok(Json(Sum { sum }))
/// })
/// .title("Add")
/// .description("Adds two numbers")
/// .annotations(ToolHints { read_only: Some(true), ..ToolHints::default() });
/// assert_eq!(tool.name(), "add");
/// ```
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalTool {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations>,
    #[serde(skip)]
    run: Box<Run>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_world_hint: Option<bool>,
}

impl LocalTool {
    /// Creates a tool with typed arguments, whose type gives the input schema. If the tool returns
    /// [`Json`](super::Json), the type of its content gives the output schema.
    pub fn new<A, O, F, R>(name: &str, run: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: IntoToolOutput,
        F: Fn(ToolContext, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let run = move |context, arguments: Box<RawValue>| -> BoxFuture<'static, ToolOutcome> {
            match parse_arguments(&arguments) {
                Ok(arguments) => {
                    let output = run(context, arguments);
                    Box::pin(async move { output.await?.into_tool_output() })
                }
                Err(error) => Box::pin(std::future::ready(Err(error))),
            }
        };
        Self {
            output_schema: O::output_schema(),
            ..Self::from_parts(name, input_schema::<A>(), Box::new(run))
        }
    }

    /// Creates a tool that receives its arguments as the bytes that the caller sent.
    pub fn raw<O, F, R>(name: &str, input_schema: Value, run: F) -> Self
    where
        O: IntoToolOutput,
        F: Fn(ToolContext, Box<RawValue>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let run = move |context, arguments| -> BoxFuture<'static, ToolOutcome> {
            let output = run(context, arguments);
            Box::pin(async move { output.await?.into_tool_output() })
        };
        Self {
            output_schema: O::output_schema(),
            ..Self::from_parts(name, input_schema, Box::new(run))
        }
    }

    fn from_parts(name: &str, input_schema: Value, run: Box<Run>) -> Self {
        Self {
            name: name.to_owned(),
            title: None,
            description: None,
            input_schema,
            output_schema: None,
            annotations: None,
            run,
        }
    }

    /// Sets the description, which tells models what the tool does.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }

    /// Sets the name that people see.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        self.title = Some(title.to_owned());
        self
    }

    /// Sets the annotations about the tool's effects, which rules can match.
    #[must_use]
    pub fn annotations(mut self, hints: ToolHints) -> Self {
        self.annotations = Some(Annotations {
            read_only_hint: hints.read_only,
            destructive_hint: hints.destructive,
            idempotent_hint: hints.idempotent,
            open_world_hint: hints.open_world,
        });
        self
    }

    /// Sets the schema of the structured content that every result has.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn run(
        &self,
        context: ToolContext,
        arguments: Box<RawValue>,
    ) -> BoxFuture<'static, ToolOutcome> {
        (self.run)(context, arguments)
    }
}

impl fmt::Debug for LocalTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn parse_arguments<A: DeserializeOwned>(arguments: &RawValue) -> Result<A, ToolError> {
    // Through `Value`, because serde cannot buffer numbers of arbitrary precision from text, as it
    // must for flattened structs and tagged enums.
    let value = match serde_json::from_str(arguments.get())? {
        Value::Null => Value::Object(serde_json::Map::new()), // the caller sent none
        value => value,
    };
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, cause) = (error.path().to_string(), error.inner());
        ToolError::new(match path.as_str() {
            "." => format!("invalid arguments: {cause}"),
            path => format!("invalid argument `{path}`: {cause}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;
    use toolgate_core::caller::Caller;

    use super::super::{Json, NoArguments};
    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Shape {
        Circle { radius: f64 },
    }

    #[derive(Deserialize, JsonSchema)]
    struct Draw {
        /// Where to draw.
        at: Point,
        #[serde(flatten)]
        shape: Shape,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Point {
        x: i32,
    }

    fn draw() -> LocalTool {
        LocalTool::new("draw", |_, Draw { at, shape }: Draw| async move {
            let Shape::Circle { radius } = shape;
            if radius < 0.0 {
                return Err("the radius is negative".into());
            }
            Ok(Json(Point { x: at.x + 1 }))
        })
    }

    async fn run(tool: &LocalTool, arguments: &Value) -> Value {
        let arguments = RawValue::from_string(arguments.to_string()).unwrap();
        let context = ToolContext::new(Caller::library(), "r");
        let result = match tool.run(context, arguments).await {
            Ok(output) => output.into_result(),
            Err(error) => error.into_result(),
        };
        serde_json::from_str(result.unwrap().get()).unwrap()
    }

    #[test]
    fn schemas_come_from_types() {
        let definition = serde_json::to_value(draw().title("Draw")).unwrap();
        assert_eq!(definition["title"], "Draw");
        let input = &definition["inputSchema"];
        assert_eq!(input["type"], "object");
        assert_eq!(input["properties"]["at"]["description"], "Where to draw.");
        assert_eq!(
            input["properties"]["at"]["properties"]["x"]["type"],
            "integer"
        );
        assert_eq!(input.get("$schema"), None);
        assert_eq!(definition["outputSchema"]["required"], json!(["x"]));
        let nothing = LocalTool::new("nothing", |_, NoArguments {}| async { Ok("done") });
        let definition = serde_json::to_value(nothing).unwrap();
        assert_eq!(definition["inputSchema"], json!({"type": "object"}));
        assert_eq!(definition.get("outputSchema"), None);
    }

    #[tokio::test]
    async fn typed_arguments_are_parsed_and_errors_name_the_field() {
        let tool = draw();
        let at =
            |x: Value, radius: Value| json!({"at": {"x": x}, "kind": "circle", "radius": radius});
        let drawn = run(&tool, &at(json!(1), json!(2.5))).await;
        assert_eq!(drawn["structuredContent"], json!({"x": 2}));
        for (arguments, expected) in [
            (
                at(json!("left"), json!(1)),
                "invalid argument `at.x`: invalid type: string \"left\", expected i32",
            ),
            (
                json!({"kind": "circle", "radius": 1}),
                "invalid arguments: missing field `at`",
            ),
            (at(json!(1), json!(-1)), "the radius is negative"),
        ] {
            let result = run(&tool, &arguments).await;
            assert_eq!(result["isError"], true);
            assert_eq!(result["content"][0]["text"], expected);
        }
    }
}
