//! Compares the network with the Python reference. `tests/reference/README.md` says how the files were made.

use std::path::{Path, PathBuf};

use context_bert::{Encoded, Model, ModelError, Tokens};
use serde::Deserialize;

fn reference(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/reference")
        .join(file)
}

/// The directory of all-MiniLM-L6-v2, which `scripts/test` installs.
fn minilm() -> Option<PathBuf> {
    let default =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/models/all-MiniLM-L6-v2");
    let directory = std::env::var_os("CONTEXT_TEST_MODEL").map_or(default, PathBuf::from);
    if directory.join("model.safetensors").is_file() {
        return Some(directory);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "all-MiniLM-L6-v2 is not installed; run: scripts/test model"
    );
    eprintln!("SKIPPED: all-MiniLM-L6-v2 is not installed; run: scripts/test model");
    None
}

#[derive(Deserialize)]
struct Pair {
    query: String,
    passage: String,
    logit: f32,
}

#[test]
fn sentence_vectors_equal_those_of_sentence_transformers() {
    let Some(directory) = minilm() else { return };
    let (model, tokens) = (
        Model::load(&directory).unwrap(),
        Tokens::load(&directory).unwrap(),
    );
    let texts: Vec<String> =
        serde_json::from_slice(&std::fs::read(reference("minilm_texts.json")).unwrap()).unwrap();
    let expected = std::fs::read(reference("minilm_vectors.f16")).unwrap();
    let expected: Vec<f32> = expected
        .chunks_exact(2)
        .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
        .collect();
    assert_eq!(
        (texts.len(), expected.len()),
        (200, 200 * model.dimensions())
    );
    let encoded: Vec<Encoded> = texts
        .iter()
        .map(|text| tokens.encode(text).unwrap())
        .collect();
    let vectors: Vec<Vec<f32>> = encoded
        .chunks(16)
        .flat_map(|batch| model.embed(batch).unwrap())
        .collect();
    assert_eq!(vectors.len(), texts.len());
    let expected = expected.chunks(model.dimensions());
    for ((vector, expected), text) in vectors.iter().zip(expected).zip(&texts) {
        assert_eq!(vector.len(), expected.len());
        let length = |vector: &[f32]| vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert!((length(vector) - 1.0).abs() < 1e-4, "{text:?}");
        let dot: f32 = vector.iter().zip(expected).map(|(a, b)| a * b).sum();
        let cosine = dot / length(expected);
        assert!(cosine >= 0.9999, "{text:?}: the cosine is {cosine}");
    }
}

