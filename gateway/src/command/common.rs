//! What all commands share: the connection, one call, and how its reply is printed.

use clap::Args;
use context_model::{JsonObject, Operation};
use serde_json::Value;

use super::failure::{Failure, note};
use super::screen::Screen;
use crate::backend::Backend;
use crate::call::{Call, deadline, too_late};
use crate::connection::StdioArgs;
use crate::credentials::Credentials;

/// The arguments of every command.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("tools", |arg| arg.hide(true)),
    mut_arg("disabled_tools", |arg| arg.hide(true)),
    mut_arg("request_memory_mb", |arg| arg.hide(true)),
    mut_arg("max_total_size_mb", |arg| arg.hide(true)),
    mut_arg("log_level", |arg| arg.hide(true))
)]
pub struct Common {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Where the service is, and the key for it.
    #[command(flatten, next_help_heading = "Connection")]
    pub service: StdioArgs,
}

/// The service, and the screen that its replies are printed on.
#[derive(Debug)]
pub struct Session {
    backend: Backend,
    credentials: Credentials,
    /// Where replies are printed.
    pub screen: Screen,
}

impl Session {
    /// A session with the service of these settings. It connects at the first call.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn open(common: &Common) -> Result<Self, Failure> {
        let service = &common.service;
        let target = service
            .backend
            .target_as_it_runs()
            .map_err(Failure::Usage)?;
        let backend =
            Backend::new(target, service.backend.max_message_bytes()).map_err(Failure::Usage)?;
        Ok(Self {
            backend,
            credentials: service.credentials().map_err(Failure::Usage)?,
            screen: Screen::new(common.json),
        })
    }

    /// The address of the service.
    #[must_use]
    pub fn address(&self) -> String {
        self.backend.to_string()
    }

    /// Makes one call. Parameters that are null are left out. Warnings of the reply are written to stderr.
    ///
    /// # Errors
    /// The service's error, or why there was no response.
    pub async fn call(&self, operation: Operation, arguments: Value) -> Result<Value, Failure> {
        let arguments: JsonObject = match arguments {
            Value::Object(members) => members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect(),
            _ => JsonObject::new(),
        };
        let call = Call {
            backend: &self.backend,
            metadata: self.credentials.metadata(),
            operation,
            lease: None,
        };
        let reply = tokio::time::timeout(deadline(operation), call.run(arguments))
            .await
            .unwrap_or_else(|_| Err(too_late(operation)))?
            .structured;
        for warning in reply["warnings"].as_array().into_iter().flatten() {
            note(warning.as_str().unwrap_or_default());
        }
        Ok(reply)
    }

    /// Prints a reply: with --json as it is, else as `shown` says.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn print(
        &self,
        reply: &Value,
        shown: impl FnOnce(&Screen) -> String,
    ) -> Result<(), Failure> {
        if self.screen.json {
            self.screen.print_json(reply)
        } else {
            self.screen.print(&shown(&self.screen))
        }
    }
}
