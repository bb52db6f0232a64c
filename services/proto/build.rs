//! Compiles the gRPC contract with protox, so that the build does not need protoc.

use std::path::PathBuf;

use protox::prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(
        [
            "context/v1/context_service.proto",
            "context/v1/artifact_service.proto",
            "context/v1/change_service.proto",
            "context/v1/api_key_service.proto",
        ],
        [&root],
    )?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // `Object` is written by hand and holds its encoded bytes (see src/object.rs).
    tonic_prost_build::configure()
        .extern_path(".context.v1.Object", "crate::Object")
        .compile_fds(descriptors)?;
    Ok(())
}
