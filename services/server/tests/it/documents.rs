//! Files of the repository that the service generates.

use std::path::Path;

use clap::CommandFactory as _;
use context_service::cli::Cli;
use context_service::{config, document, errors_page};

fn compare(file: &str, printed: &str, command: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == printed,
        "{file} is out of date; run\n  cargo run --bin context-service -- {command} > {file}"
    );
}

#[test]
fn the_openapi_document_is_up_to_date() {
    compare("openapi/openapi.json", &document(), "openapi");
}

#[test]
fn the_list_of_settings_is_up_to_date() {
    compare(
        "docs/configuration.md",
        &config::configuration_page(&Cli::command()),
        "config-docs",
    );
}

#[test]
fn the_list_of_errors_is_up_to_date() {
    compare("docs/errors.md", &errors_page(), "error-docs");
}

#[test]
fn every_operation_is_described_and_can_fail() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            for key in ["operationId", "summary", "description", "tags"] {
                assert!(operation.get(key).is_some(), "{method} {path} has no {key}");
            }
            assert!(
                operation["responses"].get("default").is_some(),
                "{method} {path} cannot fail"
            );
            if let Some(body) = operation.get("requestBody") {
                assert!(
                    body["content"]["application/json"].get("example").is_some(),
                    "{method} {path} has no example"
                );
            }
        }
    }
    assert_eq!(operations, 33);
}
