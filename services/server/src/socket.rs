//! The Unix socket. It is private to its user and never taken from a service that still responds.

use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A bound socket. Dropping it removes its file; drop the listener first.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Device and inode, so that a successor's file of the same name is not removed.
    identity: (u64, u64),
}

/// Why a socket was not bound. Each message is a sentence.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another service responds on it.
    #[error("another service responds on the socket {}; stop it, or set CONTEXT_SOCKET to another path", .0.display())]
    InUse(PathBuf),
    /// A file that is not a socket has this path.
    #[error("{} exists and is not a socket; remove it, or set CONTEXT_SOCKET to another path", .0.display())]
    NotASocket(PathBuf),
    /// The directory belongs to another user.
    #[error("the directory {} belongs to another user; set CONTEXT_SOCKET to a path in a directory of your own", .0.display())]
    ForeignDirectory(PathBuf),
    /// Anything else.
    #[error("the socket {} cannot be opened: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Socket {
    /// Binds a socket with mode 0600. A missing directory is created with mode 0700. A stale file of a killed service is
    /// replaced.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(path: &Path) -> Result<(Self, UnixListener), BindError> {
        let failed = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        prepare_directory(path)?;
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path).await?;
                UnixListener::bind(path)
            }
            outcome => outcome,
        }
        .map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let identity = identity(path).map_err(failed)?;
        Ok((
            Self {
                path: path.to_owned(),
                identity,
            },
            listener,
        ))
    }

    /// The path of its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Inodes are reused, so a successor's file can look like this one; but then the successor
        // responds.
        let ours = identity(&self.path).is_ok_and(|found| found == self.identity);
        if ours && std::os::unix::net::UnixStream::connect(&self.path).is_err() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn prepare_directory(path: &Path) -> Result<(), BindError> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    let failed = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let uid = rustix::process::geteuid().as_raw();
    if directory == context_model::local::runtime_dir(uid) {
        let ours = context_model::local::make_runtime_dir(uid).map_err(failed)?;
        return ours
            .map(drop)
            .ok_or_else(|| BindError::ForeignDirectory(directory.to_owned()));
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)
}

async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(BindError::InUse(path.to_owned())),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_without_a_listener_is_replaced_and_one_with_a_listener_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("inner").join("s.sock");
        let (socket, listener) = Socket::bind(&path).await.unwrap();
        assert!(matches!(
            Socket::bind(&path).await,
            Err(BindError::InUse(_))
        ));
        // A killed process closes its listener and leaves the file.
        drop(listener);
        let (successor, listener) = Socket::bind(&path).await.unwrap();
        drop(socket);
        assert!(path.exists(), "the successor's file stays");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777,
            0o700
        );
        drop(listener);
        drop(successor);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(
            Socket::bind(&path).await,
            Err(BindError::NotASocket(_))
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