#[test]
fn a_text_has_the_same_vector_alone_and_in_a_batch() {
    let directory = reference("cross-encoder");
    let (model, tokens) = (
        Model::load(&directory).unwrap(),
        Tokens::load(&directory).unwrap(),
    );
    let texts = [
        "database",
        "the database stores every context entry",
        "",
        "tags",
    ];
    let encoded: Vec<Encoded> = texts
        .iter()
        .map(|text| tokens.encode(text).unwrap())
        .collect();
    let together = model.embed(&encoded).unwrap();
    assert_eq!(together.len(), texts.len());
    for (encoded, together) in encoded.iter().zip(&together) {
        let alone = model.embed(std::slice::from_ref(encoded)).unwrap();
        assert_eq!(alone[0].len(), together.len());
        assert!(
            alone[0]
                .iter()
                .zip(together)
                .all(|(a, b)| (a - b).abs() < 1e-5)
        );
        assert!((together.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
        let of_tokens = &model.embed_tokens(std::slice::from_ref(encoded)).unwrap()[0];
        assert_eq!(
            of_tokens.len(),
            tokens.content(encoded).len() * model.dimensions()
        );
    }
}

#[test]
fn cross_encoder_scores_equal_those_of_transformers() {
    let directory = reference("cross-encoder");
    let (model, tokens) = (
        Model::load(&directory).unwrap(),
        Tokens::load(&directory).unwrap(),
    );
    let pairs: Vec<Pair> =
        serde_json::from_slice(&std::fs::read(directory.join("pairs.json")).unwrap()).unwrap();
    let encoded: Vec<Encoded> = pairs
        .iter()
        .map(|pair| tokens.encode_pair(&pair.query, &pair.passage).unwrap())
        .collect();
    for batch in [1, pairs.len()] {
        let scores: Vec<f32> = encoded
            .chunks(batch)
            .flat_map(|batch| model.score(batch).unwrap())
            .collect();
        assert_eq!(scores.len(), pairs.len());
        for (score, pair) in scores.iter().zip(&pairs) {
            assert!((score - pair.logit).abs() <= 1e-3, "{score} {}", pair.logit);
        }
    }
}

#[test]
fn tokens_of_another_model_and_texts_too_long_are_errors() {
    let model = Model::load(&reference("cross-encoder")).unwrap();
    let encoded = |ids: Vec<u32>| Encoded {
        types: vec![0; ids.len()],
        ids,
    };
    for bad in [
        encoded(vec![2, 40_000, 3]),
        encoded(vec![]),
        encoded(vec![2; 97]),
        Encoded {
            ids: vec![2, 3],
            types: vec![0],
        },
        Encoded {
            ids: vec![2, 3],
            types: vec![0, 2],
        },
    ] {
        let outcomes = (
            model.embed(std::slice::from_ref(&bad)),
            model.score(std::slice::from_ref(&bad)),
        );
        assert!(
            matches!(outcomes, (Err(ModelError::Tokens), Err(ModelError::Tokens))),
            "{bad:?}"
        );
    }
    assert_eq!(model.embed(&[encoded(vec![2; 96])]).unwrap().len(), 1);
    assert_eq!(model.embed(&[]).unwrap().len(), 0);
}

#[test]
fn a_damaged_directory_is_refused_with_the_file_named() {
    let copy = tempfile::tempdir().unwrap();
    let restore = |file: &str| {
        std::fs::copy(
            reference("cross-encoder").join(file),
            copy.path().join(file),
        )
        .unwrap()
    };
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        restore(file);
    }
    Model::load(copy.path()).unwrap();
    let weights = std::fs::read(copy.path().join("model.safetensors")).unwrap();
    let mut huge_header = weights.clone();
    huge_header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for damaged in [
        Vec::new(),
        weights[..weights.len() / 2].to_vec(),
        huge_header,
        b"nonsense".repeat(100),
    ] {
        std::fs::write(copy.path().join("model.safetensors"), damaged).unwrap();
        let error = Model::load(copy.path()).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "{error}");
    }
    restore("model.safetensors");
    let config = std::fs::read_to_string(copy.path().join("config.json")).unwrap();
    for (from, to, named) in [
        ("\"gelu\"", "\"relu\"", "its activation is `relu`"),
        ("\"bert\"", "\"roberta\"", "it is a `roberta` network"),
        (
            "\"hidden_size\": 48",
            "\"hidden_size\": 50",
            "the sizes in its config.json",
        ),
        ("{", "[", "config.json is not usable"),
    ] {
        assert!(config.contains(from));
        std::fs::write(copy.path().join("config.json"), config.replace(from, to)).unwrap();
        let error = Model::load(copy.path()).unwrap_err().to_string();
        assert!(error.contains(named), "{to}: {error}");
    }
    restore("config.json");
    std::fs::write(copy.path().join("tokenizer.json"), "nonsense").unwrap();
    let error = Tokens::load(copy.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
    for file in ["tokenizer.json", "model.safetensors", "config.json"] {
        std::fs::remove_file(copy.path().join(file)).unwrap();
        let outcomes = (Model::load(copy.path()), Tokens::load(copy.path()));
        let error = match outcomes {
            (Err(error), _) | (Ok(_), Err(error)) => error.to_string(),
            (Ok(_), Ok(_)) => panic!("{file} is not needed"),
        };
        assert!(error.contains(file), "{error}");
    }
}

#[test]
fn token_starts_are_places_in_the_text() {
    let tokens = Tokens::load(&reference("cross-encoder")).unwrap();
    let text = "the  database, tags";
    assert_eq!(tokens.starts(text).unwrap(), [0, 5, 13, 15]);
    assert_eq!(tokens.max(), 96);
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    mean: Vec<f32>,
    first: Vec<f32>,
}

/// The largest difference between two vectors. `f32::max` ignores NaN, so all values must be finite.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|value| value.is_finite()), "{a:?}");
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_multilingual_model_has_the_tokens_of_sentencepiece_and_the_vectors_of_the_published_network() {
    let copy = copy_of("multilingual");
    let expected = std::fs::read(reference("multilingual/expected.json")).unwrap();
    let expected: Vec<Expected> = serde_json::from_slice(&expected).unwrap();
    let tokens = Tokens::load(copy.path()).unwrap();
    let encoded: Vec<Encoded> = expected
        .iter()
        .map(|expected| tokens.encode(&expected.text).unwrap())
        .collect();
    for (encoded, expected) in encoded.iter().zip(&expected) {
        assert_eq!(encoded.ids, expected.ids, "{:?}", expected.text);
    }
    std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    for (pooling, of) in [
        (
            "{\"pooling_mode_mean_tokens\": true}",
            (|expected| &expected.mean) as fn(&Expected) -> &Vec<f32>,
        ),
        (
            "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}",
            |expected| &expected.first,
        ),
        ("{\"pooling_mode\": \"mean\"}", |expected| &expected.mean),
        ("{\"pooling_mode\": \"cls\"}", |expected| &expected.first),
    ] {
        std::fs::write(copy.path().join("1_Pooling/config.json"), pooling).unwrap();
        let vectors = Model::load(copy.path()).unwrap().embed(&encoded).unwrap();
        assert_eq!(vectors.len(), expected.len());
        for (vector, expected) in vectors.iter().zip(&expected) {
            let worst = difference(vector, of(expected));
            assert!(worst < 2e-5, "{worst} {pooling} {:?}", expected.text);
        }
    }
}

/// A copy of the network and the tokenizer of a directory.
fn copy_of(directory: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let from = reference(directory).join(file);
        std::fs::copy(from, copy.path().join(file)).unwrap();
    }
    copy
}

