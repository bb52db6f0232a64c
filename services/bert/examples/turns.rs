//! Embeds what comes on stdin, and says how much CPU time that took: the other half of `beside_onnxruntime.py`.
//!
//! Each line is a JSON list of texts; the answer is a line with their `vectors` and `cpu_seconds`.

#![expect(clippy::print_stdout, reason = "its output is its answer")]

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

use context_bert::{Model, Tokens};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory: PathBuf = std::env::args_os()
        .nth(1)
        .ok_or("give MODEL_DIRECTORY")?
        .into();
    let (model, tokens) = (Model::load(&directory)?, Tokens::load(&directory)?);
    for line in std::io::stdin().lock().lines() {
        let texts: Vec<String> = serde_json::from_str(&line?)?;
        let before = cpu_seconds();
        let encoded = texts
            .iter()
            .map(|text| tokens.encode(text))
            .collect::<Result<Vec<_>, _>>()?;
        let vectors = model.embed(&encoded)?;
        let cpu_seconds = cpu_seconds() - before;
        println!(
            "{}",
            serde_json::json!({ "vectors": vectors, "cpu_seconds": cpu_seconds })
        );
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The CPU time of this process so far, of all its threads. `/proc` gives it as of the last tick, which is of the order
/// of a short query's time.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
