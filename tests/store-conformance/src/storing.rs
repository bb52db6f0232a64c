//! A stored entry is read back exactly as it was stored.

use context_model::{ContentType, ImageBytes, ImageInput, Metadata, NewImage, Source};
use context_store::{OwnerId, Store};
use serde_json::json;

use crate::arrange::*;
use crate::suite::behaviour;

/// Every field is read back, including the image.
async fn stored_entry_reads_back_equal(store: &dyn Store) {
    let given = entry("Grüße, 世界 🦀")
        .thread("Thread-1")
        .agent()
        .tags(&["b", "a"])
        .metadata(rich_metadata())
        .images(&[&[0, 255, 7]]);
    let outcome = given.store(store, 5).await;
    assert_eq!((outcome.version, outcome.duplicate), (1, false));
    let found = get_one(store, outcome.id).await;
    assert_eq!(found.thread_id, "Thread-1");
    assert_eq!(found.source, Source::Agent);
    assert_eq!(found.content_type, ContentType::Multimodal);
    assert_eq!(found.text, "Grüße, 世界 🦀");
    assert_eq!(found.summary, "");
    assert_eq!(json!(found.metadata), rich_metadata());
    assert_eq!(found.tags, ["a", "b"]);
    assert_eq!((found.created_at, found.updated_at), (at(5), at(5)));
    assert_eq!(found.version, 1);
    let image = ImageInput {
        data: ImageBytes(vec![0, 255, 7]),
        mime_type: Some("image/png".to_owned()),
        metadata: None,
    };
    assert_eq!(found.images, Some(vec![image]));
}
behaviour!(stored_entry_reads_back_equal(store));

/// The empty values are `{}`, `[]` and no images.
async fn what_is_not_given_reads_back_empty(store: &dyn Store) {
    let outcome = entry("bare").store(store, 0).await;
    let found = get_one(store, outcome.id).await;
    assert_eq!(found.metadata.as_str(), "{}");
    assert!(found.tags.is_empty());
    assert_eq!(found.images, Some(Vec::new()));
    assert_eq!(found.content_type, ContentType::Text);
}
behaviour!(what_is_not_given_reads_back_empty(store));

/// The texts have spaces, line ends, quotes, control and combining characters, or a million characters.
async fn text_is_kept_exactly(store: &dyn Store) {
    let long = "ab ".repeat(333_334);
    for text in [
        "  padded \r\n\t",
        "'; DROP TABLE entries; --",
        "e\u{301} \u{1} \u{feff}\u{202e}",
        "?1 :x %s {}",
        long.as_str(),
    ] {
        let outcome = entry(text).store(store, 0).await;
        assert_eq!(get_one(store, outcome.id).await.text, text);
    }
}
behaviour!(text_is_kept_exactly(store));

/// Integers stay integers, floats keep their value, and null is stored.
async fn metadata_keeps_types_and_values(store: &dyn Store) {
    let given = json!({"i": [0, -1, i64::MIN, i64::MAX, 9_007_199_254_740_993i64], "f": [0.1, 1.0, 1e300, -2.5e-7], "s": "\"\\\u{1f600}",
                       "null": null, "bools": [true, false], "empty": [{}, []], "a.b": 1, "": 2});
    let outcome = entry("x").metadata(given.clone()).store(store, 0).await;
    let found = json!(get_one(store, outcome.id).await.metadata);
    assert_eq!(found, given);
    assert!(
        found["f"][1].is_f64() && found["i"][0].is_i64(),
        "{found:?}"
    );
}
behaviour!(metadata_keeps_types_and_values(store));

/// Images with any bytes, types and metadata are read back in the given order.
async fn images_come_back_equal_and_in_order(store: &dyn Store) {
    let given: Vec<NewImage> = (0..10u8)
        .map(|i| NewImage {
            data: (0..=255).map(|b: u8| b.wrapping_mul(i + 1)).collect(),
            mime_type: format!("image/x-{i}"),
            metadata: (i % 2 == 0).then(|| Metadata::from_stored(object(json!({"n": i})))),
        })
        .collect();
    let mut new = entry("x");
    new.0.images = Some(given.clone());
    let outcome = new.store(store, 0).await;
    let found = get_one(store, outcome.id)
        .await
        .images
        .expect("images were selected");
    assert_eq!(found.len(), given.len());
    for (found, given) in found.iter().zip(&given) {
        assert_eq!(found.data.0, given.data);
        assert_eq!(found.mime_type.as_deref(), Some(given.mime_type.as_str()));
        assert_eq!(
            found.metadata.as_ref(),
            given.metadata.as_ref().map(Metadata::as_object)
        );
    }
}
behaviour!(images_come_back_equal_and_in_order(store));

