//! The table of the 133 settings of mcp-context-server 2.2.2. `docs/migrating.md` holds the same table.

use Conversion::{Key, Milliseconds, NotZero, Number, Off, Seconds, Text};
use Handling::{Changed, Gateway, NotNeeded, Renamed, Same, Security};
use When::{Always, Named, OwnAddress};

/// What this service does with a name. The text is for the table in `docs/migrating.md`.
#[derive(Debug, Clone, Copy)]
pub enum Handling {
    /// A setting of ours has this name and meaning. The text names differences.
    Same(&'static str),
    /// The value is read as settings of ours, with a warning that names them.
    Renamed(&'static str, &'static [Renaming]),
    /// A setting of ours has this name and another meaning.
    Changed(&'static str),
    /// The name has no effect. One line of the log lists all such names that are set.
    NotNeeded(&'static str),
    /// The name configures a protection that this service does not have.
    Security(&'static str),
    /// The name is for the gateway. The service does not report it.
    Gateway(&'static str),
}

/// One of our settings that a renamed setting sets.
#[derive(Debug, Clone, Copy)]
pub struct Renaming {
    /// The name of our setting.
    pub ours: &'static str,
    /// When it has an effect.
    pub when: When,
    /// How the value is converted.
    pub conversion: Conversion,
    /// Whether it takes precedence over our setting.
    pub overrides: bool,
}

/// When a renamed setting has an effect.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// Always.
    Always,
    /// When our setting of this name has this value. Many shells hold provider keys for other programs, and such a key
    /// must not decide which provider gets the texts.
    Named([&'static str; 2]),
    /// Like `Named`, but not when our setting in the second field sends the requests to another address. Otherwise the
    /// server at that address would get the provider's key.
    OwnAddress([&'static str; 2], &'static str),
}

/// How a value is converted to a value of our setting.
#[derive(Debug, Clone, Copy)]
pub enum Conversion {
    /// Unchanged.
    Text,
    /// Unchanged; no message repeats it.
    Key,
    /// A whole number. A larger one is lowered to this maximum.
    Number(u64),
    /// Seconds, rounded up to whole seconds, and lowered to this maximum.
    Seconds(u64),
    /// Seconds, converted to milliseconds: at least 1, and lowered to this maximum.
    Milliseconds(u64),
    /// A number; 0 is `false`.
    NotZero,
    /// A boolean; `false` is `none`, and `true` has no effect.
    Off,
}

/// A renaming to our setting. Ours takes precedence when both are set.
const fn to(ours: &'static str, when: When, conversion: Conversion) -> Renaming {
    Renaming {
        ours,
        when,
        conversion,
        overrides: false,
    }
}

/// A renaming that takes precedence over our setting when both are set.
const fn over(ours: &'static str, when: When, conversion: Conversion) -> Renaming {
    Renaming {
        overrides: true,
        ..to(ours, when, conversion)
    }
}

const OPENAI: [&str; 2] = ["EMBEDDING_PROVIDER", "openai"];
const AZURE: [&str; 2] = ["EMBEDDING_PROVIDER", "azure"];
const VOYAGE: [&str; 2] = ["EMBEDDING_PROVIDER", "voyage"];
const OPENAI_SUMMARIES: [&str; 2] = ["SUMMARY_PROVIDER", "openai"];
const ANTHROPIC: [&str; 2] = ["SUMMARY_PROVIDER", "anthropic"];
const SQLITE: [&str; 2] = ["STORAGE_BACKEND", "sqlite"];
const POSTGRESQL: [&str; 2] = ["STORAGE_BACKEND", "postgresql"];

/// Every setting of mcp-context-server 2.2.2, in its order, and what this service does with it.
#[rustfmt::skip]
pub const NAMES: [(&str, Handling); 133] = [
    ("LOG_LEVEL", Same("upper or lower case")),
    ("DISABLED_TOOLS", Gateway("tools that the gateway neither lists nor calls; see [Security](#security)")),
    ("MCP_TRANSPORT", Gateway("the subcommand `stdio` or `http`, if none is given; `sse` stops the start")),
    ("FASTMCP_HOST", Gateway("the host of `GATEWAY_LISTEN`, for `context-gateway http`")),
    ("FASTMCP_PORT", Gateway("the port of `GATEWAY_LISTEN`, for `context-gateway http`")),
    ("FASTMCP_STATELESS_HTTP", NotNeeded("the gateway never has sessions")),
    ("MCP_AUTH_PROVIDER", Security("any value but `none` stops a service or gateway with `AUTH=off` that opens a port")),
    ("MCP_AUTH_TOKEN", Security("stops a service or gateway with `AUTH=off` that opens a port; create keys with `context-service keys create`")),
    ("MCP_AUTH_CLIENT_ID", NotNeeded("keys have a name and an owner")),
    ("MCP_SERVER_INSTRUCTIONS", NotNeeded("the gateway's instructions are fixed")),
    ("OLLAMA_HOST", Same("also makes `EMBEDDING_PROVIDER=auto` choose Ollama")),
    ("OLLAMA_AUTO_PULL", NotNeeded("the service never pulls a model; run `ollama pull`")),
    ("OLLAMA_PULL_TIMEOUT_S", NotNeeded("nothing is pulled")),
    ("ENABLE_EMBEDDING_GENERATION", Renamed("`false` is `EMBEDDING_PROVIDER=none` and overrides it; `true` has no effect", &[over("EMBEDDING_PROVIDER", Always, Off)])),
    ("EMBEDDING_PROVIDER", Same("`huggingface` stops the start: use `tei` or `local`; default `auto`")),
    ("EMBEDDING_MODEL", Same("default with Ollama: embeddinggemma:latest")),
    ("EMBEDDING_DIM", Same("is sent to the provider; default: the model's own")),
    ("EMBEDDING_TIMEOUT_S", Renamed("`EMBEDDING_TIMEOUT_SECONDS`, rounded up", &[to("EMBEDDING_TIMEOUT_SECONDS", Always, Seconds(600))])),
    ("EMBEDDING_RETRY_MAX_ATTEMPTS", NotNeeded("three attempts, then the entry is embedded later")),
    ("EMBEDDING_RETRY_BASE_DELAY_S", NotNeeded("pauses cannot be set")),
    ("EMBEDDING_MAX_CONCURRENT", NotNeeded("texts are sent in batches, four requests at once")),
    ("EMBEDDING_OLLAMA_NUM_CTX", NotNeeded("chunks are short")),
    ("EMBEDDING_OLLAMA_TRUNCATE", NotNeeded("texts are split into chunks that fit")),
    ("OPENAI_API_KEY", Renamed("`EMBEDDING_API_KEY` with `EMBEDDING_PROVIDER=openai`, `SUMMARY_API_KEY` with `SUMMARY_PROVIDER=openai`; not for another address", &[
        to("EMBEDDING_API_KEY", OwnAddress(OPENAI, "EMBEDDING_URL"), Key),
        to("SUMMARY_API_KEY", OwnAddress(OPENAI_SUMMARIES, "SUMMARY_URL"), Key),
    ])),
    ("OPENAI_API_BASE", Renamed("`EMBEDDING_URL` with `EMBEDDING_PROVIDER=openai`, `SUMMARY_URL` with `SUMMARY_PROVIDER=openai`", &[
        to("EMBEDDING_URL", Named(OPENAI), Text),
        to("SUMMARY_URL", Named(OPENAI_SUMMARIES), Text),
    ])),
    ("OPENAI_ORGANIZATION", NotNeeded("not sent; a project's key belongs to one organisation")),
    ("AZURE_OPENAI_API_KEY", Renamed("`EMBEDDING_API_KEY` with `EMBEDDING_PROVIDER=azure`", &[to("EMBEDDING_API_KEY", Named(AZURE), Key)])),
    ("AZURE_OPENAI_ENDPOINT", Renamed("`EMBEDDING_URL` with `EMBEDDING_PROVIDER=azure`", &[to("EMBEDDING_URL", Named(AZURE), Text)])),
    ("AZURE_OPENAI_API_VERSION", NotNeeded("the API without versions is used")),
    ("AZURE_OPENAI_EMBEDDING_DEPLOYMENT_NAME", Renamed("`EMBEDDING_MODEL` with `EMBEDDING_PROVIDER=azure`, and overrides it", &[over("EMBEDDING_MODEL", Named(AZURE), Text)])),
    ("HUGGINGFACEHUB_API_TOKEN", NotNeeded("the hosted API is no provider of this service; see `EMBEDDING_PROVIDER`")),
    ("VOYAGE_API_KEY", Renamed("`EMBEDDING_API_KEY` with `EMBEDDING_PROVIDER=voyage`; not for another address", &[to("EMBEDDING_API_KEY", OwnAddress(VOYAGE, "EMBEDDING_URL"), Key)])),
    ("VOYAGE_TRUNCATION", NotNeeded("texts are split into chunks that fit")),
    ("VOYAGE_BATCH_SIZE", NotNeeded("the service forms its batches")),
    ("LANGSMITH_TRACING", NotNeeded("no traces are sent")),
    ("LANGSMITH_API_KEY", NotNeeded("no traces are sent")),
    ("LANGSMITH_ENDPOINT", NotNeeded("no traces are sent")),
    ("LANGSMITH_PROJECT", NotNeeded("no traces are sent")),
    ("ENABLE_CHUNKING", NotNeeded("long texts are always split into chunks")),
    ("CHUNK_SIZE", Changed("tokens, not characters; a warning if it is larger than the window of a model inside the service")),
    ("CHUNK_OVERLAP", Changed("tokens, not characters; a warning if it is larger than half a chunk")),
    ("CHUNK_AGGREGATION", NotNeeded("the best chunk counts, as before")),
    ("CHUNK_DEDUP_OVERFETCH", NotNeeded("the search reads deep enough")),
    ("ENABLE_RERANKING", Same("`true` without a model is a warning, as before; default `auto`")),
    ("RERANKING_PROVIDER", NotNeeded("there is no FlashRank; `RERANK_PROVIDER` has other values")),
    ("RERANKING_MODEL", NotNeeded("FlashRank's models cannot be loaded; see `RERANK_MODEL_PATH`")),
    ("RERANKING_MAX_LENGTH", NotNeeded("the model's window is used")),
    ("RERANKING_OVERFETCH", NotNeeded("the number of candidates is fixed: 50, or 100 in hybrid search without a reranker")),
    ("RERANKING_CACHE_DIR", NotNeeded("no reranking model is downloaded")),
    ("RERANKING_CHARS_PER_TOKEN", NotNeeded("tokens are counted")),
    ("RERANKING_INTRA_OP_THREADS", NotNeeded("there is no ONNX Runtime")),
    ("RERANKING_CPU_MEM_ARENA", NotNeeded("there is no ONNX Runtime")),
    ("RERANKING_BATCH_SIZE", NotNeeded("the service forms its batches")),
    ("FTS_RERANK_WINDOW_SIZE", NotNeeded("full-text search reranks the first 1 000 characters of each entry")),
    ("FTS_RERANK_GAP_MERGE", NotNeeded("full-text search reranks the first 1 000 characters of each entry")),
    ("ENABLE_SEMANTIC_SEARCH", Same("`false` also stops making embeddings; default `auto`")),
    ("ENABLE_SUMMARY_GENERATION", Same("`true` without a model is a warning; default `auto`")),
    ("SUMMARY_PROVIDER", Same("default `auto`")),
    ("SUMMARY_MODEL", Same("default with Ollama: qwen3:0.6b, as before")),
    ("SUMMARY_MAX_TOKENS", Same("default 2000")),
    ("SUMMARY_TIMEOUT_S", Renamed("`SUMMARY_TIMEOUT_SECONDS`, rounded up", &[to("SUMMARY_TIMEOUT_SECONDS", Always, Seconds(3_600))])),
    ("SUMMARY_RETRY_MAX_ATTEMPTS", NotNeeded("summaries are retried in the background")),
    ("SUMMARY_RETRY_BASE_DELAY_S", NotNeeded("pauses cannot be set")),
    ("SUMMARY_MAX_CONCURRENT", NotNeeded("summaries are written one after the other")),
    ("SUMMARY_PROMPT", NotNeeded("the instructions are fixed")),
    ("SUMMARY_MIN_CONTENT_LENGTH", Same("")),
    ("SUMMARY_OLLAMA_NUM_CTX", NotNeeded("computed for each text")),
    ("SUMMARY_OLLAMA_TRUNCATE", NotNeeded("the first 48 000 characters are sent")),
    ("ANTHROPIC_API_KEY", Renamed("`SUMMARY_API_KEY` with `SUMMARY_PROVIDER=anthropic`; not for another address", &[to("SUMMARY_API_KEY", OwnAddress(ANTHROPIC, "SUMMARY_URL"), Key)])),
    ("SUMMARY_OPENAI_REASONING_EFFORT", NotNeeded("not sent; raise `SUMMARY_MAX_TOKENS` for models that reason")),
    ("SUMMARY_ANTHROPIC_EFFORT", NotNeeded("not sent")),
    ("ENABLE_FTS", Same("default `auto`, which is on")),
    ("FTS_LANGUAGE", Same("18 languages are stemmed on SQLite, not English alone")),
    ("ENABLE_HYBRID_SEARCH", Same("`true` with both searches off stops the start; default `auto`")),
    ("HYBRID_RRF_K", Same("")),
    ("HYBRID_RRF_OVERFETCH", NotNeeded("the search reads deep enough")),
    ("HYBRID_FTS_OR_THRESHOLD", NotNeeded("hybrid search always matches any of the words")),
    ("SEARCH_DEFAULT_SORT_BY", NotNeeded("always by relevance, as before")),
    ("SEARCH_TRUNCATION_LENGTH", Same("")),
    ("STORAGE_BACKEND", Same("")),
    ("MAX_IMAGE_SIZE_MB", Same("1 to 1024")),
    ("MAX_TOTAL_SIZE_MB", Same("1 to 1024; counts for the request, not for each entry of a batch")),
    ("DB_PATH", Same("`~` and `${VAR}` are expanded")),
    ("POOL_MAX_READERS", Renamed("`SQLITE_READERS`", &[to("SQLITE_READERS", Named(SQLITE), Number(64))])),
    ("POOL_MAX_WRITERS", NotNeeded("there is always one writer")),
    ("POOL_CONNECTION_TIMEOUT_S", Renamed("`SQLITE_BUSY_TIMEOUT_MS`, × 1000", &[to("SQLITE_BUSY_TIMEOUT_MS", Named(SQLITE), Milliseconds(600_000))])),
    ("POOL_IDLE_TIMEOUT_S", NotNeeded("connections stay open")),
    ("POOL_HEALTH_CHECK_INTERVAL_S", NotNeeded("there is no such check")),
    ("RETRY_MAX_RETRIES", NotNeeded("`POSTGRESQL_RETRIES` is similar: it does not count the first attempt")),
    ("RETRY_BASE_DELAY_S", NotNeeded("pauses cannot be set")),
    ("RETRY_MAX_DELAY_S", NotNeeded("pauses cannot be set")),
    ("RETRY_JITTER", NotNeeded("pauses are always random")),
    ("RETRY_BACKOFF_FACTOR", NotNeeded("pauses cannot be set")),
    ("SQLITE_FOREIGN_KEYS", NotNeeded("the schema does not depend on it")),
    ("SQLITE_JOURNAL_MODE", NotNeeded("always WAL")),
    ("SQLITE_SYNCHRONOUS", NotNeeded("always FULL, which is safer than the default of mcp-context-server")),
    ("SQLITE_TEMP_STORE", NotNeeded("always memory")),
    ("SQLITE_MMAP_SIZE", NotNeeded("fixed")),
    ("SQLITE_CACHE_SIZE", NotNeeded("fixed")),
    ("SQLITE_PAGE_SIZE", NotNeeded("the file's own")),
    ("SQLITE_WAL_AUTOCHECKPOINT", NotNeeded("fixed")),
    ("SQLITE_BUSY_TIMEOUT_MS", Same("1 to 600 000; default 5000")),
    ("SQLITE_WAL_CHECKPOINT", NotNeeded("the service decides when to write a checkpoint")),
    ("CIRCUIT_BREAKER_FAILURE_THRESHOLD", NotNeeded("`POSTGRESQL_CIRCUIT_BREAKER_FAILURES` is similar: it counts failed connections")),
    ("CIRCUIT_BREAKER_RECOVERY_TIMEOUT_S", Renamed("`POSTGRESQL_CIRCUIT_BREAKER_RECOVERY_MS`, × 1000", &[to("POSTGRESQL_CIRCUIT_BREAKER_RECOVERY_MS", Named(POSTGRESQL), Milliseconds(600_000))])),
    ("CIRCUIT_BREAKER_HALF_OPEN_MAX_CALLS", NotNeeded("one operation tries")),
    ("SHUTDOWN_TIMEOUT_S", NotNeeded("`CONTEXT_DRAIN_TIMEOUT_SECONDS` is similar: the time for requests to finish")),
    ("SHUTDOWN_TIMEOUT_TEST_S", NotNeeded("for tests of mcp-context-server")),
    ("QUEUE_TIMEOUT_S", NotNeeded("there is no such timeout; `SQLITE_WRITE_QUEUE` limits the writes that wait")),
    ("QUEUE_TIMEOUT_TEST_S", NotNeeded("for tests of mcp-context-server")),
    ("POSTGRESQL_CONNECTION_STRING", Same("unknown options, `sslcert` and `sslkey` stop the start; needs a user")),
    ("POSTGRESQL_HOST", Same("")),
    ("POSTGRESQL_PORT", Same("1 to 65535")),
    ("POSTGRESQL_USER", Same("taken literally, without percent-decoding")),
    ("POSTGRESQL_PASSWORD", Same("")),
    ("POSTGRESQL_DATABASE", Same("taken literally, without percent-decoding")),
    ("POSTGRESQL_POOL_MIN", NotNeeded("connections are opened when they are needed")),
    ("POSTGRESQL_POOL_MAX", Renamed("`POSTGRESQL_POOL_SIZE`", &[to("POSTGRESQL_POOL_SIZE", Named(POSTGRESQL), Number(1_000))])),
    ("POSTGRESQL_POOL_TIMEOUT_S", Renamed("`POSTGRESQL_POOL_TIMEOUT_MS`, × 1000", &[to("POSTGRESQL_POOL_TIMEOUT_MS", Named(POSTGRESQL), Milliseconds(600_000))])),
    ("POSTGRESQL_COMMAND_TIMEOUT_S", Renamed("`POSTGRESQL_STATEMENT_TIMEOUT_MS`, × 1000", &[to("POSTGRESQL_STATEMENT_TIMEOUT_MS", Named(POSTGRESQL), Milliseconds(3_600_000))])),
    ("POSTGRESQL_MIGRATION_TIMEOUT_S", NotNeeded("changes of the schema have no time limit")),
    ("POSTGRESQL_MAX_INACTIVE_LIFETIME_S", NotNeeded("connections stay open")),
    ("POSTGRESQL_MAX_QUERIES", NotNeeded("connections stay open")),
    ("POSTGRESQL_TCP_KEEPALIVES_IDLE_S", NotNeeded("30 s")),
    ("POSTGRESQL_TCP_KEEPALIVES_INTERVAL_S", NotNeeded("the system's, or `keepalives_interval` in the connection string")),
    ("POSTGRESQL_TCP_KEEPALIVES_COUNT", NotNeeded("the system's, or `keepalives_retries` in the connection string")),
    ("POSTGRESQL_STATEMENT_CACHE_SIZE", Renamed("`POSTGRESQL_STATEMENT_CACHE`: 0 is `false`, other sizes are `true`", &[to("POSTGRESQL_STATEMENT_CACHE", Named(POSTGRESQL), NotZero)])),
    ("POSTGRESQL_MAX_CACHED_STATEMENT_LIFETIME_S", NotNeeded("fixed statements stay prepared as long as the connection is open; of searches, the last 64 used")),
    ("POSTGRESQL_MAX_CACHEABLE_STATEMENT_SIZE", NotNeeded("there is no limit")),
    ("POSTGRESQL_SSL_MODE", Same("also applies to a connection string without `sslmode`")),
    ("POSTGRESQL_SCHEMA", NotNeeded("always the schema `context`; a warning for any value but `public`")),
    ("METADATA_INDEXED_FIELDS", Same("types are accepted and have no effect; empty is the default list")),
    ("METADATA_INDEX_SYNC_MODE", NotNeeded("SQLite adds and drops indexes, PostgreSQL only adds")),
];
