//! The requests of MCP that the gateway answers.

use std::pin::pin;

use context_model::{Operation, Reason, nearest};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ContentBlock, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, InitializeRequestParams,
    InitializeResult, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SubscribeRequestMethod, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestMethod, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::watch;
use tonic::metadata::MetadataMap;

use super::{Gateway, MAX_LISTENERS, implementation};
use crate::call::tool_operation;
use crate::catalogue::Catalogue;
use crate::subscriptions::{Followed, MAX_SUBSCRIPTIONS, Recipient, follow};
use crate::{prompts, resources};

/// The methods that this server implements.
const METHODS: [&str; 13] = [
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
];

/// The methods that exist only in protocol revisions with `initialize`.
const EARLIER_METHODS: [&str; 4] = [
    "initialize",
    "ping",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// How long clients may cache a listing: five minutes. It changes only if a feature is switched on
/// or off.
const LISTING_TTL_MS: u64 = 300_000;

impl ServerHandler for Gateway {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .build();
        if let Some(resources) = &mut capabilities.resources {
            // Without it, rmcp removes the resources from every `subscriptions/listen`.
            resources.subscribe = Some(true);
        }
        ServerConfig::new(capabilities)
            .with_server_info(implementation())
            .with_instructions(self.instructions.as_str())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut result = self.negotiate_initialize(&request)?;
        // In the revisions with `initialize` it stands for `resources/subscribe`, which does not work over HTTP.
        if self.is_shared()
            && let Some(resources) = &mut result.capabilities.resources
        {
            resources.subscribe = None;
        }
        context.peer.set_peer_info(request);
        Ok(result)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut result = DiscoverResult::from_server_info(
            self.supported_protocol_versions().into_owned(),
            self.get_info(),
        );
        result.ttl_ms = LISTING_TTL_MS;
        result.cache_scope = CacheScope::Public;
        Ok(result)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        refuse_cursor(request.as_ref())?;
        let tools = self.features.listed(self.tools.listed());
        let mut result = ListToolsResult::with_all_items(tools)
            .with_ttl_ms(LISTING_TTL_MS)
            .with_cache_scope(CacheScope::Public);
        result.meta = self.stamp();
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.find(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (Some(tool), Some(operation)) = (
            self.tools.find(&request.name),
            tool_operation(&request.name),
        ) else {
            let shown: String = request.name.chars().take(64).collect();
            // The name of a disabled tool is no typing error.
            let is_typo = Catalogue::get().find(&request.name).is_none();
            let hint = nearest(&shown, self.tools.callable().map(|tool| &*tool.name))
                .filter(|_| is_typo)
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            return Err(ErrorData::invalid_params(
                format!("unknown tool `{shown}`{hint}"),
                None,
            ));
        };
        let arguments = request.arguments.unwrap_or_default();
        let mut result = self
            .call(tool, operation, arguments, &context)
            .await
            .ok_or_else(cancelled)?;
        // Over HTTP the warning concerns the operator, who finds it in the log.
        if !self.is_shared()
            && let Some(warning) = self.backend.notice().take()
        {
            result.content.push(ContentBlock::text(warning));
        }
        Ok(result.with_meta(self.stamp()).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        // Completion is not declared; rmcp's default would return an empty list anyway.
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        refuse_cursor(request.as_ref())?;
        let mut result = ListPromptsResult::with_all_items(prompts::list(|tool| self.offers(tool)))
            .with_ttl_ms(LISTING_TTL_MS)
            .with_cache_scope(CacheScope::Public);
        result.meta = self.stamp();
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut result = prompts::get(&request, |tool| self.offers(tool))?;
        result.meta = self.stamp();
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        refuse_cursor(request.as_ref())?;
        let mut result = ListResourcesResult::with_all_items(Vec::new())
            .with_ttl_ms(LISTING_TTL_MS)
            .with_cache_scope(CacheScope::Public);
        result.meta = self.stamp();
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        refuse_cursor(request.as_ref())?;
        let templates = resources::templates(|operation| self.offers(operation));
        let mut result = ListResourceTemplatesResult::with_all_items(templates)
            .with_ttl_ms(LISTING_TTL_MS)
            .with_cache_scope(CacheScope::Public);
        result.meta = self.stamp();
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let resource = self.resource(&request.uri)?;
        let reply = self
            .run(resource.operation(), resource.arguments(), &context)
            .await
            .ok_or_else(cancelled)?
            .map_err(|error| match error.reason {
                Reason::ArtifactNotFound => resources::not_found(&request.uri),
                _ => resources::unreadable(error),
            })?;
        let contents = resource.contents(&request.uri, &reply.structured)?;
        let mut result = ReadResourceResult::new(contents);
        result.cache_scope = Some(CacheScope::Private);
        result.ttl_ms = Some(0);
        result.meta = self.stamp();
        Ok(result.into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Only the revisions with `initialize` have this method. Over HTTP, the gateway has no stream for their
        // notifications.
        if self.is_shared() {
            return Err(ErrorData::method_not_found::<SubscribeRequestMethod>());
        }
        let resource = self.resource(&request.uri)?;
        // Changes after this cursor are announced, so none is missed after this reply.
        let cursor = async {
            let mut arguments = JsonObject::new();
            arguments.insert("cursor".to_owned(), "now".into());
            let reply = self.run(Operation::ListChanges, arguments, &context).await;
            let reply = reply
                .ok_or_else(cancelled)?
                .map_err(resources::unreadable)?;
            let cursor = reply.structured["next_cursor"].as_str();
            Ok(cursor.unwrap_or("now").to_owned())
        };
        let credentials = self.credentials.clone();
        let metadata = move || {
            let mut metadata = MetadataMap::new();
            if let Some(value) = credentials.authorization(None) {
                metadata.insert("authorization", value);
            }
            metadata
        };
        self.subscriptions
            .start(&self.backend, metadata, cursor, &context.peer)
            .await?;
        self.subscriptions.add(&request.uri, resource)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.is_shared() {
            return Err(ErrorData::method_not_found::<UnsubscribeRequestMethod>());
        }
        let resource = self.resource(&request.uri)?;
        self.subscriptions.remove(&request.uri, &resource);
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(64).collect();
        // A request whose metadata names its protocol revision belongs to a revision without these methods.
        let is_known = METHODS.contains(&method.as_str())
            && (!EARLIER_METHODS.contains(&method.as_str())
                || context.meta.protocol_version().is_none());
        // rmcp passes standard requests here if their parameters do not match the protocol.
        if is_known {
            let sentence = format!(
                "Invalid params: the parameters of `{method}` do not have the form that MCP defines"
            );
            return Err(ErrorData::invalid_params(sentence, None));
        }
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("unknown method `{method}`"),
            None,
        ))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten();
        let readable = uris.filter(|uri| self.resource(uri).is_ok());
        let accepted = SubscriptionFilter::builder()
            .tools_list_changed()
            .resource_subscriptions(readable.take(MAX_SUBSCRIPTIONS));
        Some(accepted.build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // Over HTTP, `http/streams.rs` limits the number of listeners.
        let _permit = match self.is_shared() {
            true => None,
            false => Some(self.listeners.try_acquire().map_err(|_| {
                let sentence = format!("a client can listen at most {MAX_LISTENERS} times at once");
                ErrorData::invalid_request(sentence, None)
            })?),
        };
        // rmcp refuses a notification that was not requested, and that error would end the listener.
        let wants_tools = context.accepted().tools_list_changed == Some(true);
        let mut changes = self.features.changes();
        let mut followed = Followed::default();
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            followed.add(uri, self.resource(uri)?);
        }
        let has_subscriptions = !followed.is_empty();
        let (_keep, followed) = watch::channel(followed);
        let metadata = || self.metadata(context.request_context());
        let recipient = Recipient::Listener(context.sink().clone());
        let mut following = pin!(follow(&self.backend, metadata, None, followed, recipient));
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                ended = &mut following, if has_subscriptions => return ended.map_err(resources::unreadable),
                changed = changes.changed(), if wants_tools => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Each listing is a single page, so the gateway never issues a cursor.
fn refuse_cursor(request: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor.as_ref()) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params(
            "unknown cursor; this list has one page",
            None,
        )),
    }
}

/// The response to a cancelled request. Usually no client reads it. If a client uses the id of a running request again,
/// rmcp cancels the later request when the earlier one ends. That is the client's mistake and not an internal error.
fn cancelled() -> ErrorData {
    ErrorData::invalid_request(
        "the request was cancelled, or its id was used again while it ran",
        None,
    )
}