/// The id of a deleted entry is never given to another.
async fn ids_grow_and_are_never_reused(store: &dyn Store) {
    let first = entry("a").store(store, 0).await.id;
    let second = entry("b").store(store, 0).await.id;
    assert!(0 < first && first < second, "{first}, {second}");
    assert_eq!(delete_ids(store, &[first, second]).await, 2);
    let third = entry("c").store(store, 0).await.id;
    assert!(third > second, "{third} was used before");
}
behaviour!(ids_grow_and_are_never_reused(store));

/// If a clock goes back a little, the time stays at that of the thread's newest entry. Other threads are not affected.
async fn time_is_held_where_a_clock_steps_back_a_little(store: &dyn Store) {
    entry("late").store(store, 100).await;
    let early = entry("early").store(store, 50).await.id;
    let elsewhere = entry("elsewhere").thread("u").store(store, 50).await.id;
    assert_eq!(get_one(store, early).await.created_at, at(100));
    assert_eq!(get_one(store, elsewhere).await.created_at, at(50));
    assert_eq!(texts(&all(store).await), ["early", "late", "elsewhere"]);
}
behaviour!(time_is_held_where_a_clock_steps_back_a_little(store));

/// The thread continues with the right time. The entry stored last is the newest, and its retransmit is recognised.
async fn a_clock_that_jumped_forward_pins_no_thread(store: &dyn Store) {
    let wrong = entry("a day ahead").store(store, 86_400).await.id;
    let right = entry("right").store(store, 100).await.id;
    assert_eq!(get_one(store, wrong).await.created_at, at(86_400));
    assert_eq!(get_one(store, right).await.created_at, at(100));
    let thread = &threads(store).await.threads[0];
    assert_eq!(
        (thread.first_entry, thread.last_entry, thread.last_id),
        (at(100), at(100), right)
    );
    assert!(entry("right").store(store, 101).await.duplicate);
    assert!(
        !entry("a day ahead").store(store, 102).await.duplicate,
        "the newest entry is another one"
    );
    entry("later elsewhere").thread("u").store(store, 103).await;
    let page = threads(store).await;
    assert_eq!(
        (
            page.threads[0].thread_id.as_str(),
            page.threads[1].last_entry
        ),
        ("u", at(102))
    );
}
behaviour!(a_clock_that_jumped_forward_pins_no_thread(store));

/// If another entry is deleted, the newest entry stays the newest. If the newest is deleted, the last one with a
/// plausible time becomes the newest. An entry with an implausible time becomes the newest only if no other is left.
async fn deletes_choose_the_newest_entry_despite_a_clock_that_jumped(store: &dyn Store) {
    let mut ids = Vec::new();
    for (text, seconds) in [
        ("first", 1),
        ("a day ahead", 86_400),
        ("second", 2),
        ("third", 3),
        ("fourth", 4),
    ] {
        ids.push(entry(text).store(store, seconds).await.id);
    }
    let [first, wrong, second, third, fourth] = ids[..] else {
        panic!("five entries")
    };
    for (deleted, seconds, newest) in [
        (third, 4, fourth),
        (fourth, 2, second),
        (first, 2, second),
        (second, 86_400, wrong),
    ] {
        delete_ids(store, &[deleted]).await;
        let thread = &threads(store).await.threads[0];
        assert_eq!(
            (thread.last_entry, thread.last_id),
            (at(seconds), newest),
            "after {deleted} of {ids:?}"
        );
        let text = get_one(store, newest).await.text;
        assert!(
            entry(&text).store(store, 5).await.duplicate,
            "{text} is the newest"
        );
    }
    let next = entry("next").store(store, 5).await.id;
    assert_eq!(get_one(store, next).await.created_at, at(5));
}
behaviour!(deletes_choose_the_newest_entry_despite_a_clock_that_jumped(
    store
));

/// Ids, threads and counts of one owner do not apply to another.
async fn owners_do_not_see_each_other(store: &dyn Store) {
    let theirs = OwnerId::new("ü ' other");
    let mine = entry("mine").store(store, 0).await.id;
    entry("theirs").store_for(store, &theirs, 0).await;
    let last = entry("theirs too").store_for(store, &theirs, 1).await.id;
    assert_eq!(texts(&all(store).await), ["mine"]);
    assert_eq!(texts(&get(store, &[mine, last, last + 1]).await), ["mine"]);
    assert_eq!(threads(store).await.threads[0].entry_count, 1);
    let found = store
        .get_contexts(&theirs, vec![last], EVERYTHING, now())
        .await
        .expect("read")
        .entries;
    assert_eq!(texts(&found), ["theirs too"]);
}
behaviour!(owners_do_not_see_each_other(store));
