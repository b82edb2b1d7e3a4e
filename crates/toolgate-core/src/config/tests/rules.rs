//! Permission rules about resources and prompts.

use super::*;
use crate::policy::Verdict;

fn rule(keys: &str) -> String {
    format!("[mcp_servers.hr]\ncommand = \"hr\"\n[[permissions.rules]]\n{keys}\n")
}

/// The findings about a rule, without their location.
fn findings(keys: &str) -> Vec<(Severity, String)> {
    let findings = match load(ConfigFormat::Toml, &rule(keys)) {
        Ok((_, findings)) => findings,
        Err(invalid) => invalid.0,
    };
    let of_rule = |finding: &ConfigFinding| {
        let key = &finding.location.key;
        assert!(key.starts_with("permissions.rules[0]"), "{finding:?}");
        (finding.severity, finding.message.clone())
    };
    findings.iter().map(of_rule).collect()
}

#[test]
fn rules_about_resources_and_prompts_load() {
    for keys in [
        "resource = \"hr:file:///salaries/*\"\naction = \"deny\"",
        "resource = \"hr:*\"\naction = \"allow\"",
        "resource = \"*:file:///etc/*\"\naction = \"deny\"",
        "resource = \"h?:x\"\naction = \"manual\"",
        "prompt = \"hr.summarize\"\naction = \"ask\"\napproval_by = [\"admin\"]",
        "prompt = \"hr.a.b\"\naction = \"ask\"\nenvironment = \"production\"",
        "prompt = \"*.*\"\naction = \"deny\"",
    ] {
        assert_eq!(findings(keys), [], "{keys}");
    }
    let resource = "resource = \"hr:x\"\naction = \"deny\"";
    let (config, _) = load(ConfigFormat::Toml, &rule(resource)).unwrap();
    let spec = &config.permissions.rules[0];
    assert_eq!(spec.resource.as_deref(), Some("hr:x"));
    assert_eq!((&spec.tool, &spec.prompt), (&None, &None));
    assert_eq!(spec.verdict, Verdict::Deny);
}

#[test]
fn mistakes_in_rules_about_resources_and_prompts_are_reported() {
    use Severity::{Error, UnknownName};
    let malformed_resource =
        "write `resource` as `SERVER:URI`, for example `hr:file:///salaries/*`";
    let malformed_prompt = "write `prompt` as `SERVER.NAME`, for example `hr.summarize`";
    let several = "a rule is about tools (`tool`, `server`), resources (`resource`) or prompts (`prompt`); write a rule for each";
    let only_tools = "`arguments` and `hint` apply to tools only; remove them from this rule";
    let unknown_server = |server: &str| {
        format!(
            "no configured server matches `{server}` (names are case-sensitive), so this rule never matches"
        )
    };
    let (unknown, other_case) = (unknown_server("payroll"), unknown_server("HR"));
    for (keys, severity, message) in [
        ("resource = \"hr\"", Error, malformed_resource),
        ("resource = \"hr:\"", Error, malformed_resource),
        ("resource = \":file:///x\"", Error, malformed_resource),
        ("resource = \"\"", Error, malformed_resource),
        ("prompt = \"summarize\"", Error, malformed_prompt),
        ("prompt = \"hr.\"", Error, malformed_prompt),
        ("prompt = \".summarize\"", Error, malformed_prompt),
        ("prompt = \"\"", Error, malformed_prompt),
        ("resource = \"hr:x\"\nprompt = \"hr.x\"", Error, several),
        ("resource = \"hr:x\"\ntool = \"hr.x\"", Error, several),
        ("prompt = \"hr.x\"\nserver = \"hr\"", Error, several),
        (
            "tool = \"hr.x\"\nresource = \"hr:x\"\nprompt = \"hr.x\"",
            Error,
            several,
        ),
        (
            "resource = \"hr:x\"\narguments = { path = \"/etc/*\" }",
            Error,
            only_tools,
        ),
        (
            "prompt = \"hr.x\"\nhint = \"destructive\"",
            Error,
            only_tools,
        ),
        ("resource = \"payroll:x\"", UnknownName, &unknown),
        ("prompt = \"payroll.x\"", UnknownName, &unknown),
        ("resource = \"HR:x\"", UnknownName, &other_case),
        ("prompt = \"HR.x\"", UnknownName, &other_case),
        (
            "resource = \"hr:x\"\npattern = \"x\"",
            Error,
            "`pattern` does not apply to MCP tools; name the argument, as in `arguments = { path = \"/tmp/*\" }`",
        ),
        (
            "resource = \"hr:x\"\napproval_by = [\"admin\"]",
            Error,
            "only a rule with `action = \"ask\"` can say who approves; remove `approval_by` or change `action`",
        ),
        (
            "prompt = \"hr.x\"\nroles = []",
            Error,
            "an empty list matches nothing, so this rule would never match; remove the key or add an entry",
        ),
        (
            "prompt = \"hr.x\"\nenvironment = []",
            Error,
            "an empty list matches nothing, so this rule would never match; remove the key or add an entry",
        ),
    ] {
        let expected = (severity, message.to_owned());
        let keys = format!("{keys}\naction = \"deny\"");
        assert_eq!(findings(&keys), [expected], "{keys}");
    }
    let no_subject = findings("action = \"deny\"");
    assert_eq!(no_subject.len(), 1);
    assert!(no_subject[0].1.starts_with("a rule needs `tool`"));
    let undefined_role = findings("prompt = \"hr.x\"\nroles = [\"boss\"]\naction = \"deny\"");
    assert_eq!(undefined_role.len(), 1, "{undefined_role:?}");
    assert!(undefined_role[0].1.contains("boss"), "{undefined_role:?}");
}
