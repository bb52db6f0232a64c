//! The tables as the newest migration leaves them (`migrations/postgres`). A test compares this file with the database.
//! The tables `chunks`, `chunk_tokens` and `schema_version` are left out, because only raw SQL uses them.
//!
//! Only raw SQL uses the columns `words`, `words_cut` and `context`, so they are left out too. With them, the table of
//! entries would have more than 16 columns. diesel's feature for such tables makes the build directory 60 MB larger.

diesel::table! {
    context.settings (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    context.owner_ids (owner_id) {
        owner_id -> Text,
        next_id -> BigInt,
    }
}

diesel::table! {
    context.owners (owner_id) {
        owner_id -> Text,
        revision -> BigInt,
        entry_count -> BigInt,
        user_count -> BigInt,
        agent_count -> BigInt,
        multimodal_count -> BigInt,
        image_count -> BigInt,
        thread_count -> BigInt,
        incarnation -> Text,
    }
}

diesel::table! {
    context.threads (owner_id, thread_id) {
        owner_id -> Text,
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
    context.entries (owner_id, id) {
        owner_id -> Text,
        id -> BigInt,
        thread_id -> Text,
        source -> Text,
        image_count -> BigInt,
        version -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
        tags -> Array<Text>,
        summary -> Text,
        metadata -> Json,
        metadata_folded -> Jsonb,
        text -> Text,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    context.entry_tags (owner_id, tag, id) {
        owner_id -> Text,
        tag -> Text,
        id -> BigInt,
    }
}

diesel::table! {
    context.images (owner_id, id, position) {
        owner_id -> Text,
        id -> BigInt,
        position -> BigInt,
        mime_type -> Text,
        metadata -> Nullable<Json>,
        data -> Binary,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    context.changes (owner_id, revision) {
        owner_id -> Text,
        revision -> BigInt,
        at -> BigInt,
        operation -> Text,
        entity -> Text,
        entity_id -> Text,
        thread_id -> Nullable<Text>,
        version -> Nullable<BigInt>,
        key_id -> Nullable<Text>,
        source -> Nullable<Text>,
        commit_end -> Bool,
    }
}

diesel::table! {
    context.idempotency (owner_id, key) {
        owner_id -> Text,
        key -> Text,
        request_hash -> Binary,
        outcome -> Text,
        revision -> BigInt,
        at -> BigInt,
    }
}

diesel::table! {
    context.artifacts (owner_id, artifact_id) {
        owner_id -> Text,
        artifact_id -> Text,
        created_at -> BigInt,
        version -> BigInt,
        path -> Nullable<Text>,
    }
}

diesel::table! {
    context.artifact_versions (owner_id, artifact_id, version) {
        owner_id -> Text,
        artifact_id -> Text,
        version -> BigInt,
        at -> BigInt,
        title_given -> Bool,
        changes -> Array<Text>,
        title -> Text,
        metadata -> Json,
        content -> Text,
        seal -> Nullable<Binary>,
    }
}

diesel::table! {
    context.artifact_texts (owner_id, artifact_id) {
        owner_id -> Text,
        artifact_id -> Text,
        title -> Text,
        content -> Text,
    }
}

diesel::table! {
    context.artifact_documents (owner_id, id) {
        owner_id -> Text,
        id -> BigInt,
        artifact_id -> Text,
        version -> BigInt,
        created_at -> BigInt,
        metadata_folded -> Jsonb,
    }
}

diesel::table! {
    context.api_keys (owner_id, key_id) {
        owner_id -> Text,
        key_id -> Text,
        name -> Text,
        lookup -> Binary,
        hash -> Text,
        scopes -> Array<Text>,
        narrowing -> Text,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
        deactivated_at -> Nullable<BigInt>,
        digest -> Nullable<Text>,
    }
}

diesel::table! {
    context.key_events (owner_id, event_id) {
        owner_id -> Text,
        event_id -> Text,
        at -> BigInt,
        actor -> Nullable<Text>,
        operation -> Text,
        key_id -> Text,
    }
}

diesel::table! {
    context.audited_changes (owner_id, revision) {
        owner_id -> Text,
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
    context.denials (owner_id, at) {
        owner_id -> Text,
        at -> BigInt,
        key_id -> Text,
        operation -> Text,
        reason -> Text,
        attempts -> BigInt,
    }
}

diesel::table! {
    context.embedding_sets (set_id) {
        set_id -> BigInt,
        model -> Text,
        dimensions -> BigInt,
        state -> Text,
        since -> BigInt,
    }
}

diesel::table! {
    context.embedding_claims (owner_id, id, set_id) {
        owner_id -> Text,
        id -> BigInt,
        set_id -> BigInt,
        version -> BigInt,
        holder -> Text,
        until -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(artifacts, artifact_versions, owners, api_keys);
