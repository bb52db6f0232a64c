//! The tables after the newest migration (`migrations/sqlite`). The full-text tables, up to two per owner, are defined
//! in `fts`.

diesel::table! {
    meta (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    owners (owner) {
        owner -> BigInt,
        owner_id -> Text,
        revision -> BigInt,
        next_id -> BigInt,
        entry_count -> BigInt,
        user_count -> BigInt,
        agent_count -> BigInt,
        multimodal_count -> BigInt,
        image_count -> BigInt,
        thread_count -> BigInt,
        tag_count -> BigInt,
        incarnation -> Text,
    }
}

diesel::table! {
    erased_owners (owner_id) {
        owner_id -> Text,
        next_id -> BigInt,
    }
}

diesel::table! {
    threads (owner, thread_id) {
        owner -> BigInt,
        thread_id -> Text,
        entry_count -> BigInt,
        user_count -> BigInt,
        agent_count -> BigInt,
        multimodal_count -> BigInt,
        first_entry -> BigInt,
        last_entry -> BigInt,
        last_id -> BigInt,
        last_source -> Text,
        last_hash -> BigInt,
    }
}

diesel::table! {
    entries (row_id) {
        row_id -> BigInt,
        owner -> BigInt,
        id -> BigInt,
        thread_id -> Text,
        source -> Text,
        image_count -> BigInt,
        version -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
        tags -> Text,
        summary -> Text,
        metadata -> Text,
        metadata_folded -> Text,
        text -> Text,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    entry_tags (owner, tag, row_id) {
        owner -> BigInt,
        tag -> Text,
        row_id -> BigInt,
    }
}

diesel::table! {
    tag_counts (owner, tag) {
        owner -> BigInt,
        tag -> Text,
        entries -> BigInt,
    }
}

diesel::table! {
    images (owner, row_id, position) {
        owner -> BigInt,
        row_id -> BigInt,
        position -> BigInt,
        mime_type -> Text,
        metadata -> Nullable<Text>,
        data -> Binary,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    changes (owner, revision) {
        owner -> BigInt,
        revision -> BigInt,
        at -> BigInt,
        operation -> Text,
        entity -> Text,
        entity_id -> Text,
        thread_id -> Nullable<Text>,
        version -> Nullable<BigInt>,
        key_id -> Nullable<Text>,
        source -> Nullable<Text>,
        commit_end -> BigInt,
    }
}

diesel::table! {
    idempotency (owner, key) {
        owner -> BigInt,
        key -> Text,
        request_hash -> Binary,
        outcome -> Text,
        revision -> BigInt,
        at -> BigInt,
    }
}

diesel::table! {
    api_keys (owner, key_id) {
        owner -> BigInt,
        key_id -> Text,
        name -> Text,
        lookup -> Binary,
        hash -> Text,
        scopes -> Text,
        narrowing -> Text,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
        deactivated_at -> Nullable<BigInt>,
        digest -> Nullable<Text>,
    }
}

diesel::table! {
    key_events (owner, event_id) {
        owner -> BigInt,
        event_id -> Text,
        at -> BigInt,
        actor -> Nullable<Text>,
        operation -> Text,
        key_id -> Text,
    }
}

diesel::table! {
    audited_changes (owner, revision) {
        owner -> BigInt,
        revision -> BigInt,
        at -> BigInt,
        operation -> Text,
        entity -> Text,
        entity_id -> Text,
        thread_id -> Nullable<Text>,
        version -> Nullable<BigInt>,
        key_id -> Nullable<Text>,
    }
}

diesel::table! {
    denials (owner, at) {
        owner -> BigInt,
        at -> BigInt,
        key_id -> Text,
        operation -> Text,
        reason -> Text,
        attempts -> BigInt,
    }
}

diesel::table! {
    artifacts (owner, artifact_id) {
        owner -> BigInt,
        artifact_id -> Text,
        created_at -> BigInt,
        version -> BigInt,
        path -> Nullable<Text>,
    }
}

diesel::table! {
    artifact_versions (owner, artifact_id, version) {
        owner -> BigInt,
        artifact_id -> Text,
        version -> BigInt,
        at -> BigInt,
        title_given -> BigInt,
        changes -> Text,
        title -> Text,
        metadata -> Text,
        content -> Text,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    artifact_texts (owner, artifact_id) {
        owner -> BigInt,
        artifact_id -> Text,
        title -> Text,
        content -> Text,
    }
}

diesel::table! {
    artifact_documents (row_id) {
        row_id -> BigInt,
        owner -> BigInt,
        artifact_id -> Text,
        version -> BigInt,
        created_at -> BigInt,
        metadata -> Text,
        metadata_folded -> Text,
    }
}

diesel::table! {
    embedding_sets (set_id) {
        set_id -> BigInt,
        model -> Text,
        dimensions -> BigInt,
        current -> BigInt,
    }
}

diesel::table! {
    chunks (chunk_id) {
        chunk_id -> BigInt,
        owner -> BigInt,
        row_id -> BigInt,
        set_id -> BigInt,
        position -> BigInt,
        start_char -> BigInt,
        end_char -> BigInt,
        code -> Binary,
    }
}

diesel::table! {
    chunk_tokens (owner, row_id, set_id, position) {
        owner -> BigInt,
        row_id -> BigInt,
        set_id -> BigInt,
        position -> BigInt,
        tokens -> Binary,
    }
}

diesel::table! {
    vectors (chunk_id) {
        chunk_id -> BigInt,
        vector -> Binary,
    }
}

diesel::allow_tables_to_appear_in_same_query!(chunks, vectors);
