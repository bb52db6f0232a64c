//! Compiles the wire contract with protox, so that nobody needs protoc.

use std::path::PathBuf;

use protox::prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(
        ["context/v1/context_service.proto", "context/v1/artifact_service.proto", "context/v1/api_key_service.proto"],
        [&root],
    )?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Sorted maps: the same object gives the same bytes and the same JSON every time.
    tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
