//! The service that a copy follows.

use std::path::PathBuf;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use context_model::{
    Artifact, Entry, Error, GetArtifactVersionReply, Reason, Result, expand_variables, shown_url,
};
use context_proto::v1 as pb;
use context_proto::v1::artifact_service_client::ArtifactServiceClient;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::{error_from_status, is_from_service};
use context_store::CopiedVersion;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tower::service_fn;

/// The environment variables of the key for the source, as for the gateway. There is no flag, because other users of
/// the machine can read the command lines of processes.
const KEY: &str = "CONTEXT_API_KEY";
const KEY_FILE: &str = "CONTEXT_API_KEY_FILE";

/// Maximum number of retries of a request that the source refuses because of overload or its rate limit.
const RETRIES: usize = 6;

/// Where the key for the source comes from.
#[derive(Debug, Clone)]
pub enum Key {
    /// The source needs none.
    None,
    /// This key.
    Given(AsciiMetadataValue),
    /// A file, which another program may update. It is read for each request.
    File(PathBuf),
}

impl Key {
    /// The key of these environment variables.
    ///
    /// # Errors
    /// A sentence for the operator. It does not contain the key.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> std::result::Result<Self, String> {
        let value = |name| {
            let value = expand_variables(&env(name).unwrap_or_default(), env);
            value.trim().to_owned()
        };
        match (value(KEY), value(KEY_FILE)) {
            (key, file) if key.is_empty() && file.is_empty() => Ok(Self::None),
            (key, file) if file.is_empty() => bearer(&key).map(Self::Given),
            (key, file) if key.is_empty() => {
                let file = Self::File(context_model::local::expand_home(&file));
                file.current()?;
                Ok(file)
            }
            _ => Err(format!(
                "{KEY} and {KEY_FILE} are both set; set one of them"
            )),
        }
    }

    fn current(&self) -> std::result::Result<Option<AsciiMetadataValue>, String> {
        match self {
            Self::None => Ok(None),
            Self::Given(key) => Ok(Some(key.clone())),
            Self::File(path) => {
                let key = std::fs::read_to_string(path).map_err(|error| {
                    format!(
                        "{KEY_FILE} is {}, which cannot be read: {error}",
                        path.display()
                    )
                })?;
                if key.trim().is_empty() {
                    return Err(format!("{KEY_FILE} is {}, which is empty", path.display()));
                }
                bearer(&key).map(Some)
            }
        }
    }
}

