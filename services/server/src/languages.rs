//! Which languages the stored texts are in, and which embedding model reads them.

use std::collections::BTreeMap;

use context_model::Filter;
use context_providers::fetch::{ALL_MINILM_L6_V2, BGE_SMALL_EN_V1_5, MULTILINGUAL_E5_SMALL};
use context_store::{Memory, Page, Read, RowSelection, Store, StoreError};
use context_text::guess_language;

/// Number of entries that are read: the newest of an owner.
pub const SAMPLE: u32 = 100;

/// Number of characters that are read of each text.
const CHARS: u32 = 300;

/// Maximum size of a sample in bytes. Metadata, tags and summaries count too, because they are read with the texts.
const MAX_SAMPLE_BYTES: u64 = 64 * 1024 * 1024;

/// The beginnings of the newest texts of the owner that has the most entries.
///
/// # Errors
/// The store's errors.
pub async fn sample(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let owners = store.keys().list_owners().await?;
    let Some(largest) = owners.into_iter().max_by_key(|owner| owner.contexts) else {
        return Ok(Vec::new());
    };
    let selection = RowSelection {
        images: false,
        text_chars: Some(CHARS),
        explain: false,
        max_bytes: MAX_SAMPLE_BYTES,
        memory: Memory::UNCOUNTED,
    };
    let page = Page {
        limit: SAMPLE,
        offset: 0,
    };
    let found = store
        .search_contexts(
            &largest.owner,
            Filter::default(),
            page,
            selection,
            Read::default(),
        )
        .await?;
    Ok(found.entries.into_iter().map(|entry| entry.text).collect())
}

/// One sentence about the languages of the texts, and what to do about the embedding model. The first value is whether
/// the model fits. `model` is the name of the model inside the service, or `None` without an embedding model. Returns
/// `None` if no language is recognised.
#[must_use]
pub fn advice(texts: &[String], model: Option<&str>) -> Option<(bool, String)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for language in texts.iter().filter_map(|text| guess_language(text)) {
        *counts.entry(language).or_default() += 1;
    }
    let recognised: usize = counts.values().sum();
    let others = counts
        .iter()
        .filter(|(language, _)| **language != "English");
    let other = others.max_by_key(|(_, count)| **count);
    // A tenth is enough, because a model of one language hides the entries in other languages from semantic search.
    let common_other = other.filter(|(_, count)| **count * 10 >= recognised);
    let multilingual = MULTILINGUAL_E5_SMALL.name;
    let Some((language, count)) = common_other else {
        let advice = match model {
            _ if recognised == 0 => return None,
            None => format!(
                "; `context-service fetch-model` adds semantic search for it ({} is better and slower)",
                BGE_SMALL_EN_V1_5.name
            ),
            Some(_) => String::new(),
        };
        return Some((true, format!("the stored texts look English{advice}")));
    };
    let part = if count * 2 > recognised {
        "most"
    } else {
        "some"
    };
    let finding = format!("{part} of the stored texts look {language}");
    let english_models = [ALL_MINILM_L6_V2.name, BGE_SMALL_EN_V1_5.name];
    Some(match model {
        None => (
            true,
            format!(
                "{finding}; `context-service fetch-model {multilingual}` adds semantic search for them"
            ),
        ),
        Some(model) if english_models.contains(&model) => (
            false,
            format!(
                "{finding}, but `{model}` reads English; run `context-service fetch-model {multilingual}`, then \
                 `context-service reembed`"
            ),
        ),
        Some(_) => (true, finding),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use context_engine::{Caller, Engine, SystemClock, WriteContext};
    use context_model::StoreContextRequest;

    use super::*;
    use crate::cli::Cli;
    use crate::config;

    #[tokio::test]
    async fn texts_with_large_metadata_are_sampled() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = directory.path().join("contexts.db");
        let database = format!("--db-path={}", database.display());
        let arguments = ["context-service", database.as_str()].map(Into::into);
        let cli: Cli = config::read(arguments, &|_| None).expect("settings that can be read");
        let store = crate::open::try_open(&cli.config).await.expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let clock = Arc::new(SystemClock);
        let engine =
            Engine::new(Arc::clone(&store), cli.config.engine(), clock).expect("an engine");
        let metadata = serde_json::json!({"notes": "x".repeat(100_000)});
        for text in ["first", "second"] {
            let request = StoreContextRequest {
                thread_id: "t".to_owned(),
                source: "user".to_owned(),
                text: text.to_owned(),
                metadata: metadata.as_object().cloned(),
                ..StoreContextRequest::default()
            };
            let contexts = &engine.contexts;
            contexts
                .store_context(&Caller::local(), request, WriteContext::default())
                .await
                .expect("stored");
        }
        assert_eq!(
            sample(&*store).await.expect("a sample"),
            ["second", "first"]
        );
        engine.close().await;
    }

    fn advised(texts: &[&str], model: Option<&str>) -> Option<(bool, String)> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        advice(&texts, model)
    }

    #[test]
    fn the_multilingual_model_is_advised_for_other_languages_than_english() {
        let english = "What did we decide about the database?";
        let chinese = "数据库什么时候迁移";
        let (minilm, e5) = (Some("all-MiniLM-L6-v2"), Some("multilingual-e5-small"));
        for (texts, model, fits, part) in [
            (&[english, english][..], minilm, true, "look English"),
            (&[english], None, true, "fetch-model` adds"),
            (
                &[chinese, chinese, english],
                minilm,
                false,
                "most of the stored texts look Chinese, but",
            ),
            (
                &[english, english, chinese],
                minilm,
                false,
                "fetch-model multilingual-e5-small`, then",
            ),
            (
                &[english, chinese],
                e5,
                true,
                "some of the stored texts look Chinese",
            ),
            (
                &[chinese],
                None,
                true,
                "fetch-model multilingual-e5-small` adds",
            ),
            (&[chinese], Some("mine"), true, "look Chinese"),
        ] {
            let (found_fits, sentence) = advised(texts, model).expect("the language shows");
            assert!(found_fits == fits && sentence.contains(part), "{sentence}");
        }
        let mut few = vec![english; 30];
        few.push(chinese);
        assert!(advised(&few, minilm).is_some_and(|(fits, _)| fits));
        assert_eq!(advised(&["let x = 7;", ""], minilm), None);
        assert_eq!(advised(&[], minilm), None);
    }
}
