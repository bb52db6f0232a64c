//! Limits of requests and owners.

use clap::Args;
use context_engine::{ChangesConfig, Quotas};

use super::value::number;

/// Limits of one request and of each owner. MAX_TOTAL_SIZE_MB also decides the largest message of every transport.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitSettings {
    /// Maximum number of characters in one entry's text, 1 to 50 000 000.
    #[arg(long, env = "MAX_TEXT_CHARS", value_name = "N", default_value = "1000000", value_parser = number(1, 50_000_000), global = true)]
    pub max_text_chars: u64,

    /// Maximum size of one decoded image in megabytes (1024 × 1024 bytes), 1 to 1024.
    #[arg(long, env = "MAX_IMAGE_SIZE_MB", value_name = "MB", default_value = "10", value_parser = number(1, 1024), global = true)]
    pub max_image_size_mb: u64,

    /// Maximum total size of the decoded images of one request or batch in megabytes, 1 to 1024.
    #[arg(long, env = "MAX_TOTAL_SIZE_MB", value_name = "MB", default_value = "100", value_parser = number(1, 1024), global = true)]
    pub max_total_size_mb: u64,

    /// Maximum number of context entries of each owner, 0 to 1 000 000 000 000; 0 means no limit.
    #[arg(long = "quota-entries", env = "CONTEXT_QUOTA_ENTRIES", value_name = "N", default_value = "0", value_parser = number(0, 1_000_000_000_000), global = true)]
    pub quota_entries: u64,

    /// Maximum number of artifacts of each owner, 0 to 1 000 000 000 000; 0 means no limit.
    #[arg(long = "quota-artifacts", env = "CONTEXT_QUOTA_ARTIFACTS", value_name = "N", default_value = "0", value_parser = number(0, 1_000_000_000_000), global = true)]
    pub quota_artifacts: u64,

    /// Maximum storage of each owner in megabytes (1024 × 1024 bytes), 0 to 1 000 000 000; 0 means no limit.
    ///
    /// Texts, metadata, tags, images, all versions of artifacts, their paths and stored outcomes of requests count
    /// towards it.
    #[arg(long = "quota-mb", env = "CONTEXT_QUOTA_MB", value_name = "MB", default_value = "0", value_parser = number(0, 1_000_000_000), global = true)]
    pub quota_mb: u64,

    /// Days that a change stays in the feed of changes, 1 to 36 500. AUDIT_RETENTION_DAYS limits the audit log.
    #[arg(long, env = "CHANGES_RETENTION_DAYS", value_name = "DAYS", default_value = "30", value_parser = number(1, 36_500), global = true)]
    pub changes_retention_days: u64,

    /// Maximum number of changes of each owner in the feed of changes, 1000 to 1 000 000 000 000. Older ones are removed
    /// from the feed, not from the audit log.
    #[arg(long, env = "CHANGES_MAX_ROWS", value_name = "N", default_value = "10000000", value_parser = number(1000, 1_000_000_000_000), global = true)]
    pub changes_max_rows: u64,

    /// Days that a line stays in the audit log, 0 to 36 500; 0 means forever.
    ///
    /// A change that is still in the feed of changes stays in the audit log too.
    #[arg(long, env = "AUDIT_RETENTION_DAYS", value_name = "DAYS", default_value = "0", value_parser = number(0, 36_500), global = true)]
    pub audit_retention_days: u64,

    /// Maximum size of each owner's stored request outcomes in megabytes (1024 × 1024 bytes), 1 to 1 000 000.
    ///
    /// The outcome of a request with an idempotency key is stored for 24 hours. That of a single write takes about 200
    /// bytes.
    #[arg(long, env = "CONTEXT_IDEMPOTENCY_MB", value_name = "MB", default_value = "64", value_parser = number(1, 1_000_000), global = true)]
    pub idempotency_mb: u64,
}

impl LimitSettings {
    /// The quotas of each owner.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        let quota = |n: u64| (n > 0).then_some(n);
        Quotas {
            entries: quota(self.quota_entries),
            artifacts: quota(self.quota_artifacts),
            bytes: quota(self.quota_mb).map(|megabytes| megabytes.saturating_mul(1024 * 1024)),
        }
    }

    /// How long changes stay in the feed.
    #[must_use]
    pub fn changes(&self) -> ChangesConfig {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        ChangesConfig {
            retention_days: number(self.changes_retention_days),
            max_rows: number(self.changes_max_rows),
        }
    }

    /// How many days lines stay in the audit log; `None` forever.
    #[must_use]
    pub fn audit_days(&self) -> Option<i64> {
        i64::try_from(self.audit_retention_days)
            .ok()
            .filter(|days| *days > 0)
    }

    /// The limits of a request.
    #[must_use]
    pub fn limits(&self) -> context_model::Limits {
        let max_text_chars = usize::try_from(self.max_text_chars).unwrap_or(usize::MAX);
        context_model::Limits::new(
            max_text_chars,
            self.max_image_size_mb,
            self.max_total_size_mb,
        )
    }
}
