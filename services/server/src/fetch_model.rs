//! `context-service fetch-model`: downloads an embedding model into the cache.

use std::io::{IsTerminal as _, Write as _};

use context_providers::fetch::{Fetchable, fetch};

use crate::models::{cache_directory, choose_fetched};
use crate::stderr::announce;

/// The width of the progress bar in characters.
const BAR: u64 = 40;

/// Downloads a model into the cache, with a progress bar on a terminal. Services that start from then on use it, unless
/// their settings name another one. Returns the final sentence to print.
///
/// # Errors
/// A sentence that says what went wrong.
pub async fn fetch_model(model: &Fetchable, hub: &str) -> Result<String, String> {
    let cache = cache_directory();
    let directory = cache.join(model.name);
    let terminal = std::io::stderr().is_terminal();
    let mut shown = None;
    let outcome = fetch(model, hub, &directory, |file, have, all| {
        let filled = have * BAR / all.max(1);
        if terminal && shown != Some((file, filled)) {
            let bar = "#".repeat(usize::try_from(filled).unwrap_or(0));
            // If stderr is closed, progress cannot be shown, and the download continues.
            let _ = write!(
                std::io::stderr(),
                "\r{file:<20} [{bar:<40}] {} of {} MB",
                have / 1_000_000,
                all / 1_000_000
            );
            shown = Some((file, filled));
        }
    })
    .await;
    if shown.is_some() {
        announce("\n");
    }
    outcome.map_err(|error| error.to_string())?;
    choose_fetched(&cache, model)
        .map_err(|error| format!("{} cannot be written: {error}", cache.display()))?;
    Ok(format!(
        "{} is in {}; services started from now on use it for semantic search, unless their settings name another model \
         (when entries have vectors of another model, run `context-service reembed`)",
        model.name,
        directory.display()
    ))
}
