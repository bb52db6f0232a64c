//! Recall: stored entries that may help with a prompt.

use serde_json::json;

use super::frame::{Frame, line};
use super::service::{Hit, Service};

/// The least relevance of the best entry. It is higher than docs/retrieval.md recommends for a search, because the
/// agent did not ask for the entry.
const MIN_RELEVANCE: f64 = 0.95;
/// The least relevance of further entries. It is higher still, because a doubtful entry beside a good one only costs
/// tokens.
const MIN_RELEVANCE_OF_OTHERS: f64 = 0.99;
/// Maximum number of entries for a prompt.
const MAX_SNIPPETS: usize = 3;
/// Maximum number of characters of an entry in the text for the agent.
const MAX_CHARS: usize = 300;
/// How many hits are read at most; usually `MIN_RELEVANCE` leaves a few. Those of this session, questions and entries
/// that were shown before are dropped, and no filter of the service can express that: its `ne` also excludes entries
/// without the field. In a long session about one topic the first dozens are its own, and others must remain.
const CANDIDATES: i64 = 100;
/// Maximum number of characters of a prompt that are searched for. A longer prompt is cut to its beginning and its end.
const MAX_QUERY_CHARS: usize = 800;

/// The value of the metadata field `scope` of entries that belong to every project.
const GENERAL: &str = "general";

/// Words that say nothing about a topic: function words, answers, and instructions that are common in every project.
const GENERIC: &str = " a about actually add after again all also am an and any anything are as at back be because been before \
best better big bit both build bug but by bye call can cannot change changes check clean clear code command commit compile confirm \
continue cool correct could current deploy did diff do does doing done don dont each else error errors etc everything example \
exactly execute explain fail failed failing fails faster file files fine finish first fix fixed fixes following for format from function \
further get git give go going good got great had happened has have he hello help her here hey hi him his how i if implement in \
instead into is issue it its just keep know last let lets like line lines lint list ll log logs look lot main make makes many may me \
merge message method might mind more most move much must my need needs never new next nice no nope not nothing now of off ok okay on once one \
only open or other our out over perfect please plan proceed problem pull push put re read ready really refactor remove rename repo \
restart result results retry revert review right run running same save see she should shorter show simpler simplify slower smaller so some something start started \
status step still stop sure suite take task tell test tests than thank thanks that the their them then there these they thing things \
think this those through to today too try two type undo up update us use used using ve version very wait want was way we well were \
what when where which while who why will with without work works would write wrong yeah yep yes yet you your ";
/// As [`GENERIC`], in other languages: German words, and clauses in Chinese, which is split only at punctuation.
const GENERIC_IN_OTHER_LANGUAGES: &str = " aber alle alles also anders auch auf aus bei bitte danke dann das dasselbe datei dateien dem den \
der des die dies diese dieser dieses dir doch ein eine einem einen einer einmal erkläre erklär erledigt erst es fehler \
fertig für funktioniert gehen geht genau gut habe haben hat hier ich ihn immer ist ja jetzt kann kannst klar können könntest \
lass lassen laufen lauf leider los mach mache machen mal mehr mich mir mit nach nächste nächsten nein nicht nichts noch \
nochmal nochmals nun nur oder ohne okay passt prima prüfe rückgängig schau schön schon sehr sich sie sieht sind so sollte \
sonst stimmt stopp super test tests tu tun und uns vielen von vorn vorne war warte warten warum was weiter wenn wer wie \
wieder wir wird wo zeig zeige zeilen zu zum zur zurück \
继续 继续吧 请继续 好 好的 好吧 可以 行 是 是的 对 对的 不 不是 不对 不行 谢谢 多谢 再试一次 重试 重来 试试 撤销 撤回 提交 推送 \
运行测试 跑测试 再跑一次 下一步 等等 停 没问题 为什么 怎么了 ";

/// What to search for; `None` for a prompt that stored entries cannot help with: a command, or one without a topic.
#[must_use]
pub fn query(prompt: &str) -> Option<String> {
    let prompt = prompt.trim();
    if prompt.starts_with(['/', '!', '#']) {
        return None;
    }
    let topics = prompt
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .filter(|word| {
            let folded = word.to_lowercase();
            let is_number = word.chars().all(|c| c.is_ascii_digit());
            // In a script without spaces a whole clause counts as one word, and two characters can name a topic.
            let is_long_enough = folded.chars().count() >= 3 || !word.is_ascii();
            let word = format!(" {folded} ");
            let is_generic = GENERIC.contains(&word) || GENERIC_IN_OTHER_LANGUAGES.contains(&word);
            is_long_enough && !is_number && !is_generic
        })
        .count();
    if topics == 0 {
        return None;
    }
    let count = prompt.chars().count();
    if count <= MAX_QUERY_CHARS {
        return Some(prompt.to_owned());
    }
    // In a long prompt the question usually stands before or after pasted text.
    let half = MAX_QUERY_CHARS / 2;
    let start: String = prompt.chars().take(half).collect();
    let end: String = prompt.chars().skip(count - half).collect();
    Some(format!("{start} {end}"))
}