fn bearer(key: &str) -> std::result::Result<AsciiMetadataValue, String> {
    let mut value: AsciiMetadataValue = format!("Bearer {}", key.trim())
        .parse()
        .map_err(|_| "the API key holds characters that cannot be sent in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// A connection to the source. It is opened at its first use, and again when it is lost.
#[derive(Debug, Clone)]
pub struct Source {
    shown: String,
    channel: Channel,
    key: Key,
}

impl Source {
    /// The service at `http://host:port`, `host:port` or `unix:/path`.
    ///
    /// # Errors
    /// A sentence that lists these forms.
    pub fn new(url: &str, key: Key) -> std::result::Result<Self, String> {
        let refused = || {
            format!(
                "`{}` is not an address of a context service; accepted are http://HOST:PORT, HOST:PORT and unix:/PATH",
                shown_url(url)
            )
        };
        let socket = url.strip_prefix("unix:").map(|path| {
            let path = path.strip_prefix("//").unwrap_or(path);
            PathBuf::from(path)
        });
        let address = match (&socket, url.contains("://")) {
            (Some(path), _) if !path.is_absolute() => return Err(refused()),
            (Some(_), _) => "http://context.local".to_owned(),
            (None, true) => url.to_owned(),
            (None, false) => format!("http://{url}"),
        };
        let endpoint = Endpoint::from_shared(address).map_err(|_| refused())?;
        let is_http = endpoint.uri().scheme_str() == Some("http")
            && matches!(endpoint.uri().path(), "" | "/");
        if !is_http || (socket.is_none() && endpoint.uri().port().is_none()) {
            return Err(refused());
        }
        let endpoint = endpoint
            .connect_timeout(Duration::from_secs(5))
            // A vanished source is detected within half a minute.
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true);
        let channel = match socket {
            None => endpoint.connect_lazy(),
            Some(path) => endpoint.connect_with_connector_lazy(service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            })),
        };
        Ok(Self {
            shown: shown_url(url),
            channel,
            key,
        })
    }

    /// The address, without a password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Follows the changes after this cursor. Without one, a snapshot comes first. Frames carry entries and artifacts,
    /// so that almost no further request is necessary.
    pub async fn watch(&self, cursor: Option<&str>) -> Result<Streaming<pb::WatchResponse>> {
        let request = self.request(pb::WatchRequest {
            cursor: cursor.map(str::to_owned),
            snapshot: Some(cursor.is_none()),
            include_body: Some(true),
            ..pb::WatchRequest::default()
        })?;
        let mut client =
            ChangeServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let reply = client.watch(request).await;
        Ok(reply.map_err(|status| source_error(&status))?.into_inner())
    }

    /// The owner's revision at the source now.
    pub async fn revision(&self) -> Result<i64> {
        let request = self.request(pb::ListChangesRequest {
            cursor: Some("now".to_owned()),
            ..pb::ListChangesRequest::default()
        })?;
        let mut client = ChangeServiceClient::new(self.channel.clone());
        let reply = client.list_changes(request).await;
        Ok(reply
            .map_err(|status| source_error(&status))?
            .into_inner()
            .revision)
    }

    /// An entry with its images, as it is now. `None` if it is gone or damaged.
    pub async fn entry(&self, id: i64) -> Result<Option<Entry>> {
        let fetch = || async {
            let request = self.request(pb::GetContextByIdsRequest {
                context_ids: vec![id],
                include_images: Some(true),
                min_revision: None,
            })?;
            let mut client = ContextServiceClient::new(self.channel.clone())
                .max_decoding_message_size(usize::MAX);
            let reply = client.get_context_by_ids(request).await;
            let reply = reply.map_err(|status| source_error(&status))?;
            let found = reply.into_inner().contexts.pop();
            found.map(Entry::try_from).transpose()
        };
        match retried(fetch).await {
            Err(error) if error.reason == Reason::StorageCorrupt => {
                tracing::warn!(id, "An entry is damaged at the source; the copy omits it");
                Ok(None)
            }
            fetched => fetched,
        }
    }

    /// A version of an artifact. `None` if the artifact is gone, or if the version is damaged.
    pub async fn version(&self, artifact: &str, number: i64) -> Result<Option<CopiedVersion>> {
        let fetch = || async {
            let request = self.request(pb::GetArtifactVersionRequest {
                artifact_id: artifact.to_owned(),
                version_number: number,
                min_revision: None,
            })?;
            let mut client = ArtifactServiceClient::new(self.channel.clone())
                .max_decoding_message_size(usize::MAX);
            let reply = client.get_artifact_version(request).await;
            let reply = reply.map_err(|status| source_error(&status))?;
            GetArtifactVersionReply::try_from(reply.into_inner())
        };
        match retried(fetch).await {
            Ok(reply) => Ok(Some(CopiedVersion {
                version: reply.version,
                title: reply.title,
                content: reply.content,
                metadata: reply.metadata,
                at: reply.updated_at,
            })),
            Err(error) => match error.reason {
                Reason::ArtifactNotFound | Reason::ArtifactVersionNotFound => Ok(None),
                Reason::StorageCorrupt => {
                    tracing::warn!(
                        artifact,
                        number,
                        "A version is damaged at the source; the copy omits it"
                    );
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    fn request<T>(&self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        let key = self.key.current();
        if let Some(key) = key.map_err(|sentence| Error::new(Reason::Unauthenticated, sentence))? {
            request.metadata_mut().insert("authorization", key);
        }
        Ok(request)
    }
}

/// The error in a status. One that the service itself did not send is retried, whatever its code is: a proxy that
/// responds with 401, 403 or 404 while it restarts is no refusal by the source.
pub fn source_error(status: &Status) -> Error {
    let error = error_from_status(status);
    if is_from_service(status) {
        error
    } else {
        Error::new(Reason::StoreUnavailable, error.message)
    }
}

/// The current version of an artifact.
pub fn current_version(artifact: &Artifact) -> CopiedVersion {
    CopiedVersion {
        version: artifact.version,
        title: artifact.title.clone(),
        content: artifact.content.clone(),
        metadata: artifact.metadata.clone(),
        at: artifact.updated_at,
    }
}

/// Retries a request that the source refused because of overload or its rate limit. Otherwise a snapshot would have to
/// start again.
async fn retried<T, F: Future<Output = Result<T>>>(request: impl FnMut() -> F) -> Result<T> {
    let pauses = ExponentialBuilder::new()
        .with_jitter()
        .with_max_times(RETRIES);
    request
        .retry(pauses)
        .when(|error| matches!(error.reason, Reason::Overloaded | Reason::RateLimited))
        .await
}
