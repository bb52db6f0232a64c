//! Embeds what comes on stdin, and says how much CPU time that took: the other half of `beside_onnxruntime.py`.
//!
//! Each line is a JSON list of texts; the answer is a line with their `vectors` and `cpu_seconds`.

#![expect(clippy::print_stdout, reason = "its output is its answer")]

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

use context_bert::{Model, Tokens};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory: PathBuf = std::env::args_os().nth(1).ok_or("give MODEL_DIRECTORY")?.into();
    let (model, tokens) = (Model::load(&directory)?, Tokens::load(&directory)?);
    for line in std::io::stdin().lock().lines() {
        let texts: Vec<String> = serde_json::from_str(&line?)?;
        let before = cpu_seconds()?;
        let encoded = texts.iter().map(|text| tokens.encode(text)).collect::<Result<Vec<_>, _>>()?;
        let vectors = model.embed(&encoded)?;
        let cpu_seconds = cpu_seconds()? - before;
        println!("{}", serde_json::json!({ "vectors": vectors, "cpu_seconds": cpu_seconds }));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The CPU time of this process so far, of all its threads.
fn cpu_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let schedstat = std::fs::read_dir("/proc/self/task")?
        .map(|task| Ok(std::fs::read_to_string(task?.path().join("schedstat"))?))
        .map(|line: Result<String, Box<dyn std::error::Error>>| Ok(line?.split(' ').next().unwrap_or_default().parse::<f64>()?));
    Ok(schedstat.sum::<Result<f64, Box<dyn std::error::Error>>>()? / 1e9)
}
