//! The behaviours every database shows, each an async function named after what it shows.
//!
//! A database's test crate names a function that opens an empty store, and gets one test for each behaviour:
//!
//! ```ignore
//! async fn open() -> Option<context_store::conformance::Opened> { … }
//! context_store::conformance_tests!(open);
//! ```
//!
//! `None` means that the database cannot be had here; whoever opens says so loudly.

use std::any::Any;
use std::sync::Arc;

use crate::Store;

mod arrange;

pub mod artifacts;
pub mod batches;
pub mod context;
pub mod damage;
pub mod deletes;
pub mod filters;
pub mod full_text;
pub mod idempotency;
pub mod keys;
pub mod reads;
pub mod retransmits;
pub mod revisions;
pub mod statistics;
pub mod storing;
pub mod summaries;
pub mod threads;
pub mod updates;
pub mod vectors;

/// An empty store and what must live as long as it.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// A temporary directory, a database to drop, …
    pub keep: Box<dyn Any + Send>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("store", &self.store.backend())
            .finish_non_exhaustive()
    }
}

/// One test for each behaviour, on stores from this function (`async fn() -> Option<Opened>`).
#[macro_export]
macro_rules! conformance_tests {
    ($open:path) => {
        $crate::conformance_tests! { @modules $open,
            storing: stored_entry_reads_back_equal, what_is_not_given_reads_back_empty, text_is_kept_exactly,
                metadata_keeps_types_and_values, images_come_back_equal_and_in_order, ids_grow_and_are_never_reused,
                time_is_held_where_a_clock_steps_back_a_little, a_clock_that_jumped_forward_pins_no_thread,
                deletes_choose_the_newest_entry_despite_a_clock_that_jumped, owners_do_not_see_each_other;
            retransmits: the_same_entry_again_is_not_stored_twice, a_field_not_given_is_not_compared,
                a_given_field_that_differs_makes_a_new_entry, an_empty_list_differs_from_a_stored_one,
                the_order_of_metadata_keys_does_not_matter, another_source_in_between_makes_a_new_entry,
                another_text_in_between_makes_a_new_entry, other_threads_and_sources_are_not_compared,
                equal_images_collapse_and_different_ones_do_not, repeats_inside_a_batch_collapse,
                the_comparison_follows_deletes_and_updates, of_many_at_once_one_is_stored;
            updates: only_what_is_given_changes, empty_lists_clear_tags_and_images, every_update_counts,
                an_unknown_id_is_not_found, a_stale_version_changes_nothing, the_right_version_is_accepted,
                a_patch_merges_recursively, a_patch_that_breaks_a_limit_changes_nothing, another_owner_cannot_update;
            batches: an_atomic_batch_is_all_or_nothing, without_atomic_each_item_stands_alone,
                items_see_the_items_before_them, an_atomic_batch_that_failed_leaves_no_trace;
            deletes: ids_are_deleted_and_unknown_ones_count_nothing, all_criteria_must_hold,
                a_delete_stays_within_the_threads_that_are_reached, a_thread_is_deleted_with_its_row, nothing_to_go_by_deletes_nothing, another_owner_cannot_delete,
                many_are_deleted_at_once;
            threads: a_row_counts_its_entries, the_latest_activity_comes_first, pages_neither_repeat_nor_skip,
                the_row_follows_deletes, the_row_follows_updates_of_images;
            reads: entries_come_newest_first_whatever_the_order_asked, unknown_and_repeated_ids_are_skipped,
                images_come_only_when_selected, a_page_over_its_bytes_is_refused_but_a_single_entry_never, what_a_page_holds_is_counted_before_it_is_loaded,
                texts_are_cut_at_the_characters_asked_for, pages_are_total_and_disjoint,
                a_revision_that_no_write_gave_is_refused_at_once,
                entries_that_changed_since_a_revision_are_left_out, the_plan_comes_when_asked_for;
            filters: every_part_of_a_filter_must_hold, tags_match_any_of_them_in_any_script, dates_are_inclusive,
                a_filter_that_matches_nothing_gives_an_empty_page, metadata_conditions_are_typed;
            full_text: what_was_stored_is_found_at_once, an_update_moves_the_words, a_deleted_entry_is_not_found,
                a_filter_narrows_the_matches, scores_are_higher_for_better_matches,
                a_rare_word_counts_more_than_common_ones, other_owners_do_not_move_scores,
                pages_of_matches_neither_repeat_nor_skip, updated_tags_and_images_move_the_filter;
            context: the_words_before_an_entry_find_it, neighbours_do_not_move_a_search_without_them,
                only_near_entries_of_the_thread_count, entries_of_a_batch_are_neighbours,
                an_update_takes_its_words_out_of_its_neighbours, other_updates_keep_the_words_of_neighbours,
                a_deleted_entry_takes_its_words_out_of_its_neighbours, an_undone_write_leaves_no_words;
            vectors: the_nearest_come_first_with_their_distance, an_entry_counts_by_its_nearest_chunk,
                equal_distances_come_newest_first_and_depth_bounds_them, an_update_of_the_text_replaces_the_vectors,
                deleted_entries_take_their_vectors_along, a_write_that_fails_leaves_no_vectors,
                vectors_of_a_filter_never_starve, owners_do_not_find_each_others_vectors, another_model_never_mixes,
                entries_wait_for_their_vectors_and_take_them_once, both_rankings_show_one_state,
                an_entry_that_is_updated_all_the_time_is_found_all_the_time, the_vectors_of_a_batch_are_those_of_its_last_texts,
                a_move_gathers_beside_what_is_in_use_and_changes_at_once,
                a_move_that_was_interrupted_goes_on_and_a_third_model_begins_anew, a_move_may_leave_some_entries_waiting,
                tokens_come_and_go_with_their_chunks, tokens_belong_to_an_owner_and_a_model,
                late_vectors_and_those_of_a_move_bring_their_tokens;
            summaries: long_texts_wait_for_their_summaries, a_summary_joins_its_entry, an_updated_text_loses_its_summary;
            idempotency: a_repeated_request_gets_the_first_outcome, another_request_with_the_key_is_refused,
                a_failed_request_records_nothing, keys_belong_to_an_owner, keys_expire_after_a_day,
                failures_of_items_are_repeated_too, a_stored_outcome_is_known_and_counted;
            revisions: each_change_counts_one, reads_show_the_revision_of_the_write, a_write_that_changes_nothing_keeps_it,
                concurrent_writers_never_share_one;
            statistics: counts_follow_every_operation, an_owner_that_never_wrote_has_zeros;
        }
    };
    (@modules $open:path, $($module:ident: $($behaviour:ident),+;)*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the path may be absolute")]
            use super::*;
            $(
                #[tokio::test]
                async fn $behaviour() {
                    if let Some(opened) = $open().await {
                        $crate::conformance::$module::$behaviour(&*opened.store).await;
                        opened.store.close().await;
                        drop(opened);
                    }
                }
            )+
        }
    )*};
}

