//! The MCP server. The lists of tools, prompts and resource templates are part of this binary. Tool calls, resource
//! reads and subscriptions go to the context service.

mod requests;

use std::sync::Arc;

use context_model::{Operation, Reason};
use http::request::Parts;
use rmcp::model::{CallToolResult, Implementation, JsonObject, MetaObject, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;

use crate::backend::Backend;
use crate::brief::ShownWarnings;
use crate::call::{Call, deadline, text_field, too_late};
use crate::catalogue::Selection;
pub use crate::credentials::Credentials;
use crate::features::Features;
use crate::memory::Lease;
use crate::resources::Resource;
use crate::subscriptions::Subscriptions;
use crate::{lenient, reply, resources};

/// Maximum number of `subscriptions/listen` requests that run at once on stdio.
const MAX_LISTENERS: usize = 64;

/// The MCP server, shared by all connections.
#[derive(Debug)]
pub struct Gateway {
    backend: Backend,
    credentials: Credentials,
    features: Arc<Features>,
    tools: Selection,
    /// What agents are told at the start of a session.
    instructions: String,
    /// The warnings that the conversation has already shown, on stdio.
    shown_warnings: ShownWarnings,
    /// The resources that the client subscribed to, on stdio.
    subscriptions: Subscriptions,
    /// Permits for `subscriptions/listen` on stdio. Such a request runs until it is cancelled, and the transport reads
    /// nothing more while too many requests run.
    listeners: Semaphore,
    /// `_meta` with `serverInfo`, added to the results of lists, tool calls, prompts and resource reads.
    stamp: MetaObject,
}

impl Gateway {
    /// A gateway to `backend` that lists the default tools.
    #[must_use]
    pub fn new(backend: Backend, credentials: Credentials) -> Arc<Self> {
        Self::with_tools(backend, credentials, Selection::default())
    }

    /// A gateway with these tools. Tools that are not listed can still be called, except the disabled ones.
    #[must_use]
    pub fn with_tools(backend: Backend, credentials: Credentials, tools: Selection) -> Arc<Self> {
        let mut stamp = JsonObject::new();
        let info = serde_json::to_value(implementation()).unwrap_or_default();
        stamp.insert("io.modelcontextprotocol/serverInfo".to_owned(), info);
        let features = Arc::new(Features::load(backend.features_file()));
        Arc::new(Self {
            backend,
            credentials,
            features,
            instructions: tools.instructions(),
            tools,
            shown_warnings: ShownWarnings::default(),
            subscriptions: Subscriptions::default(),
            listeners: Semaphore::new(MAX_LISTENERS),
            stamp: MetaObject(stamp),
        })
    }

    /// The connections to the service.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Which tools are listed, and which can be called.
    #[must_use]
    pub fn tools(&self) -> &Selection {
        &self.tools
    }

    /// What is known about the service's features.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether the tool of this operation is enabled. A resource is available only with the tool that reads it, and a
    /// prompt only with those that it names.
    fn offers(&self, operation: Operation) -> bool {
        self.tools.find(operation.as_str()).is_some()
    }

    /// The resource that a URI names, if its tool is enabled; otherwise an error.
    fn resource(&self, uri: &str) -> Result<Resource, ErrorData> {
        let resource = Resource::parse(uri)?;
        if self.offers(resource.operation()) {
            Ok(resource)
        } else {
            Err(resources::disabled(uri, resource.operation()))
        }
    }

    /// Whether several clients share this gateway, as over HTTP. A stdio gateway has one client, with one conversation.
    const fn is_shared(&self) -> bool {
        matches!(self.credentials, Credentials::Callers)
    }

    fn stamp(&self) -> Option<MetaObject> {
        Some(self.stamp.clone())
    }

    /// The gRPC metadata of a request: authorization and trace context.
    fn metadata(&self, context: &RequestContext<RoleServer>) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        if let Some(value) = self.credentials.authorization(context.extensions.get()) {
            metadata.insert("authorization", value);
        }
        for (key, value) in [
            ("traceparent", context.meta.get_traceparent()),
            ("tracestate", context.meta.get_tracestate()),
        ] {
            if let Some(value) = value
                .filter(|value| value.len() <= 512)
                .and_then(|value| value.parse().ok())
            {
                metadata.insert(key, value);
            }
        }
        metadata
    }

    /// Runs one operation until it ends, its deadline passes, or the client cancels it. `None` if
    /// cancelled.
    pub(crate) async fn run(
        &self,
        operation: Operation,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Option<context_model::Result<reply::Reply>> {
        let deadline = deadline(operation);
        let call = Call {
            backend: &self.backend,
            metadata: self.metadata(context),
            operation,
            lease: lease(context),
        };
        let outcome = tokio::select! {
            biased;
            // Dropping the call resets its stream. The service then stops a read. A write that has begun runs to its
            // end.
            () = context.ct.cancelled() => return None,
            outcome = tokio::time::timeout(deadline, call.run(arguments)) => outcome.unwrap_or_else(|_| Err(too_late(operation))),
        };
        self.features.observe(operation, &outcome);
        let has_response = match &outcome {
            Ok(_) => true,
            Err(error) => error.reason == Reason::FeatureUnavailable,
        };
        if has_response && self.features.should_read_statistics() {
            self.read_statistics(self.metadata(context));
        }
        Some(outcome)
    }

    /// Reads the statistics in the background, with the credentials of the call that just got its response.
    fn read_statistics(&self, metadata: MetadataMap) {
        let (backend, features) = (self.backend.clone(), self.features.clone());
        tokio::spawn(async move {
            let operation = Operation::GetStatistics;
            let call = Call {
                backend: &backend,
                metadata,
                operation,
                lease: None,
            };
            let outcome = tokio::time::timeout(deadline(operation), call.run(JsonObject::new()))
                .await
                .unwrap_or_else(|_| Err(too_late(operation)));
            features.observe(operation, &outcome);
        });
    }

    /// Runs a tool call: repairs the arguments, runs the operation, and turns its reply or error into the client's
    /// result. `None` if cancelled.
    async fn call(
        &self,
        tool: &Tool,
        operation: Operation,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Option<CallToolResult> {
        let lease = lease(context);
        let outcome = match lenient::arguments(&tool.input_schema, arguments, lease.as_deref()) {
            Ok(arguments) => self.run(operation, arguments, context).await?,
            Err(error) => Err(error),
        };
        Some(match outcome {
            Ok(mut reply) => {
                tracing::debug!(tool = operation.as_str(), "Tool call succeeded");
                if !self.is_shared() {
                    self.shown_warnings.remove_repeated(&mut reply.structured);
                }
                reply.into_result()
            }
            Err(error) => {
                if error.reason == Reason::Internal {
                    tracing::error!(tool = operation.as_str(), ?error, "Tool call failed");
                } else {
                    tracing::debug!(
                        tool = operation.as_str(),
                        reason = error.reason.as_str(),
                        "Tool call returned an error"
                    );
                }
                if operation.resource() == context_model::Resource::Artifact {
                    reply::documented_failure(&error, text_field(operation).is_some())
                } else {
                    reply::failure(&error)
                }
            }
        })
    }
}

/// The memory lease of this request, if the transport has one.
fn lease(context: &RequestContext<RoleServer>) -> Option<Arc<Lease>> {
    let of_http = || {
        context
            .extensions
            .get::<Parts>()
            .and_then(|parts| parts.extensions.get::<Arc<Lease>>())
    };
    context
        .extensions
        .get::<Arc<Lease>>()
        .or_else(of_http)
        .cloned()
}

/// This server's name and version.
fn implementation() -> Implementation {
    Implementation::new("context-gateway", env!("CARGO_PKG_VERSION"))
        .with_title("Context service")
        .with_description("Shared, durable, searchable memory for agents")
}
