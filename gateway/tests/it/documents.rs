//! docs/gateway.md lists every setting of `stdio` and `http`, and together with docs/agents.md every setting of `hook`.

use clap::CommandFactory as _;
use context_gateway::cli::Cli;

#[test]
fn every_setting_is_documented_with_its_flag_and_default() {
    let gateway = include_str!("../../../docs/gateway.md");
    let agents = include_str!("../../../docs/agents.md");
    let command = Cli::command();
    for (name, page) in [
        ("stdio", gateway),
        ("http", gateway),
        ("hook", &format!("{gateway}{agents}")),
    ] {
        let subcommand = command.find_subcommand(name).unwrap();
        for argument in subcommand
            .get_arguments()
            .filter(|argument| argument.get_long() != Some("help") && !argument.is_hide_set())
        {
            let flag = argument.get_long().unwrap();
            let variable = argument
                .get_env()
                .unwrap_or_else(|| panic!("--{flag} has no variable"))
                .to_str()
                .unwrap();
            let default = argument
                .get_default_values()
                .first()
                .map_or("", |value| value.to_str().unwrap());
            let default = if default.is_empty() {
                "–".to_owned()
            } else {
                format!("`{default}`")
            };
            let row = format!("| `{variable}` | `--{flag}` | {default} |");
            assert!(
                page.contains(&row),
                "the page of `{name}` lacks the row {row}"
            );
        }
    }
}
