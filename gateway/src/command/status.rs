//! The command `status`.

use clap::Args;
use context_model::Operation;
use serde_json::{Value, json};

use super::common::{Common, Session};
use super::failure::Failure;
use super::inert::one_line;
use super::screen::text;

/// The arguments of `status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Shows how many entries there are, and which features work.
///
/// # Errors
/// The service's error, or why there was no response.
pub async fn status(args: StatusArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let reply = session.call(Operation::GetStatistics, json!({})).await?;
    session.print(&reply, |screen| {
        let sources = &reply["by_source"];
        let mut lines = vec![
            ("service", session.address()),
            (
                "entries",
                format!(
                    "{} ({} of users, {} of agents), {} images",
                    reply["total_entries"],
                    sources["user"],
                    sources["agent"],
                    reply["total_images"]
                ),
            ),
            ("tags", reply["unique_tags"].to_string()),
            (
                "database",
                format!(
                    "{:.1} MB",
                    reply["database_size_mb"].as_f64().unwrap_or_default()
                ),
            ),
        ];
        for (label, key) in [
            ("full text", "fts"),
            ("semantic", "semantic_search"),
            ("hybrid", "hybrid_search"),
            ("reranking", "reranking"),
            ("summaries", "summary_generation"),
        ] {
            lines.push((label, feature(&reply[key])));
        }
        let line = |(label, value): (&str, String)| {
            format!(
                "{} {}",
                screen.bold(&format!("{label:9}")),
                one_line(&value)
            )
        };
        lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Whether a feature works, with its model, or why it does not.
fn feature(status: &Value) -> String {
    if status["available"] == true {
        let model = text(status, "model");
        let waiting = match status["pending_count"].as_i64() {
            Some(count @ 1..) => format!(", {count} entries wait for their vectors"),
            _ => String::new(),
        };
        return match model {
            "" => format!("on{waiting}"),
            model => format!("on: {model}{waiting}"),
        };
    }
    match text(status, "reason") {
        "" => "off".to_owned(),
        reason => format!("off: {reason}"),
    }
}