#[test]
fn text_vectors_that_need_another_pooling_or_another_module_are_refused() {
    let copy = copy_of("multilingual");
    let refusal = || Model::load(copy.path()).unwrap_err().to_string();
    std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    for pooling in [
        "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_max_tokens\": true}",
        "{\"pooling_mode_lasttoken\": true}",
        "{\"pooling_mode\": \"max\"}",
        "{\"pooling_mode\": [\"mean\", \"cls\"]}",
    ] {
        std::fs::write(copy.path().join("1_Pooling/config.json"), pooling).unwrap();
        assert!(refusal().contains("its pooling"), "{pooling}");
    }
    std::fs::remove_dir_all(copy.path().join("1_Pooling")).unwrap();
    let write_modules = |directory: &Path, classes: &[&str]| {
        let module = |class: &&str| format!("{{\"path\": \"\", \"type\": \"{class}\"}}");
        let modules: Vec<String> = classes.iter().map(module).collect();
        std::fs::write(
            directory.join("modules.json"),
            format!("[{}]", modules.join(", ")),
        )
        .unwrap();
    };
    let (older, newer) = (
        [
            "sentence_transformers.models.Transformer",
            "sentence_transformers.models.Pooling",
            "sentence_transformers.models.Normalize",
        ],
        [
            "sentence_transformers.base.modules.transformer.Transformer",
            "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
        ],
    );
    for known in [&older[..], &newer[..]] {
        write_modules(copy.path(), known);
        Model::load(copy.path()).unwrap();
    }
    let dense = "sentence_transformers.models.Dense";
    write_modules(copy.path(), &[&older[..], &[dense]].concat());
    assert!(refusal().contains(dense), "{}", refusal());
    // A cross-encoder has scores, and no text vectors.
    let cross_encoder = copy_of("cross-encoder");
    write_modules(cross_encoder.path(), &[dense]);
    Model::load(cross_encoder.path()).unwrap();
}

#[test]
fn the_window_is_that_of_the_sentence_configuration_or_else_that_of_the_tokenizer() {
    let copy = copy_of("cross-encoder");
    let max = || Tokens::load(copy.path()).unwrap().max();
    assert_eq!(max(), 96);
    for (length, window) in [("64", 64), ("1e30", 96), ("null", 96)] {
        let tokenizer = format!("{{\"model_max_length\": {length}}}");
        std::fs::write(copy.path().join("tokenizer_config.json"), tokenizer).unwrap();
        assert_eq!(max(), window, "{length}");
    }
    std::fs::write(
        copy.path().join("tokenizer_config.json"),
        "{\"model_max_length\": 1000000000000000019884624838656}",
    )
    .unwrap();
    assert_eq!(max(), 96);
    let sentence = copy.path().join("sentence_bert_config.json");
    std::fs::write(&sentence, "{\"max_seq_length\": 32}").unwrap();
    assert_eq!(max(), 32);
    let tokenizer = copy.path().join("tokenizer_config.json");
    std::fs::write(tokenizer, "{\"model_max_length\": 64}").unwrap();
    assert_eq!(max(), 32, "the sentence configuration decides");
    std::fs::write(&sentence, "{\"max_seq_length\": 512}").unwrap();
    assert_eq!(max(), 96, "the network has 96 positions");
    std::fs::write(&sentence, "{\"max_seq_length\": null}").unwrap();
    assert_eq!(max(), 64);
}

