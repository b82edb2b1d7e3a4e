//! Requests.

use toolgate_llm::prompt::{
    IgnoredFields, MessageRole, Prompt, PromptPart, ReasoningEffort, ResponseFormat, ToolChoice,
};
use toolgate_llm::{chat, responses};

use super::pretty;

fn read(body: &str) -> Prompt {
    responses::decode_request(body, &IgnoredFields::default()).unwrap()
}

/// A request with every feature that other dialects support.
const FULL: &str = r#"{
  "model": "gpt-x",
  "instructions": "Be brief.",
  "input": [
    {"role": "developer", "content": "Speak English."},
    {"role": "user", "content": [
      {"type": "input_text", "text": "What is this?"},
      {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
      {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
      {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}
    ]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{\"at\": 1.0}", "status": "completed"},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
    {"type": "function_call_output", "id": "fco_2", "call_id": "c2", "status": "completed", "output": [
      {"type": "input_text", "text": "a picture:"},
      {"type": "input_image", "image_url": "data:image/png;base64,CCCC"}
    ]},
    {"type": "message", "role": "user", "content": "And?"}
  ],
  "tools": [
    {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"type": "number"}}}, "strict": false},
    {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": true}
  ],
  "tool_choice": {"type": "function", "name": "look"},
  "parallel_tool_calls": false,
  "max_output_tokens": 100,
  "temperature": 0.50,
  "top_p": 1,
  "text": {"format": {"type": "json_schema", "name": "it", "schema": {"type": "object"}, "strict": true, "description": "What it is."}, "verbosity": "medium"},
  "reasoning": {"effort": "low", "summary": "auto"},
  "user": "bob",
  "stream": true
}"#;

#[test]
fn request_is_translated_to_chat() {
    let prompt = read(FULL);
    insta::assert_snapshot!(
        "request_to_chat",
        pretty(&chat::encode_request(&prompt).unwrap())
    );
}

#[test]
fn request_round_trips_without_reasoning() {
    let prompt = read(FULL);
    let again = responses::encode_request(&prompt).unwrap();
    insta::assert_snapshot!("round_trip", pretty(&again));
    let mut expected = prompt;
    // Reasoning is dropped in translation.
    for message in &mut expected.messages {
        message.parts.retain(|part| *part != PromptPart::Reasoning);
    }
    assert_eq!(read(&again), expected);
}

