//! Where an agent works, and whether hooks capture there.

use std::path::Path;

use super::ignore::Ignored;
use super::project::Project;
use crate::backend::Target;
use crate::cli::{CaptureMode, HookSettings, ProjectNames};

/// Where an agent works.
#[derive(Debug)]
pub struct Place {
    /// The project.
    pub project: Project,
    /// The project's name in entries.
    pub key: String,
    /// The rules that exclude this place or parts of it.
    pub ignored: Ignored,
}

impl Place {
    /// The place with this working directory.
    pub fn of(directory: &Path, settings: &HookSettings) -> Self {
        let project = Project::of(directory);
        Self {
            key: project.key(settings.project_names == ProjectNames::Hashed),
            ignored: Ignored::of(&project, directory, &settings.exclude),
            project,
        }
    }
}

/// Whether hooks capture with these settings.
///
/// # Errors
/// The reason why they do not.
pub fn captures(mode: CaptureMode, target: &Target) -> Result<(), &'static str> {
    match mode {
        CaptureMode::On => Ok(()),
        CaptureMode::Off => Err("CONTEXT_HOOK_CAPTURE is off"),
        CaptureMode::Auto if is_on_this_machine(target) => Ok(()),
        CaptureMode::Auto => {
            Err("CONTEXT_BACKEND is another machine and CONTEXT_HOOK_CAPTURE is not on")
        }
    }
}

/// Whether the service runs on this machine.
pub fn is_on_this_machine(target: &Target) -> bool {
    let Target::Tcp(url) = target else {
        return true;
    };
    let uri = url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