/// One test for each behaviour of artifacts, for a database that keeps them.
#[macro_export]
macro_rules! artifact_conformance_tests {
    ($open:path) => {
        $crate::conformance_tests! { @modules $open,
            artifacts: a_created_artifact_reads_back_equal, each_change_of_an_artifact_makes_a_version,
                an_update_that_changes_nothing_makes_no_version, every_version_can_be_read_by_its_number,
                a_restore_makes_a_new_version, edits_change_places_of_the_stored_content,
                a_stale_artifact_version_changes_nothing, times_of_versions_grow, a_deleted_artifact_is_gone,
                artifacts_are_listed_newest_first, a_page_of_artifacts_over_its_bytes_is_refused,
                a_search_finds_parts_of_title_and_content, owners_do_not_see_each_others_artifacts,
                a_repeated_artifact_request_gets_the_first_outcome;
        }
    };
}

/// One test for each behaviour of keys and owners, for a database that keeps them.
#[macro_export]
macro_rules! key_conformance_tests {
    ($open:path) => {
        $crate::conformance_tests! { @modules $open,
            keys: a_key_reads_back_equal, keys_are_listed_by_owner, a_key_changes_and_never_comes_back, owners_are_counted,
                an_erased_owner_has_nothing_left, the_audit_log_has_changes_and_refusals,
                what_is_done_to_a_key_stands_in_the_audit_log, a_key_is_replaced_in_one_transaction,
                a_key_without_a_digest_gets_one_once, active_keys_are_listed_over_all_owners;
        }
    };
}

/// One test for each behaviour of checksums, for a database that keeps them. `open` gives an
/// [`Opened`] and a [`damage::Tamper`] of the same database (`async fn() -> Option<(Opened, Box<dyn Tamper>)>`).
#[macro_export]
macro_rules! damage_conformance_tests {
    ($open:path) => {
        $crate::damage_conformance_tests! { @each $open,
            changed_content_of_an_entry_is_damage_and_names_its_part, a_text_is_checked_when_it_was_read_whole,
            an_update_does_not_hide_damage, what_an_older_service_updated_is_unchecked_and_sealed_again,
            rows_without_checksums_are_sealed_in_the_background, sealing_does_not_hide_damage,
            a_changed_version_of_an_artifact_is_refused_alone
        }
    };
    (@each $open:path, $($behaviour:ident),+) => {
        mod damage {
            #[allow(unused_imports, reason = "the path may be absolute")]
            use super::*;
            $(
                #[tokio::test]
                async fn $behaviour() {
                    if let Some((opened, tamper)) = $open().await {
                        $crate::conformance::damage::$behaviour(&*opened.store, &*tamper).await;
                        opened.store.close().await;
                        drop((opened, tamper));
                    }
                }
            )+
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_behaviour_is_listed() {
        let list = include_str!("conformance.rs");
        for file in [
            include_str!("conformance/artifacts.rs"),
            include_str!("conformance/batches.rs"),
            include_str!("conformance/context.rs"),
            include_str!("conformance/damage.rs"),
            include_str!("conformance/deletes.rs"),
            include_str!("conformance/filters.rs"),
            include_str!("conformance/full_text.rs"),
            include_str!("conformance/idempotency.rs"),
            include_str!("conformance/keys.rs"),
            include_str!("conformance/reads.rs"),
            include_str!("conformance/retransmits.rs"),
            include_str!("conformance/revisions.rs"),
            include_str!("conformance/statistics.rs"),
            include_str!("conformance/storing.rs"),
            include_str!("conformance/summaries.rs"),
            include_str!("conformance/threads.rs"),
            include_str!("conformance/updates.rs"),
            include_str!("conformance/vectors.rs"),
        ] {
            for line in file.lines() {
                if let Some((name, _)) = line
                    .strip_prefix("pub async fn ")
                    .and_then(|rest| rest.split_once('('))
                {
                    assert!(
                        list.contains(name),
                        "conformance_tests! does not list {name}"
                    );
                }
            }
        }
    }
}