#[test]
fn a_text_in_a_script_without_spaces_can_be_cut_at_the_tokens_of_a_multilingual_model() {
    let tokens = Tokens::load(&reference("multilingual")).unwrap();
    let text = "数据库 迁移，build ＦＵＬＬ";
    let starts = tokens.starts(text).unwrap();
    assert!(starts.len() > 6 && starts.is_sorted(), "{starts:?}");
    assert!(
        starts.iter().all(|start| text.is_char_boundary(*start)),
        "{starts:?}"
    );
    assert!(
        starts.contains(&0) && starts.contains(&text.find('迁').unwrap()),
        "{starts:?}"
    );
}

#[test]
fn letters_of_unknown_words_are_unread_and_words_with_digits_do_not_count() {
    let tokens = Tokens::load(&reference("cross-encoder")).unwrap();
    let unread = |text| tokens.fit(text).unwrap().unread_share;
    assert_eq!(unread("agents and tags?"), 0.0);
    assert_eq!(unread("tags zebra"), 5.0 / 9.0);
    assert_eq!(unread("tags v2x"), 0.0);
}

#[test]
fn symbols_count_in_a_text_without_letters() {
    let tokens = Tokens::load(&reference("cross-encoder")).unwrap();
    let unread = |text| tokens.fit(text).unwrap().unread_share;
    // Of these the vocabulary has only the question mark and the semicolon.
    for text in ["🎉", "🚀🚀 🎉", "★ → ★", "🚀?", "!? 42"] {
        assert_eq!(unread(text), 1.0, "{text}");
    }
    assert_eq!(unread("?;"), 0.0, "known punctuation alone");
    assert_eq!(unread("tags 🚀🚀🚀🚀🚀"), 0.0, "letters decide");
}

#[test]
fn words_of_another_language_fall_apart_into_more_pieces() {
    let Some(directory) = minilm() else { return };
    let tokens = Tokens::load(&directory).unwrap();
    let pieces = |text| tokens.fit(text).unwrap().pieces_per_word;
    assert_eq!(pieces("which database did we choose?"), 1.0);
    assert_eq!(pieces("!? 42"), 1.0, "no words");
    assert_eq!(
        pieces("v2x8 is the name of 7f3a9c"),
        1.0,
        "words with digits"
    );
    for text in [
        "Wie heißt die zweite Verwaltungsebene in Polen?",
        "Jak zmienić bazę danych w projekcie?",
        "veritabanını nasıl değiştiririz",
    ] {
        assert!(pieces(text) > 1.6, "{text}: {}", pieces(text));
    }
}

#[test]
fn a_vocabulary_of_english_reads_related_languages_and_no_others() {
    let Some(directory) = minilm() else { return };
    let tokens = Tokens::load(&directory).unwrap();
    for text in [
        "which database did we choose?",
        "vpn mtu",
        "Wie heißt die zweite Verwaltungsebene in Polen?",
        "Jak zmienić bazę danych w projekcie?",
        "veritabanını nasıl değiştiririz",
        "fix the bug in the 数据库 module",
    ] {
        let share = tokens.fit(text).unwrap().unread_share;
        assert!(share <= 0.34, "{text}: {share}");
    }
    for text in [
        "数据库在哪里",
        "データベースの移行",
        "한국어 데이터베이스를 어떻게 바꾸나요",
        "Что делала компания?",
        "ฐานข้อมูลอยู่ที่ไหน",
        "ποια είναι η πρωτεύουσα",
        "ما هي عاصمة فرنسا",
    ] {
        let share = tokens.fit(text).unwrap().unread_share;
        assert!(share > 0.6, "{text}: {share}");
    }
}