#[test]
fn chat_request_is_translated() {
    let body = r#"{"model":"gpt-x","messages":[
      {"role":"system","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"https://x.test/a.png"}}]},
      {"role":"assistant","content":"Let me see.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"a cat"},
      {"role":"tool","tool_call_id":"c2","content":""},
      {"role":"system","content":"Be kind."},
      {"role":"assistant","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"no"}]},
      {"role":"user","content":"go on"}],
      "tools":[{"type":"function","function":{"name":"look"}}],"tool_choice":"required","parallel_tool_calls":true,
      "max_tokens":5,"temperature":0.10,"top_p":0.9,"response_format":{"type":"json_object"},"reasoning_effort":"high","user":"bob"}"#;
    let prompt = chat::decode_request(body, &IgnoredFields::default()).unwrap();
    insta::assert_snapshot!(
        "request_from_chat",
        pretty(&responses::encode_request(&prompt).unwrap())
    );
}

#[test]
fn items_of_one_turn_are_merged_into_one_message() {
    let prompt = read(FULL);
    let shape: Vec<_> = prompt
        .messages
        .iter()
        .map(|message| (message.role, message.parts.len()))
        .collect();
    assert_eq!(
        shape,
        [
            (MessageRole::System, 1),
            (MessageRole::System, 1),
            (MessageRole::User, 4),
            (MessageRole::Assistant, 4),
            (MessageRole::User, 3),
        ]
    );
}

#[test]
fn shorthand_forms_are_decoded() {
    let prompt = read(r#"{"model":"m","input":"hi"}"#);
    assert_eq!(prompt.messages[0].role, MessageRole::User);
    assert_eq!(
        prompt.messages[0].parts,
        [PromptPart::Text("hi".to_owned())]
    );
    for (choice, expected) in [
        (r#""auto""#, ToolChoice::Auto),
        (r#""none""#, ToolChoice::None),
        (r#""required""#, ToolChoice::Required),
    ] {
        let body = format!(r#"{{"model":"m","input":"hi","tool_choice":{choice}}}"#);
        assert_eq!(read(&body).tool_choice, Some(expected));
    }
    for (text, expected) in [
        (r#"{"format":{"type":"text"}}"#, None),
        (r#"{"verbosity":"medium"}"#, None),
        (
            r#"{"format":{"type":"json_object"}}"#,
            Some(ResponseFormat::Json),
        ),
    ] {
        let body = format!(r#"{{"model":"m","input":"hi","text":{text}}}"#);
        assert_eq!(read(&body).format, expected);
    }
    let prompt = read(r#"{"model":"m","input":"hi","reasoning":{"effort":"xhigh"}}"#);
    assert_eq!(
        prompt.effort,
        Some(ReasoningEffort::Level("xhigh".to_owned()))
    );
}

#[test]
fn fields_without_effect_are_accepted() {
    read(
        r#"{"model":"m","instructions":null,"input":"hi","store":false,"background":false,"metadata":{},
        "service_tier":"auto","top_logprobs":0,"truncation":"auto","include":["reasoning.encrypted_content"],
        "previous_response_id":null,"prompt_cache_key":"k","prompt_cache_retention":"24h","safety_identifier":"s",
        "stream_options":{"include_obfuscation":false},"max_tool_calls":3,"client_metadata":{"a":"b"},
        "reasoning":{"effort":null,"summary":"detailed","mode":"standard"}}"#,
    );
}

/// Members that other dialects do not support, with the path that the error names.
const UNSUPPORTED_MEMBERS: &[(&str, &str)] = &[
    (r#""stop":["x"]"#, "stop"),
    (r#""seed":1"#, "seed"),
    (r#""frequency_penalty":1"#, "frequency_penalty"),
    (r#""store":true"#, "store"),
    (r#""background":true"#, "background"),
    (r#""metadata":"a""#, "metadata"),
    (r#""previous_response_id":"resp_0""#, "previous_response_id"),
    (r#""conversation":"conv_0""#, "conversation"),
    (r#""prompt":{"id":"pmpt_0"}"#, "prompt"),
    (r#""moderation":{"model":"x"}"#, "moderation"),
    (r#""service_tier":"flex""#, "service_tier"),
    (r#""top_logprobs":2"#, "top_logprobs"),
    (r#""truncation":"odd""#, "truncation"),
    (
        r#""include":["reasoning.encrypted_content","file_search_call.results"]"#,
        "include[1]",
    ),
    (
        r#""text":{"format":{"type":"grammar"}}"#,
        "text.format.type",
    ),
    (r#""reasoning":{"mode":"pro"}"#, "reasoning.mode"),
    (
        r#""tools":[{"type":"function","name":"a"},{"type":"code_interpreter"}]"#,
        "tools[1].type",
    ),
    (r#""tools":[{"type":"custom","name":"a"}]"#, "tools[0].type"),
    (
        r#""tools":[{"type":"namespace","name":"a","tools":[{"type":"file_search"}]}]"#,
        "tools[0].tools[0].type",
    ),
    (
        r#""tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]}"#,
        "tool_choice.tools[0].type",
    ),
    (
        r#""input":[{"type":"item_reference","id":"msg_0"}]"#,
        "input[0].type",
    ),
    (
        r#""input":[{"type":"web_search_call","id":"ws_0","status":"completed"}]"#,
        "input[0].type",
    ),
    (r#""input":[{"content":"x"}]"#, "input[0].role"),
];

/// Message parts that other dialects do not support, with the member that the error names.
const UNSUPPORTED_PARTS: &[(&str, &str)] = &[
    (r#"{"type":"input_image","file_id":"file-0"}"#, "file_id"),
    (r#"{"type":"input_file","file_id":"file-0"}"#, "file_id"),
    (
        r#"{"type":"input_file","filename":"a","file_data":"QUFB"}"#,
        "file_data",
    ),
    (
        r#"{"type":"output_text","text":"x","annotations":[{"type":"url_citation"}]}"#,
        "annotations",
    ),
];

#[test]
fn unsupported_request_fields_are_named_in_error() {
    let rejected_field = |member: &str| {
        let body = format!(r#"{{"model":"m",{member}}}"#);
        let error = responses::decode_request(&body, &IgnoredFields::default()).unwrap_err();
        error.field
    };
    for (member, field) in UNSUPPORTED_MEMBERS {
        assert_eq!(rejected_field(member), *field);
    }
    for (part, name) in UNSUPPORTED_PARTS {
        let member = format!(r#""input":[{{"role":"user","content":[{part}]}}]"#);
        assert_eq!(
            rejected_field(&member),
            format!("input[0].content[0].{name}")
        );
    }
    let ignoring = IgnoredFields(vec!["metadata".to_owned(), "include".to_owned()]);
    let body =
        r#"{"model":"m","input":"hi","metadata":{"a":"b"},"include":["file_search_call.results"]}"#;
    responses::decode_request(body, &ignoring).unwrap();
}

/// Settings that only OpenAI's dialects have, in Chat Completions and in Responses.
#[test]
fn openai_settings_are_translated_in_both_directions() {
    let in_chat = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"a"}}]}},"verbosity":"low","metadata":{"k":"v"}}"#;
    let in_responses = r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"a"}]},"text":{"verbosity":"low"},"metadata":{"k":"v"}}"#;
    let from_chat = chat::decode_request(in_chat, &IgnoredFields::default()).unwrap();
    let from_responses = read(in_responses);
    assert_eq!(from_chat.openai, from_responses.openai);
    assert_eq!(from_chat.tool_choice, from_responses.tool_choice);
    for name in ["tool_choice", "text", "metadata"] {
        let written: serde_json::Value =
            serde_json::from_str(&responses::encode_request(&from_chat).unwrap()).unwrap();
        let expected: serde_json::Value = serde_json::from_str(in_responses).unwrap();
        assert_eq!(written[name], expected[name], "{name}");
    }
    for name in ["tool_choice", "verbosity", "metadata"] {
        let written: serde_json::Value =
            serde_json::from_str(&chat::encode_request(&from_responses).unwrap()).unwrap();
        let expected: serde_json::Value = serde_json::from_str(in_chat).unwrap();
        assert_eq!(written[name], expected[name], "{name}");
    }
    // Codex sends this tool to every provider.
    let body = r#"{"model":"m","input":"x","tools":[{"type":"web_search"},{"type":"function","name":"a"}]}"#;
    assert_eq!(read(body).tools.len(), 1);
}

#[test]
fn chat_fields_without_equivalent_are_named_in_error() {
    for (member, field) in [
        (r#""stop":["x"]"#, "stop"),
        (r#""top_k":1"#, "top_k"),
        (r#""seed":1"#, "seed"),
        (r#""frequency_penalty":1"#, "frequency_penalty"),
        (r#""presence_penalty":1"#, "presence_penalty"),
        (
            r#""messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]}]"#,
            "input_audio",
        ),
    ] {
        let body = format!(r#"{{"model":"m",{member}}}"#);
        let prompt = chat::decode_request(&body, &IgnoredFields::default()).unwrap();
        assert_eq!(responses::encode_request(&prompt).unwrap_err().field, field);
    }
}

#[test]
fn file_names_follow_api_requirements() {
    let body = r#"{"model":"m","input":[{"role":"user","content":[
        {"type":"input_file","file_url":"https://x.test/a.pdf","filename":"a.pdf"},
        {"type":"input_file","file_data":"data:application/pdf;base64,AAAA"},
        {"type":"input_file","file_data":"data:text/csv;base64,AAAA","filename":"a.csv"}]}]}"#;
    let written = responses::encode_request(&read(body)).unwrap();
    insta::assert_snapshot!("files", pretty(&written));
}
