//! Chooses the summary provider from the settings.

use std::sync::Arc;
use std::time::Duration;

use context_engine::{Engine, Switch};
use context_providers::Summarizer as _;
use context_providers::http::{HttpSummarizer, SummaryDialect};
use tokio::task::AbortHandle;

use crate::config::{Config, SummaryProvider, Url, ollama_address};
use crate::models::access;

/// The summary provider of these settings; `None` if there is none.
///
/// # Errors
/// A sentence to print at start: a setting is missing or unusable.
pub fn choose(config: &Config) -> Result<Option<HttpSummarizer>, String> {
    let models = &config.models;
    let model = models.summary_model.as_deref();
    let dialect = match (
        models.enable_summary_generation,
        models.summary_provider,
        model,
    ) {
        (Switch::False, _, _)
        | (_, SummaryProvider::None, _)
        | (Switch::Auto, SummaryProvider::Auto, None) => return Ok(None),
        (_, SummaryProvider::Ollama, _)
        | (_, SummaryProvider::Auto, Some(_))
        | (Switch::True, SummaryProvider::Auto, None) => SummaryDialect::Ollama,
        (_, SummaryProvider::Openai, _) => SummaryDialect::OpenAi,
        (_, SummaryProvider::Anthropic, _) => SummaryDialect::Anthropic,
    };
    let provider = dialect.name();
    let model = model
        .or(dialect.default_model())
        .ok_or_else(|| format!("SUMMARY_PROVIDER is `{provider}`, which needs SUMMARY_MODEL"))?;
    let of_ollama = models
        .ollama_host
        .as_ref()
        .filter(|_| dialect == SummaryDialect::Ollama)
        .map(|host| ollama_address(host.as_str()));
    let url = models
        .summary_url
        .as_ref()
        .map(Url::as_str)
        .or(of_ollama.as_deref())
        .unwrap_or_else(|| dialect.default_url());
    let access = access(
        url,
        models.summary_api_key.as_ref(),
        Duration::from_secs(models.summary_timeout_seconds),
    );
    let max_tokens = u32::try_from(models.summary_max_tokens).unwrap_or(u32::MAX);
    HttpSummarizer::new(&access, dialect, model, max_tokens)
        .map(Some)
        .map_err(|error| format!("summaries by {provider}: {error}"))
}

/// A warning if summaries are required, but the provider is `none` or no setting names a model. `true` is the
/// documented default of mcp-context-server.
pub fn warning(config: &Config) -> Option<String> {
    let models = &config.models;
    if models.enable_summary_generation != Switch::True {
        return None;
    }
    match models.summary_provider {
        SummaryProvider::None => Some(
            "ENABLE_SUMMARY_GENERATION is true, but SUMMARY_PROVIDER is `none`, so no summaries are written".to_owned(),
        ),
        SummaryProvider::Auto if models.summary_model.is_some() => None,
        SummaryProvider::Auto => SummaryDialect::Ollama.default_model().map(|model| {
            format!(
                "ENABLE_SUMMARY_GENERATION is true, but SUMMARY_MODEL is not set; summaries are written once Ollama has the model `{model}`"
            )
        }),
        SummaryProvider::Ollama | SummaryProvider::Openai | SummaryProvider::Anthropic => None,
    }
}

/// Gives the engine its summary provider. The returned task writes summaries in the background.
///
/// # Errors
/// As [`choose`].
pub fn install(engine: &Engine, config: &Config) -> Result<Option<AbortHandle>, String> {
    if let Some(warning) = warning(config) {
        tracing::warn!("{warning}");
    }
    let Some(summarizer) = choose(config)? else {
        return Ok(None);
    };
    tracing::info!(
        provider = summarizer.provider(),
        "Summaries use model `{}`",
        summarizer.model()
    );
    let summaries = Arc::clone(&engine.background.summaries);
    summaries.use_summarizer(Arc::new(summarizer));
    Ok(Some(
        tokio::spawn(async move { summaries.summarize().await }).abort_handle(),
    ))
}
