//! The commands `search`, `list` and `threads`.

use clap::Args;
use context_model::{Operation, Reason};
use serde_json::{Value, json};

use super::common::{Common, Session};
use super::failure::{Failure, note};
use super::input::{self, Field};
use super::screen::{Screen, Side, listed, text};

/// The options that select entries.
#[derive(Debug, Clone, Args)]
pub struct Filters {
    /// Only entries of this thread
    #[arg(short, long)]
    pub thread: Option<String>,
    /// Only entries of this source: user or agent
    #[arg(short, long)]
    pub source: Option<String>,
    /// Only entries with this tag; repeat it for entries with any of several
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only entries with this metadata: key=text, or key:=JSON; repeat it for several. `a.b` is the field b of the
    /// object a
    #[arg(short, long = "metadata", value_name = "KEY=TEXT", value_parser = input::field)]
    pub metadata: Vec<Field>,
    /// Only entries stored at or after this date or time: 2026-01-31, 2026-01-31T10:00:00Z
    #[arg(long, value_name = "DATE")]
    pub since: Option<String>,
    /// Only entries stored at or before this date or time; a date means its end
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
    /// Maximum number of entries
    #[arg(short = 'n', long, default_value_t = 10)]
    pub limit: i64,
    /// Number of entries to skip
    #[arg(long)]
    pub offset: Option<i64>,
}

impl Filters {
    /// The request with these filters.
    fn request(self) -> Result<Value, Failure> {
        Ok(json!({
            "thread_id": self.thread,
            "source": self.source,
            "tags": input::list(self.tags),
            "metadata": input::object(self.metadata)?,
            "start_date": self.since,
            "end_date": self.until,
            "limit": self.limit,
            "offset": self.offset,
        }))
    }
}

/// The arguments of `search`.
#[derive(Debug, Clone, Args)]
pub struct SearchArgs {
    /// What to find, in natural language; `-` reads stdin
    #[arg(required = true)]
    pub query: Vec<String>,
    /// Which entries are searched.
    #[command(flatten)]
    pub filters: Filters,
    /// Only entries that are at least this relevant, 0 to 1
    #[arg(long, value_name = "RELEVANCE", value_parser = relevance)]
    pub min_relevance: Option<f64>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

fn relevance(value: &str) -> Result<f64, String> {
    let number: Option<f64> = value.parse().ok();
    number
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// Finds entries with hybrid search, or with full-text search if the service has no hybrid search.
///
/// # Errors
/// The service's error, or why there was no response.
pub async fn search(args: SearchArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let max_bytes = args.common.service.backend.max_message_bytes();
    let query = match args.query.as_slice() {
        [only] => input::text(Some(only.clone()), max_bytes)?,
        words => words.join(" "),
    };
    let mut request = args.filters.request()?;
    request["query"] = query.into();
    let mut hybrid = request.clone();
    hybrid["min_relevance"] = args.min_relevance.into();
    let reply = match session.call(Operation::HybridSearchContext, hybrid).await {
        // Full-text search reports no relevance, so it cannot replace a search with a minimum.
        Err(Failure::Service(error))
            if error.reason == Reason::FeatureUnavailable && args.min_relevance.is_none() =>
        {
            note(&error.message);
            session.call(Operation::FtsSearchContext, request).await?
        }
        outcome => outcome?,
    };
    print_entries(&session, &reply, true)
}

/// The arguments of `list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Which entries are listed.
    #[command(flatten)]
    pub filters: Filters,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Lists entries.
///
/// # Errors
/// The service's error, or why there was no response.
pub async fn list(args: ListArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let request = args.filters.request()?;
    let reply = session.call(Operation::SearchContext, request).await?;
    print_entries(&session, &reply, false)
}

/// The options of a list that has pages.
pub(super) const PAGING: &str = "--limit and --offset";

fn print_entries(session: &Session, reply: &Value, is_ranked: bool) -> Result<(), Failure> {
    let hits = reply["results"].as_array().map_or(&[][..], Vec::as_slice);
    session.print(reply, |screen| entries(screen, hits, is_ranked))?;
    if !session.screen.json {
        note_rest(reply, hits.len(), "entry", "entries", PAGING);
    }
    Ok(())
}

/// Says on stderr when a list is empty, or when more items follow it, which `options` show.
pub(super) fn note_rest(reply: &Value, shown: usize, one: &str, many: &str, options: &str) {
    if shown == 0 {
        note(&format!("no {one}"));
    } else if reply["has_more"] == true {
        note(&format!("there are more {many}; see {options}"));
    }
}

fn entries(screen: &Screen, hits: &[Value], is_ranked: bool) -> String {
    if hits.is_empty() {
        return String::new();
    }
    let has_relevance = is_ranked && hits.iter().any(|hit| hit["relevance"].is_number());
    let mut columns = vec![("ID", Side::Right), ("AGE", Side::Right)];
    if has_relevance {
        columns.push(("RELEVANCE", Side::Right));
    }
    columns.extend([("THREAD", Side::Left), ("SOURCE", Side::Left)]);
    if !is_ranked {
        columns.push(("TAGS", Side::Left));
    }
    columns.push(("TEXT", Side::Left));
    let row = |hit: &Value| {
        let mut row = vec![hit["id"].to_string(), screen.age(&hit["created_at"])];
        if has_relevance {
            let relevance = hit["relevance"].as_f64();
            row.push(relevance.map_or_else(String::new, |value| format!("{value:.2}")));
        }
        row.extend([
            text(hit, "thread_id").to_owned(),
            text(hit, "source").to_owned(),
        ]);
        if !is_ranked {
            row.push(listed(&hit["tags"]));
        }
        let part = hit["snippet"].as_str();
        row.push(part.unwrap_or(text(hit, "text_content")).to_owned());
        row
    };
    screen.table(&columns, hits.iter().map(row).collect())
}

/// The arguments of `threads`.
#[derive(Debug, Clone, Args)]
pub struct ThreadsArgs {
    /// Maximum number of threads
    #[arg(short = 'n', long, default_value_t = 30)]
    pub limit: i64,
    /// Number of threads to skip
    #[arg(long)]
    pub offset: Option<i64>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Lists threads.
///
/// # Errors
/// The service's error, or why there was no response.
pub async fn threads(args: ThreadsArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let request = json!({"limit": args.limit, "offset": args.offset});
    let reply = session.call(Operation::ListThreads, request).await?;
    let threads = reply["threads"].as_array().map_or(&[][..], Vec::as_slice);
    session.print(&reply, |screen| {
        if threads.is_empty() {
            return String::new();
        }
        let columns = [
            ("ENTRIES", Side::Right),
            ("AGE", Side::Right),
            ("THREAD", Side::Left),
        ];
        let row = |thread: &Value| {
            vec![
                thread["entry_count"].to_string(),
                screen.age(&thread["last_entry"]),
                text(thread, "thread_id").to_owned(),
            ]
        };
        screen.table(&columns, threads.iter().map(row).collect())
    })?;
    if !session.screen.json {
        note_rest(&reply, threads.len(), "thread", "threads", PAGING);
    }
    Ok(())
}
