//! User data passes through every transport byte for byte.

use toolgate_testkit::HttpZoo;

use crate::support::{call, http_server, start_settled, stdio_zoo, text, tool};

const ODD: &str = r#"{"z": 18446744073709551617, "a":[1e400 ,0.1,-0.0, 1E+2, 100000000000000000000000.0],"é":"\u00e9","b":1, "":{"nested":{"b":1,"a":2}}}"#;

#[tokio::test]
async fn arguments_results_and_definitions_are_preserved() {
    let web = HttpZoo::start(&["--era", "modern"]);
    let legacy_web = HttpZoo::start(&["--sessions", "--json"]);
    let toml = [
        stdio_zoo("legacy", &[]),
        stdio_zoo("modern", &["--era", "modern"]),
        http_server("web", &web.url()),
        http_server("legacy_web", &legacy_web.url()),
    ]
    .concat();
    let registry = start_settled(&toml).await;
    for server in ["legacy", "modern", "web", "legacy_web"] {
        let name = format!("{server}.echo");
        let result = call(&registry, &name, ODD).await.unwrap();
        assert_eq!(text(&result), ODD, "{server} received different arguments");
        let raw = result.get();
        assert!(
            raw.contains(&format!(r#""arguments":{ODD}"#))
                || raw.contains(&format!(r#""arguments": {ODD}"#)),
            "{raw}"
        );
        assert!(
            raw.contains(r#""x-zoo":-0.0"#) || raw.contains(r#""x-zoo": -0.0"#),
            "unknown result fields must be preserved: {raw}"
        );

        let listed = tool(&registry, &name).unwrap();
        let definition = listed.definition.get();
        assert!(
            definition.contains("[18446744073709551617,1e400,0.1,-0.0]"),
            "{definition}"
        );
    }
    registry.stop().await;
}
