//! Embeds texts from stdin and prints the CPU time used. `beside_onnxruntime.py` runs this program.
//!
//! Each input line is a JSON list of texts. The output line holds their `vectors` and `cpu_seconds`.

#![expect(clippy::print_stdout, reason = "the output is the result")]

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

/// CPU time of all threads of this process so far, in seconds. `/proc` is not used because its resolution is one tick,
/// about the duration of a short query.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
