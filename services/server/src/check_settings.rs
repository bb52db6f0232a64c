//! Checks that need more than one setting: contradictions, and features that need another setting or a model.

use crate::config::{Auth, Backend, Config};
use crate::{models, rerankers, summaries};

/// Checks the settings against each other, and that the features that they require can work.
///
/// # Errors
/// A sentence that names the setting and says what is wrong.
pub fn check_settings(config: &Config) -> Result<(), String> {
    if config.storage.storage_backend == Backend::Postgresql {
        config
            .postgres()
            .map_err(|error| format!("POSTGRESQL_CONNECTION_STRING cannot be used: {error}"))?;
    }
    match config.network.auth {
        Auth::Off | Auth::Keys => {}
        Auth::Oidc => config
            .oidc
            .settings()?
            .check()
            .map_err(|error| format!("OIDC_ISSUER and OIDC_AUDIENCE cannot be used: {error}"))?,
    }
    check_addresses(config)?;
    config.engine().check().map_err(|error| error.to_string())?;
    models::choose(config)?;
    rerankers::choose(config)?;
    summaries::choose(config).map(drop)
}

fn check_addresses(config: &Config) -> Result<(), String> {
    if config.auto_started || config.network.insecure || config.network.auth != Auth::Off {
        return Ok(());
    }
    let settings = [
        ("CONTEXT_LISTEN", Some(config.network.listen)),
        ("CONTEXT_GRPC_LISTEN", config.network.grpc_listen.0),
    ];
    for (name, address) in settings {
        if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
            return Err(format!(
                "{name} is {address}, which other machines can reach, and AUTH is `off`: anyone on the network could read and delete \
                 everything; listen on 127.0.0.1, or pass --insecure (CONTEXT_INSECURE=true)"
            ));
        }
    }
    Ok(())
}
