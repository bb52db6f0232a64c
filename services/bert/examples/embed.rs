//! Embeds the lines of a file, prints how long it took, and writes the vectors as 32-bit floats.
//!
//! ```sh
//! cargo run --release --example embed -- MODEL_DIRECTORY TEXTS VECTORS
//! ```

#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use context_bert::{Encoded, Model, Tokens};

/// Number of tokens computed together, as in the service.
const BATCH_TOKENS: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [directory, texts, vectors] = &arguments[..] else {
        return Err("give MODEL_DIRECTORY, TEXTS and VECTORS".into());
    };
    let started = Instant::now();
    let (model, tokens) = (Model::load(directory)?, Tokens::load(directory)?);
    println!("loaded in {:.0} ms", started.elapsed().as_secs_f64() * 1e3);

    let texts = BufReader::new(std::fs::File::open(texts)?)
        .lines()
        .collect::<Result<Vec<String>, _>>()?;
    let started = Instant::now();
    let encoded = texts
        .iter()
        .map(|text| tokens.encode(text))
        .collect::<Result<Vec<Encoded>, _>>()?;
    let all: usize = encoded.iter().map(|text| text.ids.len()).sum();
    println!(
        "{} texts, {all} tokens, tokenized in {:.1} s",
        texts.len(),
        started.elapsed().as_secs_f64()
    );

    let mut out = BufWriter::new(std::fs::File::create(vectors)?);
    let started = Instant::now();
    let mut rest = encoded.as_slice();
    while !rest.is_empty() {
        let mut batch = 0;
        let count = rest
            .iter()
            .take_while(|text| {
                batch += text.ids.len();
                batch <= BATCH_TOKENS
            })
            .count()
            .max(1);
        let (now, later) = rest.split_at(count);
        for vector in model.embed(now)? {
            for value in vector {
                out.write_all(&value.to_le_bytes())?;
            }
        }
        rest = later;
    }
    out.flush()?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "embedded in {seconds:.1} s: {:.0} texts/s, {:.0} tokens/s",
        texts.len() as f64 / seconds,
        all as f64 / seconds
    );
    Ok(())
}
