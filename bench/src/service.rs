//! The measured service and gateway, as real processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::process::{Process, free_address, isolate, sibling_program};

/// A running `context-service`.
#[derive(Debug)]
pub struct Service {
    process: Process,
    /// The address of gRPC and REST.
    pub address: SocketAddr,
    /// The Unix socket.
    pub socket: PathBuf,
    /// The database file.
    pub database: PathBuf,
}

impl Service {
    /// Starts a service on a database file and waits until it listens. Settings of the environment do not apply.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(database: &Path) -> Result<Self> {
        Self::start_with(database, &[])
    }

    /// Like [`start`](Self::start), with these settings.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start_with(database: &Path, settings: &[(&str, String)]) -> Result<Self> {
        let mut service = Self::spawn_with(database, settings)?;
        service.process.wait_for(service.address)?;
        Ok(service)
    }

    /// Like [`start`](Self::start), without waiting.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(database: &Path) -> Result<Self> {
        Self::spawn_with(database, &[])
    }

    fn spawn_with(database: &Path, settings: &[(&str, String)]) -> Result<Self> {
        let address = free_address()?;
        let socket = database.with_extension("sock");
        let mut command = Command::new(sibling_program("context-service")?);
        command
            .env("DB_PATH", database)
            .env("CONTEXT_LISTEN", address.to_string())
            .env("CONTEXT_SOCKET", &socket)
            // By default the service uses a model that was fetched into HOME, if there is one.
            .env("EMBEDDING_PROVIDER", "none")
            .envs(settings.iter().map(|(name, value)| (name, value)));
        let process = Process::start(command, database.with_extension("log"))?;
        Ok(Self {
            process,
            address,
            socket,
            database: database.to_owned(),
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the service, so that the database file is complete.
    ///
    /// # Errors
    /// The service does not stop with success.
    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// A running `context-gateway http`, or its floor.
#[derive(Debug)]
pub struct HttpGateway {
    process: Process,
    /// The address of `/mcp`.
    pub address: SocketAddr,
}

impl HttpGateway {
    /// Starts a gateway that connects to the service at this socket.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(socket: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(sibling_program("context-gateway")?);
        command
            .arg("http")
            .env("CONTEXT_BACKEND", unix(socket))
            .env("GATEWAY_LISTEN", address.to_string());
        Self::wait(command, address, socket.with_extension("gateway.log"))
    }

    /// Starts the gateway's floor: rmcp and one tonic call.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start_floor(socket: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("floor-http")
            .arg(socket)
            .arg(address.to_string());
        Self::wait(command, address, socket.with_extension("floor-gateway.log"))
    }

    fn wait(command: Command, address: SocketAddr, log: PathBuf) -> Result<Self> {
        let mut process = Process::start(command, log)?;
        process.wait_for(address)?;
        Ok(Self { process, address })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// The command of `context-gateway stdio` for the service at this socket.
///
/// # Errors
/// The program is missing.
pub fn stdio_gateway(socket: &Path) -> Result<Command> {
    let mut command = Command::new(sibling_program("context-gateway")?);
    command.arg("stdio").env("CONTEXT_BACKEND", unix(socket));
    isolate(&mut command);
    Ok(command)
}

/// The command of the stdio gateway's floor: rmcp on stdio and one tonic call.
///
/// # Errors
/// The path of this program is unknown.
pub fn stdio_floor(socket: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("floor-stdio").arg(socket);
    Ok(command)
}

fn unix(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

/// The echo process: a bare tonic service and a bare axum route, both on one port and on a Unix socket.
#[derive(Debug)]
pub struct Echo {
    process: Process,
    /// The address of both.
    pub address: SocketAddr,
    /// The Unix socket.
    pub socket: PathBuf,
}

impl Echo {
    /// Starts the process and waits until it listens.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(dir: &Path) -> Result<Self> {
        let mut echo = Self::spawn(dir)?;
        echo.process.wait_for(echo.address)?;
        Ok(echo)
    }

    /// Like [`start`](Self::start), without waiting.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(dir: &Path) -> Result<Self> {
        let address = free_address()?;
        let socket = dir.join(format!("echo-{}.sock", address.port()));
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("floor-echo")
            .arg(&socket)
            .arg(address.to_string());
        let process = Process::start(command, socket.with_extension("log"))?;
        Ok(Self {
            process,
            address,
            socket,
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
