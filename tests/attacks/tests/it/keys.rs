//! Keys: wrong ones, many of them, and what is recorded about them.

use std::path::Path;
use std::time::{Duration, Instant};

use context_attacks::keys::{audit, key_of, operate, remove_digests, scope_missing};
use context_attacks::{Target, client};
use context_test_support::{Home, wait_for};
use serde_json::{Value, json};

const WRONG: usize = 2_000;
/// Number of the attacker's connections.
const CONNECTIONS: usize = 8;
/// How long a request may take.
const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// Invalid keys that share the first 16 characters with this key.
fn wrong(key: &str, count: usize) -> impl Iterator<Item = String> {
    let beginning = key[..16].to_owned();
    (0..count).map(move |number| format!("{beginning}{number:024}"))
}

async fn status(client: &reqwest::Client, target: &Target, key: &str) -> u16 {
    let url = format!("http://{}/v1/threads?limit=1", target.address());
    client
        .get(url)
        .bearer_auth(key)
        .send()
        .await
        .expect("a reply")
        .status()
        .as_u16()
}

/// Sends these keys over several connections, each of which waits for its replies. Returns the number of replies per
/// status.
async fn send(target: &Target, keys: Vec<String>) -> std::collections::BTreeMap<u16, usize> {
    let share = keys.len().div_ceil(CONNECTIONS);
    let senders = keys.chunks(share).map(|keys| async move {
        let (client, mut statuses) = (client(REPLY_WITHIN), Vec::new());
        for key in keys {
            statuses.push(status(&client, target, key).await);
        }
        statuses
    });
    let mut counted = std::collections::BTreeMap::new();
    for status in futures::future::join_all(senders)
        .await
        .into_iter()
        .flatten()
    {
        *counted.entry(status).or_default() += 1;
    }
    counted
}

