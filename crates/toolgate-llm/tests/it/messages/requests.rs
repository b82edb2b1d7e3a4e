//! Requests.

use toolgate_llm::Dialect::{Chat, Messages};
use toolgate_llm::WireFormat as _;
use toolgate_llm::prompt::{IgnoredFields, Prompt, ReasoningEffort};

use super::{pretty, translate};

/// A request with every feature that other dialects support.
const REQUEST: &str = r#"{"model":"claude-x","max_tokens":2000,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be kind."}],
"messages":[
{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},{"type":"image","source":{"type":"url","url":"https://x.test/a.png"},"cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"aGk="}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"höh"},"citations":{"enabled":false}}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"Let me see.","citations":null},{"type":"tool_use","id":"toolu_1","name":"look","input":{ "b": 1.50, "a": [] },"caller":{"type":"direct"}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"a cat"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},{"type":"tool_result","tool_use_id":"toolu_2","content":"no clock","is_error":true,"cache_control":{"type":"ephemeral"}},{"type":"text","text":"And?"}]},
{"role":"user","content":"Well?"}],
"tools":[{"name":"look","description":"Looks.","input_schema":{"type":"object","properties":{"b":{"type":"number"}}},"strict":true,"cache_control":{"type":"ephemeral"}},{"type":"custom","name":"now","input_schema":{"type":"object"},"eager_input_streaming":true}],
"tool_choice":{"type":"any","disable_parallel_tool_use":true},"stop_sequences":["END"],"temperature":0.50,"top_p":0.9,
"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}},"effort":"low"},
"metadata":{"user_id":"u1"},"service_tier":"auto","stream":true}"#;

#[test]
fn request_is_decoded_and_translated_to_chat() {
    let prompt = Messages
        .decode_request(REQUEST, &IgnoredFields::default())
        .unwrap();
    insta::assert_debug_snapshot!("request", prompt);
    insta::assert_snapshot!(
        "request_to_chat",
        pretty(&translate(Messages, Chat, REQUEST).unwrap())
    );
}

#[test]
fn chat_request_is_translated() {
    let request = r#"{"model":"claude-x","messages":[
{"role":"system","content":"Be brief."},
{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"text","text":" "},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"high"}},{"type":"image_url","image_url":{"url":"https://x.test/a.png"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,aGk="}},{"type":"file","file":{"filename":"a.md","file_data":"data:text/markdown;base64,aMO2aA=="}}]},
{"role":"developer","content":"Be kind."},
{"role":"assistant","reasoning_content":"hm","content":"","refusal":null,"tool_calls":[{"id":"functions.look:0","type":"function","function":{"name":"look","arguments":"{\"b\": 1.50}"}},{"id":"c2","type":"function","function":{"name":"now","arguments":""}}]},
{"role":"tool","tool_call_id":"functions.look:0","content":"a cat"},
{"role":"user","content":"Hurry."},
{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"ten"},{"type":"text","text":"past"}]},
{"role":"assistant","content":"A cat."},
{"role":"assistant","refusal":"No more."},
{"role":"user","content":"Why?"}],
"tools":[{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"properties":{"b":{"type":"number"}}},"strict":false}},{"type":"function","function":{"name":"now"}}],
"tool_choice":{"type":"function","function":{"name":"look"}},"parallel_tool_calls":false,"max_completion_tokens":500,"stop":"END","temperature":0.50,"top_p":0.9,"presence_penalty":0,
"response_format":{"type":"json_schema","json_schema":{"name":"cat","description":"A cat.","schema":{"type":"object"},"strict":true}},
"user":"u1","stream":true}"#;
    insta::assert_snapshot!(
        "request_from_chat",
        pretty(&translate(Chat, Messages, request).unwrap())
    );
}

