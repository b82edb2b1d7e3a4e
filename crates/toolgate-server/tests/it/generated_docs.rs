//! Generated documents are up to date, and the examples load.

use std::fs;
use std::path::{Path, PathBuf};

use toolgate_core::config::{Config, ConfigFormat, Document};

use crate::gate::run;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn generated_documents_are_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, file) in [
        ("config", "docs/config.schema.json"),
        ("openapi", "docs/openapi.json"),
    ] {
        let (_, fresh, _) = run(folder.path(), &["schema", kind]);
        let checked_in = fs::read_to_string(root().join(file)).unwrap();
        assert!(checked_in == fresh, "{file} is stale; run `make docs`");
    }
}

#[test]
fn every_example_loads_without_warnings() {
    let mut count = 0;
    for folder in fs::read_dir(root().join("examples")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let format = match path.extension().and_then(|extension| extension.to_str()) {
                Some("toml") => ConfigFormat::Toml,
                Some("json") => ConfigFormat::Json,
                _ => continue,
            };
            let document = Document::parse(
                path.to_str().unwrap(),
                format,
                &fs::read_to_string(&path).unwrap(),
            );
            let (_, findings) =
                Config::load(&[document]).unwrap_or_else(|invalid| panic!("{invalid}"));
            assert_eq!(findings, [], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}