async fn metric(target: &Target, name: &str) -> u64 {
    let text = client(REPLY_WITHIN)
        .get(format!("http://{}/metrics", target.address()))
        .send()
        .await
        .expect("a reply")
        .text()
        .await
        .expect("a text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}:\n{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_with_a_known_beginning_cost_no_bcrypt_and_delay_no_valid_key() {
    let target = Target::start(&[]).await;
    let fresh: Vec<String> = (0..20).map(|_| target.key("bystander", "read")).collect();
    let attack = send(&target, wrong(&target.read_key, WRONG).collect());
    let first_uses = async {
        let client = client(REPLY_WITHIN);
        for key in &fresh {
            assert_eq!(
                status(&client, &target, key).await,
                200,
                "the first use of a valid key"
            );
        }
    };
    let (counted, ()) = tokio::join!(attack, first_uses);
    assert_eq!(
        counted,
        [(401, WRONG)].into(),
        "each wrong key gets the same status"
    );
    assert_eq!(
        metric(&target, "context_key_verifications").await,
        0,
        "bcrypt did not run"
    );
    target.assert_bystander_is_served("after the attack").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secrets_for_a_key_of_an_older_version_use_little_and_others_are_verified_meanwhile()
{
    let target = Target::start(&[]).await;
    let fresh: Vec<String> = (0..5).map(|_| target.key("bystander", "read")).collect();
    let target = target
        .restarted(|database: &Path| remove_digests(database))
        .await;
    #[expect(clippy::disallowed_methods, reason = "measures the service's pauses")]
    let started = Instant::now();
    let attack = send(&target, wrong(&target.read_key, 24).collect());
    let first_uses = async {
        let client = client(REPLY_WITHIN);
        for key in &fresh {
            assert_eq!(
                status(&client, &target, key).await,
                200,
                "the first use of a valid key of an older version"
            );
        }
    };
    let (counted, ()) = tokio::join!(attack, first_uses);
    assert!(
        started.elapsed() > Duration::from_secs(10),
        "wrong secrets of one key are verified with pauses: {:?}",
        started.elapsed()
    );
    assert!(
        counted.keys().all(|status| matches!(status, 401 | 503)),
        "{counted:?}"
    );
    // The attacked key works too, at the latest after the attack. Its first success stores its digest.
    let client = client(REPLY_WITHIN);
    assert_eq!(status(&client, &target, &target.read_key).await, 200);
    let before = metric(&target, "context_key_verifications").await;
    assert_eq!(
        send(&target, wrong(&target.read_key, 200).collect()).await,
        [(401, 200)].into()
    );
    for key in &fresh {
        assert_eq!(status(&client, &target, key).await, 200);
    }
    assert_eq!(
        metric(&target, "context_key_verifications").await,
        before,
        "the first success stored the digest"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_planted_over_tcp_while_auth_is_off_and_those_of_the_operator_are_announced() {
    let home = Home::new();
    let service = home.start().await;
    let url = |path: &str| format!("http://{}{path}", service.address());
    let planted = client(REPLY_WITHIN)
        .post(url("/v1/api-keys"))
        .json(&json!({"name": "planted", "scopes": ["read", "manage"]}))
        .send()
        .await;
    let planted = planted.expect("a reply");
    assert_eq!(planted.status().as_u16(), 409);
    let problem: Value = planted.json().await.expect("JSON");
    assert_eq!(problem["reason"], "FEATURE_UNAVAILABLE");
    assert!(
        problem["detail"]
            .as_str()
            .expect("a sentence")
            .contains("AUTH is off"),
        "{problem}"
    );
    assert_eq!(
        client(REPLY_WITHIN)
            .get(url("/v1/api-keys"))
            .send()
            .await
            .expect("a reply")
            .status()
            .as_u16(),
        409,
        "listing keys is refused too"
    );
    let made = operate(
        &home,
        &[
            "keys",
            "create",
            "--owner",
            "ops",
            "--scopes",
            "read",
            "dashboard",
        ],
    );
    assert!(
        made.contains("AUTH is off, so no request needs a key yet."),
        "{made}"
    );
    let key = key_of(&made);
    assert!(service.terminate().await.success());
    let home = home.with("AUTH", "keys");
    let mut service = home.spawn();
    service.listening().await;
    let log = service.log();
    let announced = log
        .lines()
        .find(|line| line.contains("dashboard"))
        .unwrap_or_else(|| panic!("not announced:\n{log}"));
    assert!(announced.contains("owner ops  read"), "{announced}");
    assert!(!log.contains(&key) && !log.contains("planted"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_just_before_the_end_are_in_the_audit_log() {
    const REFUSED: i64 = 25;
    let target = Target::start(&[]).await;
    let body = json!({"thread_id": "t", "source": "user", "text": "not allowed"});
    for _ in 0..REFUSED {
        assert_eq!(
            target
                .post("/v1/contexts", &target.read_key, &body)
                .await
                .status()
                .as_u16(),
            403
        );
    }
    let home = target.stopped().await;
    let lines = audit(&home, "attacker");
    let refused: Vec<&Value> = scope_missing(&lines);
    assert_eq!(
        refused
            .iter()
            .map(|line| line["attempts"].as_i64().expect("a number"))
            .sum::<i64>(),
        REFUSED
    );
    assert!(
        refused.len() < 20,
        "refusals are written together: {}",
        refused.len()
    );
    assert!(
        refused
            .iter()
            .all(|line| line["operation"] == "store_context" && line["key_id"].is_string()),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_callers_are_counted_in_the_log_together_and_without_what_they_sent() {
    let target = Target::start(&[("LOG_LEVEL", "WARNING")]).await;
    let garbage: Vec<String> = wrong("sk_prod_AAAAAAAAAAAA", 300).collect();
    assert_eq!(send(&target, garbage).await, [(401, 300)].into());
    let counted = |log: &str| -> (usize, usize) {
        let lines = log
            .lines()
            .filter(|line| line.contains("without a valid key or token"));
        let numbers = lines.map(|line| {
            line.split("requests=")
                .nth(1)
                .and_then(|n| n.split_whitespace().next()?.parse().ok())
        });
        let numbers: Vec<usize> = numbers
            .map(|number| number.unwrap_or_else(|| panic!("no number:\n{log}")))
            .collect();
        (numbers.iter().sum(), numbers.len())
    };
    let lines = wait_for("all are counted", || {
        let (sum, lines) = counted(&target.service.log());
        (sum == 300).then_some(lines)
    });
    let lines = lines.await;
    assert!(lines < 60, "{lines} lines");
    assert!(!target.service.log().contains("sk_prod_AAAA"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_writes_what_it_does_to_keys_into_the_audit_log() {
    let home = Home::new();
    let id_in = |text: &str| {
        text.split("Its id is ")
            .nth(1)
            .and_then(|rest| rest.split('.').next())
            .expect("an id")
            .to_owned()
    };
    let first = id_in(&operate(&home, &["keys", "create", "one"]));
    let second = id_in(&operate(&home, &["keys", "rotate", &first]));
    for _ in 0..2 {
        assert!(operate(&home, &["keys", "revoke", &second]).contains("is deactivated"));
    }
    let lines = audit(&home, "default");
    let shown: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            (
                line["operation"].as_str().expect("a text"),
                line["entity_id"].as_str().expect("a text"),
            )
        })
        .collect();
    for line in [
        ("create_api_key", first.as_str()),
        ("rotate_api_key", &first),
        ("create_api_key", &second),
        ("deactivate_api_key", &second),
    ] {
        assert_eq!(
            shown.iter().filter(|shown| **shown == line).count(),
            1,
            "{line:?} in {shown:?}"
        );
    }
    assert_eq!(shown.len(), 4, "{shown:?}");
    assert!(
        lines.iter().all(|line| line["entity"] == "api_key"
            && line["outcome"] == "OK"
            && line["key_id"].is_null()),
        "{lines:?}"
    );
}
