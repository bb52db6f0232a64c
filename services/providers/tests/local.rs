//! A local model: a small network with random weights.

use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{Embedder as _, Role, TokenCodes};

/// The network that the tests of `context-bert` use as reference.
fn embedder(prefixes: Prefixes) -> LocalEmbedder {
    let directory = ModelDirectory::new(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../bert/tests/reference/cross-encoder"
        ),
        None,
    );
    LocalEmbedder::load(&directory, prefixes, ChunkSettings::default()).expect("the model loads")
}

#[tokio::test]
async fn one_pass_gives_what_two_give() {
    let embedder = embedder(Prefixes::default());
    let texts: Vec<String> = [
        "agents search threads",
        "",
        "tags and metadata of the database",
    ]
    .map(str::to_owned)
    .to_vec();
    let alone = embedder
        .embed(texts.clone(), Role::Document)
        .await
        .expect("embedded");
    let tokens = embedder
        .token_vectors(texts.clone(), Role::Document)
        .await
        .expect("embedded")
        .expect("a local model returns them");
    let together = embedder
        .embed_with_tokens(texts, Role::Document)
        .await
        .expect("embedded");
    assert_eq!((alone.len(), tokens.len(), together.len()), (3, 3, 3));
    let has_tokens: Vec<bool> = tokens.iter().map(|text| !text.ids.is_empty()).collect();
    assert_eq!(has_tokens, [true, false, true]);
    for ((alone, tokens), together) in alone.iter().zip(&tokens).zip(&together) {
        assert_eq!(alone.len(), together.vector.len());
        // `all` rather than the largest difference, since `f32::max` ignores NaN.
        assert!(
            alone
                .iter()
                .zip(&together.vector)
                .all(|(a, b)| (a - b).abs() < 1e-5),
            "{alone:?} {:?}",
            together.vector
        );
        let codes = together
            .tokens
            .as_ref()
            .expect("they are returned together");
        assert_eq!(codes.tokens(), tokens.ids.len());
        assert_eq!(
            codes.tokens(),
            TokenCodes::encode(&tokens.vectors, embedder.model().dimensions).tokens()
        );
        let similarities = codes.best_similarities(tokens);
        assert_eq!(similarities.len(), tokens.ids.len());
        assert!(
            similarities.iter().all(|itself| *itself > 0.98),
            "each token finds itself: {similarities:?}"
        );
    }
}

#[tokio::test]
async fn a_query_has_the_same_vectors_from_one_pass_as_from_two() {
    for prefix in ["", "tags of "] {
        let embedder = embedder(Prefixes {
            query: prefix.to_owned(),
            document: String::new(),
        });
        for query in ["agents search threads", "", "why"] {
            let alone = embedder
                .embed(vec![query.to_owned()], Role::Query)
                .await
                .expect("embedded");
            let tokens = embedder
                .token_vectors(vec![query.to_owned()], Role::Query)
                .await
                .expect("embedded");
            let both = embedder
                .embed_query(query.to_owned())
                .await
                .expect("embedded");
            assert_eq!(
                (vec![both.vector], both.tokens.map(|tokens| vec![tokens])),
                (alone, tokens),
                "{prefix}{query}"
            );
        }
    }
}

#[test]
fn the_prefixes_of_a_model_come_from_its_directory() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../bert/tests/reference");
    let prefixes =
        |model: &str| ModelDirectory::new(format!("{reference}/{model}"), None).prefixes();
    let found = prefixes("multilingual").expect("they are read");
    assert_eq!((&*found.query, &*found.document), ("query: ", "passage: "));
    assert_eq!(
        prefixes("cross-encoder").expect("there are none"),
        Prefixes::default()
    );

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config_sentence_transformers.json");
    let read = || ModelDirectory::new(directory.path(), None).prefixes();
    for (content, query, document) in [
        (
            r#"{"prompts": {"query": "q ", "passage": "p "}, "other": 1}"#,
            "q ",
            "p ",
        ),
        (r#"{"prompts": {"query": "q "}}"#, "q ", ""),
        (r#"{"prompts": {}, "default_prompt_name": null}"#, "", ""),
    ] {
        std::fs::write(&file, content).expect("written");
        let found = read().expect("it is read");
        assert_eq!(
            (&*found.query, &*found.document),
            (query, document),
            "{content}"
        );
    }
    std::fs::write(&file, "[").expect("written");
    let error = read().expect_err("it is malformed").to_string();
    assert!(
        error.contains("config_sentence_transformers.json"),
        "{error}"
    );
}
