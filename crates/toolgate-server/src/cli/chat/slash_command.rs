//! Commands of a conversation, such as `/model`.

use serde_json::Value;

use super::super::names::suggest;
use super::super::output::{Table, print_line};
use super::Conversation;

/// Names of all commands, and what they do.
const COMMANDS: [[&str; 2]; 8] = [
    ["/help", "show this list"],
    [
        "/model [NAME]",
        "show the model, or use another one from now on",
    ],
    ["/models [TEXT]", "list the models"],
    ["/tools [TEXT]", "list the tools"],
    ["/new", "start a new conversation"],
    ["/run", "show the id, state and calls of the last run"],
    [
        "/result [N]",
        "show the last result in full, or the one N calls before it",
    ],
    ["/quit", "quit, as Ctrl-D does"],
];

/// What happens after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterCommand {
    Continue,
    Quit,
}

impl Conversation {
    /// Runs a command.
    pub(super) async fn run_command(&mut self, line: &str) -> anyhow::Result<AfterCommand> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        match name {
            "/help" | "/?" => print_help()?,
            "/model" if argument.is_empty() => print_line(&self.model)?,
            "/model" => self.set_model(argument).await?,
            "/models" => {
                for model in self.list_models().await? {
                    if model.contains(argument) {
                        print_line(&model)?;
                    }
                }
            }
            "/tools" => self.print_tools(argument).await?,
            "/new" => {
                self.reset();
                print_line("new conversation")?;
            }
            "/run" => self.print_run().await?,
            "/result" => self.print_result(argument).await?,
            "/quit" | "/exit" => return Ok(AfterCommand::Quit),
            unknown => {
                let names = COMMANDS.iter().map(|[usage, _]| command_name(usage));
                let hint = suggest(unknown, names, "/help");
                anyhow::bail!("there is no command `{unknown}`; {hint}");
            }
        }
        Ok(AfterCommand::Continue)
    }

    async fn set_model(&mut self, name: &str) -> anyhow::Result<()> {
        let models = self.list_models().await?;
        // Providers may have models that they do not list.
        if !models.iter().any(|model| model == name) && !name.contains('/') {
            let hint = suggest(name, models.iter().map(String::as_str), "/models");
            anyhow::bail!("there is no model `{name}`; {hint}");
        }
        name.clone_into(&mut self.model);
        print_line(&format!("using {name} from now on"))
    }

    async fn list_models(&self) -> anyhow::Result<Vec<String>> {
        let list: Value = self.remote.get("v1/models", &[]).await?;
        let models = list["data"].as_array().into_iter().flatten();
        let names = models.filter_map(|model| model["id"].as_str().map(str::to_owned));
        Ok(names.collect())
    }

    async fn print_tools(&self, text: &str) -> anyhow::Result<()> {
        let mut table = Table::new(["NAME", "DESCRIPTION"]);
        for tool in self.remote.list_tools().await? {
            if tool.alias.contains(text) {
                let description = tool.description.unwrap_or_default();
                table.push([tool.alias.into(), description.into()]);
            }
        }
        table.print("no tools")
    }

    async fn print_run(&self) -> anyhow::Result<()> {
        let run = self.fetch_run(self.last_run_id.as_deref()).await?;
        let text = |key: &str| run[key].as_str().unwrap_or("-");
        print_line(&format!(
            "{} is {} ({}); turns: {}",
            text("id"),
            text("state"),
            text("stop_reason"),
            steps_of_kind(&run, "turn").count()
        ))?;
        for step in closed_calls(&run) {
            let outcome = if step["is_error"] == true {
                "failed"
            } else {
                "ok"
            };
            let member = |key: &str| step[key].as_str().unwrap_or_default();
            print_line(&format!(
                "  {} {}: {outcome}, {} ms",
                member("name"),
                member("arguments"),
                step["ms"]
            ))?;
        }
        Ok(())
    }

    async fn print_result(&self, argument: &str) -> anyhow::Result<()> {
        let back: usize = match argument {
            "" => 0,
            number => number
                .parse()
                .map_err(|_| anyhow::anyhow!("`{number}` is not a number of calls"))?,
        };
        let run = self.fetch_run(self.last_calling_run_id.as_deref()).await?;
        let Some(step) = closed_calls(&run).rev().nth(back) else {
            anyhow::bail!("the last run has no such call");
        };
        let parts = step["result"].as_array().into_iter().flatten();
        for part in parts {
            let media = part["media_type"].as_str().unwrap_or_default();
            print_line(part["text"].as_str().unwrap_or(media))?;
        }
        Ok(())
    }

    async fn fetch_run(&self, run: Option<&str>) -> anyhow::Result<Value> {
        let Some(run) = run else {
            anyhow::bail!("there was no run yet: no tool has been called");
        };
        self.remote.get(&format!("api/runs/{run}"), &[]).await
    }
}

fn closed_calls(run: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    steps_of_kind(run, "call_closed")
}

fn steps_of_kind<'a>(
    run: &'a Value,
    kind: &'static str,
) -> impl DoubleEndedIterator<Item = &'a Value> {
    let steps = run["timeline"].as_array().map(Vec::as_slice);
    let steps = steps.unwrap_or_default().iter().map(|entry| &entry["step"]);
    steps.filter(move |step| step["kind"] == kind)
}

fn command_name(usage: &str) -> &str {
    usage.split(' ').next().unwrap_or(usage)
}

fn print_help() -> anyhow::Result<()> {
    for [usage, description] in COMMANDS {
        print_line(&format!("{usage:<16} {description}"))?;
    }
    print_line(
        "Ctrl-C interrupts an answer; the arrow keys edit the line and recall earlier prompts.",
    )
}