/// The entries about the query that belong to this project or to every project, best first, without those of this
/// session. `key` is the project's key, and `thread_id` and `session_id` are those of this session.
///
/// # Errors
/// The message of the service's error, or why there was no response.
pub async fn find(
    service: &Service,
    query: &str,
    key: &str,
    thread_id: &str,
    session_id: &str,
) -> Result<Vec<Hit>, String> {
    let search = async |field: &str, value: &str| {
        let found = service.hybrid(json!({
            "query": query,
            // The filter ignores case, because the service then needs only the index on the field and parses no
            // metadata. Hits whose value differs in case are dropped below.
            "metadata_filters": [{"key": field, "operator": "eq", "value": value}],
            "min_relevance": MIN_RELEVANCE,
            "limit": CANDIDATES,
        }));
        let mut hits = found.await?;
        hits.retain(|hit| hit.field(field).is_none_or(|found| found == value));
        Ok::<_, context_model::Error>(hits)
    };
    let message = |error: context_model::Error| error.message;
    let (own, general) = tokio::join!(search("project", key), search("scope", GENERAL));
    let mut hits = own.map_err(message)?;
    for hit in general.map_err(message)? {
        if !hits.iter().any(|known| known.id == hit.id) {
            hits.push(hit);
        }
    }
    hits.retain(|hit| hit.thread_id != thread_id && hit.field("session") != Some(session_id));
    // An earlier prompt that only asks the same question would rank first, although it answers nothing.
    hits.retain(|hit| !(hit.is_user && only_asks(&hit.text)));
    hits.sort_by(|a, b| b.relevance.total_cmp(&a.relevance));
    Ok(hits)
}

/// Whether every sentence of a text is a question.
fn only_asks(text: &str) -> bool {
    let has_statement = [". ", "! ", ": ", "\n", "。", "！"]
        .iter()
        .any(|end| text.contains(end));
    text.trim_end().ends_with(['?', '？']) && !has_statement
}

/// The text for the agent: at most three entries, best first, without those in `shown`. The hits have the order of
/// [`find`].
#[must_use]
pub fn frame(hits: &[Hit], shown: &[i64]) -> Frame {
    let mut frame = Frame::new("Earlier notes that may help with this prompt.");
    let worthwhile = hits
        .iter()
        .enumerate()
        .filter(|(place, hit)| *place == 0 || hit.relevance >= MIN_RELEVANCE_OF_OTHERS)
        .map(|(_, hit)| hit);
    for hit in worthwhile.filter(|hit| !shown.contains(&hit.id)) {
        if frame.ids.len() == MAX_SNIPPETS {
            break;
        }
        // A text that does not fit into the remaining tokens may still fit in part.
        let _ =
            frame.add(hit.id, line(hit, MAX_CHARS)) || frame.add(hit.id, line(hit, MAX_CHARS / 3));
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_with_a_statement_is_more_than_a_question() {
        assert!(only_asks("Where does the key live? In which vault?") && only_asks("钥匙在哪里？"));
        for text in [
            "It lives in vault seven.",
            "It moved to vault nine. Is that fine?",
            "Port 6543: is that right?",
        ] {
            assert!(!only_asks(text), "{text}");
        }
    }

    #[test]
    fn prompts_without_a_topic_are_not_searched_for() {
        for prompt in [
            "yes",
            "Yes, please.",
            "ok",
            "run the tests",
            "Run all tests again!",
            "continue",
            "go on",
            "fix it",
            "now commit and push",
            "/compact",
            "!ls",
            "1",
            "2.",
            "thanks, that works",
            "why did that fail?",
            "",
            "...",
            "try again",
            "do it",
            "ja, mach weiter",
            "Danke, das passt so!",
            "好的，谢谢",
            "继续",
        ] {
            assert_eq!(query(prompt), None, "{prompt:?}");
        }
        for prompt in [
            "Where does the deploy key live?",
            "why Postgres?",
            "デプロイキーはどこ",
            "what did we decide about retries",
        ] {
            assert_eq!(query(prompt).as_deref(), Some(prompt));
        }
        let long = format!("Why does the parser fail? {}", "x1 ".repeat(2000));
        assert!(query(&long).unwrap().chars().count() <= MAX_QUERY_CHARS + 1);
    }
}
