//! The settings of mcp-context-server 2.2.2.

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory as _;
use context_service::cli::Cli;
use context_service::config::{self, Config, Handling, NAMES, Predecessor, migration_table};
use context_test_support::Home;

use crate::process::{program, run};
use crate::semantic::harness::model;

/// The names are taken from the source of mcp-context-server, not from the table of the service.
const LIST: &str = include_str!("predecessor/names.txt");

/// The lines of the list: the name, the kind, and for a renamed setting the words of its case (see [`renamed`]).
fn list() -> impl Iterator<Item = (&'static str, &'static str, Vec<&'static str>)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut words = line.split(' ');
        let (name, kind) = (words.next().unwrap(), words.next().unwrap());
        (name, kind, words.collect())
    })
}

fn read(environment: &[(&str, &str)]) -> Result<Predecessor, String> {
    Predecessor::read(&|name| {
        let found = environment.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn translated(environment: &[(&str, &str)]) -> Predecessor {
    read(environment).unwrap_or_else(|error| panic!("{environment:?}: {error}"))
}

fn settings(flags: &[&str]) -> Config {
    let arguments = ["context-service"].iter().chain(flags).map(Into::into);
    let cli: Cli = config::read(arguments, &|_| None).expect("settings that can be read");
    cli.config
}

/// Whether the service has a setting of this name.
fn is_ours(name: &str) -> bool {
    Cli::command()
        .get_arguments()
        .any(|arg| arg.get_env().is_some_and(|env| env == name))
}

fn pair(text: &'static str) -> (&'static str, &'static str) {
    text.split_once('=').expect("NAME=value")
}

#[test]
fn the_table_has_each_of_the_133_names_and_says_of_which_kind_it_is() {
    let listed: BTreeMap<_, _> = list().map(|(name, kind, _)| (name, kind)).collect();
    let table: BTreeMap<_, _> = NAMES
        .iter()
        .map(|(name, handling)| {
            let kind = match handling {
                Handling::Same(_) => "same",
                Handling::Renamed(..) => "renamed",
                Handling::Changed(_) => "changed",
                Handling::NotNeeded(_) => "not-needed",
                Handling::Security(_) => "security",
                Handling::Gateway(_) => "gateway",
            };
            (*name, kind)
        })
        .collect();
    assert_eq!(table.len(), 133);
    assert_eq!(table, listed);
}

#[test]
fn the_service_does_with_each_of_the_133_names_what_the_list_says() {
    for (name, kind, case) in list() {
        if kind == "renamed" {
            renamed(name, &case);
            continue;
        }
        // POSTGRESQL_SCHEMA has no effect, but any value except `public` causes a warning.
        let value = if name == "POSTGRESQL_SCHEMA" {
            "public"
        } else {
            "7"
        };
        let found = translated(&[(name, value)]);
        let (warnings, not_needed) = (found.warnings(), found.not_needed());
        match kind {
            "same" | "changed" => {
                assert!(is_ours(name), "{name}");
                assert!(warnings.is_empty() && not_needed.is_none(), "{found:?}");
            }
            "not-needed" => {
                assert!(!is_ours(name), "{name}");
                let sentence = not_needed.unwrap_or_else(|| panic!("{name} is not reported"));
                assert!(
                    warnings.is_empty() && sentence.ends_with(name),
                    "{sentence}"
                );
            }
            "security" => {
                let refused = found.check(&settings(&[])).expect_err(name);
                assert!(
                    refused.contains(name) && refused.contains("AUTH"),
                    "{refused}"
                );
                for flag in ["--auth=keys", "--auto-started"] {
                    assert_eq!(found.check(&settings(&[flag])), Ok(()), "{name} {flag}");
                }
                assert!(warnings[0].contains(name), "{warnings:?}");
            }
            "gateway" => {
                assert!(!is_ours(name), "{name}");
                assert!(warnings.is_empty() && not_needed.is_none(), "{found:?}");
            }
            other => panic!("{name} is of no kind {other}"),
        }
    }
}

/// A case of a renamed name: `value SETTING=… -> OURS=…`.
fn renamed(name: &str, case: &[&'static str]) {
    let arrow = case.iter().position(|word| *word == "->").unwrap();
    let (value, conditions) = (case[0], &case[1..arrow]);
    let (ours, expected) = pair(case[arrow + 1]);
    assert!(is_ours(ours) && !is_ours(name), "{name} {ours}");
    let mut environment = vec![(name, value)];
    environment.extend(conditions.iter().map(|condition| pair(condition)));

    let found = translated(&environment);
    assert_eq!(found.value(ours), Some(expected), "{environment:?}");
    let [warning] = found.warnings() else {
        panic!("{environment:?}: {:?}", found.warnings());
    };
    assert!(
        warning.contains(name) && warning.contains(ours),
        "{warning}"
    );
    assert!(!warning.contains("sk-"), "{warning}");

    // The service's own name with the same value causes no warning. With another value the service's own name takes
    // precedence, with two exceptions.
    environment.push((ours, expected));
    assert!(
        translated(&environment).warnings().is_empty(),
        "{environment:?}"
    );
    environment.pop();
    environment.push((ours, "5"));
    let found = translated(&environment);
    let overrides = [
        "ENABLE_EMBEDDING_GENERATION",
        "AZURE_OPENAI_EMBEDDING_DEPLOYMENT_NAME",
    ];
    let used = overrides.contains(&name).then_some(expected);
    assert_eq!(found.value(ours), used, "{environment:?}");
    assert!(found.warnings()[0].contains(ours), "{:?}", found.warnings());

    // A setting that depends on a value of another one has no effect while that one has another value.
    if let [condition] = conditions {
        let (setting, _) = pair(condition);
        let other = if setting == "STORAGE_BACKEND" && condition.ends_with("sqlite") {
            "postgresql"
        } else if setting == "STORAGE_BACKEND" {
            "sqlite"
        } else {
            "ollama"
        };
        let found = translated(&[(name, value), (setting, other)]);
        assert_eq!(found.value(ours), None, "{name} {other}");
        assert!(found.warnings().is_empty(), "{:?}", found.warnings());
    }
}

#[test]
fn keys_in_the_environment_choose_no_provider_and_go_to_no_other_address() {
    let keys = [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "VOYAGE_API_KEY",
        "AZURE_OPENAI_API_KEY",
    ]
    .map(|name| (name, "sk-1"));
    let found = translated(&keys);
    for ours in ["EMBEDDING_PROVIDER", "EMBEDDING_API_KEY", "SUMMARY_API_KEY"] {
        assert_eq!(found.value(ours), None);
    }
    assert!(found.warnings().is_empty());
    let found = translated(&[
        ("EMBEDDING_PROVIDER", "openai"),
        ("OPENAI_API_KEY", "sk-1"),
        ("EMBEDDING_URL", "http://other.example/v1"),
    ]);
    assert_eq!(found.value("EMBEDDING_API_KEY"), None);
    assert!(found.warnings()[0].contains("OPENAI_API_KEY is not sent"));
    let found = translated(&[("EMBEDDING_PROVIDER", "openai"), ("OPENAI_API_KEY", "sk-1")]);
    let other = "--embedding-url=http://other.example/v1";
    let [openai, key] = ["--embedding-provider=openai", "--embedding-api-key=sk-1"];
    assert_eq!(found.check(&settings(&[openai, key])), Ok(()));
    for flags in [
        [openai, other, key],
        ["--embedding-provider=voyage", key, key],
    ] {
        let refused = found.check(&settings(&flags));
        assert!(refused.unwrap_err().contains("OPENAI_API_KEY is not sent"));
    }
    let own_key = [openai, other, "--embedding-api-key=of-other"];
    assert_eq!(found.check(&settings(&own_key)), Ok(()));
    let found = translated(&[
        ("EMBEDDING_PROVIDER", "openai"),
        ("OPENAI_API_KEY", "sk-1"),
        ("OPENAI_API_BASE", "http://ann:hunter2@proxy.example/v1"),
    ]);
    assert_eq!(found.value("EMBEDDING_API_KEY"), Some("sk-1"));
    let warnings = found.warnings().join("\n");
    assert!(
        warnings.contains("proxy.example") && !warnings.contains("hunter2"),
        "{warnings}"
    );
}

#[test]
fn embeddings_that_are_switched_off_stay_off() {
    let found = translated(&[
        ("ENABLE_EMBEDDING_GENERATION", "false"),
        ("EMBEDDING_PROVIDER", "openai"),
        ("ENABLE_SEMANTIC_SEARCH", "true"),
    ]);
    assert_eq!(found.value("EMBEDDING_PROVIDER"), Some("none"));
    assert_eq!(found.value("ENABLE_SEMANTIC_SEARCH"), Some("false"));
    assert!(
        found
            .check(&settings(&["--embedding-provider=none"]))
            .is_ok()
    );
    let refused = found.check(&settings(&["--embedding-provider=openai"]));
    assert!(refused.unwrap_err().contains("ENABLE_EMBEDDING_GENERATION"));
    let on = translated(&[("ENABLE_EMBEDDING_GENERATION", "true")]);
    assert!(on.warnings().is_empty() && on.value("EMBEDDING_PROVIDER").is_none());
}

#[test]
fn values_beyond_our_range_are_limited_and_malformed_ones_are_refused_by_name() {
    for (name, value, ours, limit) in [
        ("POOL_MAX_READERS", "100", "SQLITE_READERS", "64"),
        ("POOL_MAX_READERS", "1_000.0", "SQLITE_READERS", "64"),
        (
            "POOL_CONNECTION_TIMEOUT_S",
            "9999",
            "SQLITE_BUSY_TIMEOUT_MS",
            "600000",
        ),
    ] {
        let found = translated(&[(name, value)]);
        assert_eq!(found.value(ours), Some(limit), "{name}");
        let warning = &found.warnings()[0];
        assert!(
            warning.contains(&format!("the maximum is {limit}")),
            "{warning}"
        );
    }
    for (name, value) in [
        ("POOL_MAX_READERS", "0"),
        ("POOL_MAX_READERS", "2.5"),
        ("POOL_CONNECTION_TIMEOUT_S", "-1"),
        ("EMBEDDING_TIMEOUT_S", "nan"),
        ("SUMMARY_TIMEOUT_S", "inf"),
        ("SUMMARY_TIMEOUT_S", "soon"),
        ("ENABLE_EMBEDDING_GENERATION", "maybe"),
    ] {
        let refused = read(&[(name, value)]).expect_err(value);
        assert!(
            refused.contains(name) && refused.contains(value),
            "{refused}"
        );
    }
    let refused = read(&[("EMBEDDING_PROVIDER", "huggingface")]).unwrap_err();
    assert!(
        refused.contains("`tei`") && refused.contains("`local`"),
        "{refused}"
    );
}

#[test]
fn another_schema_is_a_warning_and_public_is_none() {
    let with = |schema| {
        translated(&[
            ("STORAGE_BACKEND", "postgresql"),
            ("POSTGRESQL_SCHEMA", schema),
        ])
    };
    assert!(with("public").warnings().is_empty());
    assert!(with("team_a").warnings()[0].contains("POSTGRESQL_SCHEMA"));
}

#[test]
fn the_program_reads_them_and_the_doctor_names_them() {
    let home = Home::new();
    let (code, report, _) = run(program(&home)
        .env("EMBEDDING_TIMEOUT_S", "12")
        .env("RETRY_JITTER", "true")
        .env("ENABLE_RERANKING", "true")
        .env("ENABLE_EMBEDDING_GENERATION", "false")
        .arg("doctor"));
    assert_eq!(code, 0, "{report}");
    for line in [
        "! settings   EMBEDDING_TIMEOUT_S is a setting of mcp-context-server and is read as EMBEDDING_TIMEOUT_SECONDS=12",
        "! settings   ENABLE_EMBEDDING_GENERATION",
        "! reranking  ENABLE_RERANKING is true",
        "✔ settings   these settings of mcp-context-server have no effect here: RETRY_JITTER",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    let (code, _, stderr) = run(program(&home).env("EMBEDDING_TIMEOUT_S", "soon"));
    assert!(
        code == 2 && stderr.contains("EMBEDDING_TIMEOUT_S is `soon`"),
        "{stderr}"
    );
    let (code, help, _) = run(program(&home)
        .env("EMBEDDING_TIMEOUT_S", "soon")
        .arg("--help"));
    assert!(
        code == 0 && help.contains("EMBEDDING_TIMEOUT_SECONDS"),
        "{help}"
    );
    for (name, value) in [
        ("MCP_AUTH_TOKEN", "secret-of-the-test"),
        ("MCP_AUTH_PROVIDER", "simple_token"),
    ] {
        let (code, _, stderr) = run(program(&home).env(name, value));
        assert!(
            code == 1 && stderr.contains(name) && !stderr.contains("secret-of-the-test"),
            "{stderr}"
        );
        let (code, report, _) = run(program(&home).env(name, value).arg("doctor"));
        assert!(
            code == 1 && report.contains("✘ settings   MCP_AUTH"),
            "{report}"
        );
    }
}

#[test]
fn a_chunk_size_is_a_warning_only_beyond_the_model_s_window() {
    let home = Home::new();
    for (size, is_named) in [("1500", true), ("16", false)] {
        let (_, report, _) = run(program(&home)
            .env("EMBEDDING_MODEL_PATH", model())
            .env("CHUNK_SIZE", size)
            .arg("doctor"));
        let warning = format!("! embeddings CHUNK_SIZE is {size} tokens");
        assert_eq!(report.contains(&warning), is_named, "{report}");
        assert!(report.contains("✔ embeddings"), "{report}");
    }
}

#[test]
fn a_chunk_overlap_is_a_warning_only_beyond_half_a_chunk() {
    let home = Home::new();
    for (overlap, is_named) in [("9", true), ("8", false)] {
        let (_, report, _) = run(program(&home)
            .env("EMBEDDING_MODEL_PATH", model())
            .env("CHUNK_SIZE", "16")
            .env("CHUNK_OVERLAP", overlap)
            .arg("doctor"));
        let warning = "! embeddings CHUNK_OVERLAP";
        let allowed = "! embeddings CHUNK_OVERLAP is 9 tokens, but it must be 0 to 8";
        let found = (report.contains(warning), report.contains(allowed));
        assert_eq!(found, (is_named, is_named), "{report}");
        assert!(report.contains("✔ embeddings"), "{report}");
    }
}

#[test]
fn the_page_about_migration_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrating.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let table = migration_table();
    assert!(
        page.contains(&table),
        "docs/migrating.md does not contain this table:\n{table}"
    );
}