/// Translates a chat request with extra members and strips the members common to all requests.
fn from_chat(members: &str) -> Result<String, String> {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],{members}}}"#);
    let written = translate(Chat, Messages, &body)?;
    let common = r#","messages":[{"role":"user","content":"x"}]"#;
    assert!(written.contains(common), "{written}");
    Ok(written.replace(r#"{"model":"m","#, "").replace(common, ""))
}

#[test]
fn settings_are_translated() {
    const TOOL: &str = r#""tools":[{"type":"function","function":{"name":"t"}}]"#;
    const WRITTEN: &str = r#""tools":[{"name":"t","input_schema":{"type":"object"}}]"#;
    for (members, expected) in [
        (r#""n":1"#, r#""max_tokens":4096}"#),
        (r#""max_tokens":7"#, r#""max_tokens":7}"#),
        (r#""tool_choice":"auto""#, r#""max_tokens":4096}"#),
        (
            r#""reasoning_effort":"low""#,
            r#""max_tokens":5120,"thinking":{"type":"enabled","budget_tokens":1024}}"#,
        ),
        (
            r#""reasoning_effort":"high","max_tokens":8000,"temperature":1.0,"top_p":0.95"#,
            r#""max_tokens":8000,"top_p":0.95,"thinking":{"type":"enabled","budget_tokens":4000}}"#,
        ),
        (
            r#""reasoning_effort":"high","max_tokens":1025"#,
            r#""max_tokens":1025,"thinking":{"type":"enabled","budget_tokens":1024}}"#,
        ),
        (
            r#""reasoning_effort":"none","temperature":1,"top_k":3"#,
            r#""max_tokens":4096,"temperature":1,"top_k":3,"thinking":{"type":"disabled"}}"#,
        ),
    ] {
        assert_eq!(from_chat(members).as_deref(), Ok(expected), "{members}");
    }
    for (members, expected) in [
        (r#""tool_choice":"auto""#, r#"{"type":"auto"}"#),
        (r#""tool_choice":"none""#, r#"{"type":"none"}"#),
        (
            r#""tool_choice":"none","parallel_tool_calls":false"#,
            r#"{"type":"none"}"#,
        ),
        (r#""tool_choice":"required""#, r#"{"type":"any"}"#),
        (
            r#""tool_choice":"required","parallel_tool_calls":true"#,
            r#"{"type":"any","disable_parallel_tool_use":false}"#,
        ),
        (
            r#""parallel_tool_calls":false"#,
            r#"{"type":"auto","disable_parallel_tool_use":true}"#,
        ),
        (
            r#""tool_choice":{"type":"function","function":{"name":"t"}}"#,
            r#"{"type":"tool","name":"t"}"#,
        ),
    ] {
        let written = from_chat(&format!("{TOOL},{members}")).unwrap();
        let expected = format!(r#""max_tokens":4096,{WRITTEN},"tool_choice":{expected}}}"#);
        assert_eq!(written, expected, "{members}");
    }
}

#[test]
fn request_after_tool_results_disables_thinking() {
    let request = r#"{"model":"m","reasoning_effort":"high","temperature":0,"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"t","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"y"}]}"#;
    let written = translate(Chat, Messages, request).unwrap();
    assert!(!written.contains("thinking"), "{written}");
    assert!(written.contains(r#""temperature":0"#), "{written}");
}

#[test]
fn thinking_is_decoded_as_effort() {
    let read = |members: &str| -> Prompt {
        let body = format!(r#"{{"model":"m","messages":[],{members}}}"#);
        Messages
            .decode_request(&body, &IgnoredFields::default())
            .unwrap()
    };
    let level = |level: &str| Some(ReasoningEffort::Level(level.to_owned()));
    for (members, effort) in [
        (
            r#""thinking":{"type":"enabled","budget_tokens":2000,"display":"omitted"}"#,
            Some(ReasoningEffort::Tokens(2000)),
        ),
        (
            r#""thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"max"}"#,
            level("max"),
        ),
        (r#""thinking":{"type":"adaptive"}"#, None),
        (
            r#""thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"low"}"#,
            level("low"),
        ),
        (r#""output_config":{"effort":"medium"}"#, level("medium")),
        (
            r#""thinking":{"type":"disabled"}"#,
            Some(ReasoningEffort::Off),
        ),
        (r#""thinking":null,"output_config":{}"#, None),
    ] {
        assert_eq!(read(members).effort, effort, "{members}");
    }
    let body = r#"{"model":"m","messages":[],"thinking":{"type":"adaptive"}}"#;
    let ignoring = IgnoredFields(vec!["thinking".to_owned()]);
    assert_eq!(
        Messages.decode_request(body, &ignoring).unwrap().effort,
        None
    );
}

/// Returns the field that is rejected.
fn rejected_field(members: &str) -> String {
    let body = format!(r#"{{"model":"m",{members}}}"#);
    Messages
        .decode_request(&body, &IgnoredFields::default())
        .unwrap_err()
        .field
}

#[test]
fn unsupported_request_fields_are_named_in_error() {
    for (members, field) in [
        (r#""container":"c""#, "container"),
        (r#""mcp_servers":[{}]"#, "mcp_servers"),
        (r#""inference_geo":"eu""#, "inference_geo"),
        (
            r#""context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}]}"#,
            "context_management.edits[1]",
        ),
        (
            r#""thread":{"type":"continue","previous_message_id":"msg_1"}"#,
            "thread.previous_message_id",
        ),
        (r#""thread":{"type":"fork"}"#, "thread.type"),
        (r#""metadata":{"a":"b"}"#, "metadata.a"),
        (r#""thinking":{"type":"enabled"}"#, "thinking.budget_tokens"),
        (r#""thinking":{"type":"between_tools"}"#, "thinking.type"),
        (
            r#""thinking":{"type":"disabled"},"output_config":{"effort":"low"}"#,
            "output_config.effort",
        ),
        (
            r#""output_config":{"format":{"type":"grammar"}}"#,
            "output_config.format.type",
        ),
        (
            r#""output_config":{"task_budget":{}}"#,
            "output_config.task_budget",
        ),
        (r#""tool_choice":{"type":"some"}"#, "tool_choice.type"),
        (
            r#""tools":[{"type":"custom","name":"x"},{"type":"web_search_20250305","name":"web_search"}]"#,
            "tools[1].type",
        ),
        (
            r#""tools":[{"type":"bash_20250124","name":"bash"}]"#,
            "tools[0].type",
        ),
    ] {
        assert_eq!(
            rejected_field(&format!(r#""messages":[],{members}"#)),
            field
        );
    }
    let ignoring = IgnoredFields(vec![
        "container".to_owned(),
        "context_management".to_owned(),
    ]);
    let body = r#"{"model":"m","messages":[],"container":"c","context_management":{}}"#;
    Messages.decode_request(body, &ignoring).unwrap();
}

#[test]
fn fields_without_effect_elsewhere_are_accepted() {
    let body = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}],"thread":{"type":"create"},
        "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}"#;
    let written = translate(Messages, Chat, body).unwrap();
    assert!(
        !written.contains("thread") && !written.contains("context"),
        "{written}"
    );
}

#[test]
fn json_mode_becomes_an_instruction_and_allowed_tools_a_selection() {
    let request = r#"{"model":"m","response_format":{"type":"json_object"},"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"x"}],
        "tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}],
        "tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"b"}}]}}}"#;
    let written = translate(Chat, Messages, request).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["system"][0]["text"], "Be kind.");
    let instruction = written["system"][1]["text"].as_str().unwrap();
    assert!(instruction.contains("JSON object"), "{instruction}");
    assert!(written.get("output_config").is_none(), "{written}");
    assert_eq!(written["tools"].as_array().unwrap().len(), 1);
    assert_eq!(written["tools"][0]["name"], "b");
    assert_eq!(written["tool_choice"]["type"], "any");
}

#[test]
fn unsupported_blocks_are_named_in_error() {
    for (messages, field) in [
        ("{}", "messages"),
        ("null", "messages"),
        (r#"[{"role":"tool","content":"x"}]"#, "messages[0].role"),
        (r#"[{"role":"user","content":7}]"#, "messages[0].content"),
    ] {
        assert_eq!(rejected_field(&format!(r#""messages":{messages}"#)), field);
    }
    for (block, field) in [
        (
            r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#,
            ".source.type",
        ),
        (
            r#"{"type":"document","source":{"type":"content","content":"x"}}"#,
            ".source.type",
        ),
        (
            r#"{"type":"document","source":{"type":"url","url":"u"},"citations":{"enabled":true}}"#,
            ".citations",
        ),
        (
            r#"{"type":"document","source":{"type":"url","url":"u"},"context":"c"}"#,
            ".context",
        ),
        (r#"{"type":"search_result"}"#, ".type"),
        (
            r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"search_result"}]}"#,
            ".content[0].type",
        ),
        (
            r#"{"type":"tool_use","id":"t","name":"n","input":"{}"}"#,
            ".input",
        ),
        (
            r#"{"type":"server_tool_use","id":"t","name":"n","input":{}}"#,
            ".type",
        ),
    ] {
        let text = r#"{"type":"text","text":"x"}"#;
        let members = format!(r#""messages":[{{"role":"user","content":[{text},{block}]}}]"#);
        let field = format!("messages[0].content[1]{field}");
        assert_eq!(rejected_field(&members), field);
    }
}

#[test]
fn chat_fields_without_equivalent_are_named_in_error() {
    for (members, field) in [
        (r#""frequency_penalty":0.1"#, "frequency_penalty"),
        (r#""presence_penalty":-1"#, "presence_penalty"),
        (r#""seed":0"#, "seed"),
        (r#""temperature":1.5"#, "temperature"),
        (r#""stop":["a","\n"]"#, "stop"),
        (r#""verbosity":"low""#, "verbosity"),
        (r#""metadata":{"a":"b"}"#, "metadata"),
        (
            r#""reasoning_effort":"low","temperature":0.5"#,
            "temperature",
        ),
        (r#""reasoning_effort":"low","top_p":0.5"#, "top_p"),
        (r#""reasoning_effort":"low","top_k":5"#, "top_k"),
        (
            r#""reasoning_effort":"low","max_tokens":1024"#,
            "max_tokens",
        ),
        (
            r#""reasoning_effort":"low","tool_choice":"required""#,
            "tool_choice",
        ),
    ] {
        assert_eq!(from_chat(members), Err(field.to_owned()), "{members}");
    }
    for message in [
        r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}"#,
        r#"{"role":"user","content":[{"type":"file","file":{"file_data":"data:image/tiff;base64,aGk="}}]}"#,
        r#"{"role":"user","content":[{"type":"file","file":{"file_data":"data:text/plain;base64,/w=="}}]}"#,
        r#"{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://x.test"}}]}"#,
    ] {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"assistant","content":"x"}},{message}]}}"#
        );
        let field = translate(Chat, Messages, &body);
        assert_eq!(field, Err("messages[1]".to_owned()), "{message}");
    }
}
