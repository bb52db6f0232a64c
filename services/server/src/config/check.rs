//! What single values cannot tell: settings that contradict each other or ask for what this version cannot do.

use super::{Auth, Backend, Config};

impl Config {
    /// Checks the settings against each other and against what this version can do.
    ///
    /// # Errors
    /// A sentence that names the setting and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.storage.storage_backend == Backend::Postgresql {
            self.postgres()
                .map_err(|error| format!("POSTGRESQL_CONNECTION_STRING cannot be used: {error}"))?;
        }
        match self.network.auth {
            Auth::Off | Auth::Keys => {}
            Auth::Oidc => self.oidc.settings()?.check().map_err(|error| {
                format!("OIDC_ISSUER and OIDC_AUDIENCE cannot be used: {error}")
            })?,
        }
        self.check_addresses()?;
        self.engine().check().map_err(|error| error.to_string())?;
        crate::models::choose(self)?;
        crate::rerankers::choose(self)?;
        crate::summaries::choose(self).map(drop)
    }

    fn check_addresses(&self) -> Result<(), String> {
        if self.auto_started || self.network.insecure || self.network.auth != Auth::Off {
            return Ok(());
        }
        let settings = [
            ("CONTEXT_LISTEN", Some(self.network.listen)),
            ("CONTEXT_GRPC_LISTEN", self.network.grpc_listen.0),
        ];
        for (name, address) in settings {
            if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
                return Err(format!(
                    "{name} is {address}, which other machines can reach, and AUTH is `off`: anybody there could read and delete \
                     everything; listen on 127.0.0.1, or pass --insecure (CONTEXT_INSECURE=true)"
                ));
            }
        }
        Ok(())
    }
}
