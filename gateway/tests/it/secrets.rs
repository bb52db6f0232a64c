//! How many planted secrets are removed, and how many ordinary lines are altered.
//!
//! `secrets.jsonl` has 200 lines, each with a secret of one of twenty kinds. `⟦` and `⟧` stand around the secret, and
//! `·` breaks it, so that no scanner takes the file for a leak. `ordinary.txt` has templates of ordinary lines. One
//! half of each was used to tune the rules, and the other one was not. `secrets_of_another.jsonl` has 240 lines of
//! another author, who had not seen the rules.

use std::collections::BTreeMap;
use std::path::Path;

use context_gateway::hook::secrets::redact;
use context_test_support::Random;
use serde_json::Value;

struct Planted {
    kind: String,
    half: String,
    line: String,
    secret: String,
}

fn planted() -> Vec<Planted> {
    let of = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let joined = text("line").replace('·', "");
        let (before, rest) = joined.split_once('⟦').unwrap();
        let (secret, after) = rest.split_once('⟧').unwrap();
        Planted {
            kind: text("kind"),
            half: text("half"),
            line: format!("{before}{secret}{after}"),
            secret: secret.to_owned(),
        }
    };
    let lines = include_str!("secrets.jsonl").lines();
    lines
        .chain(include_str!("secrets_of_another.jsonl").lines())
        .map(of)
        .collect()
}

/// Whether a text still contains any six consecutive bytes of the secret, or a shorter secret as a whole.
fn leaks(text: &str, secret: &str) -> bool {
    let bytes = secret.as_bytes();
    bytes.windows(bytes.len().min(6)).any(|part| {
        text.as_bytes()
            .windows(part.len())
            .any(|other| other == part)
    })
}

#[test]
fn of_four_hundred_and_forty_other_secrets_few_stay_in_the_text() {
    let planted = planted();
    assert_eq!(planted.len(), 440);
    let kinds: BTreeMap<&str, usize> = planted.iter().filter(|one| one.half != "another").fold(
        BTreeMap::new(),
        |mut kinds, one| {
            *kinds.entry(one.kind.as_str()).or_default() += 1;
            kinds
        },
    );
    assert!(
        kinds.len() >= 20 && kinds.values().all(|count| *count >= 10),
        "{kinds:?}"
    );
    let mut missed = BTreeMap::<&str, Vec<String>>::new();
    for one in &planted {
        let text = redact(&one.line).text;
        let missed = missed.entry(one.half.as_str()).or_default();
        if leaks(&text, &one.secret) {
            missed.push(format!("{}: {:?} -> {text:?}", one.kind, one.line));
        }
        // What was removed once is not changed again.
        assert_eq!(redact(&text).text, text);
    }
    for (half, missed) in &missed {
        eprintln!("{half}: {} secrets stay", missed.len());
    }
    // The rules are not adapted to the misses in `holdout`, so that it still measures what they miss. Of the other
    // author's secrets, 43 stayed at first; then the rules were improved where the cause was general.
    for (half, most) in [("tuning", 0), ("holdout", 1), ("another", 22)] {
        let missed = &missed[half];
        assert!(missed.len() <= most, "{half}: {}", missed.join("\n"));
    }
}

/// Names, flags and headers after which a random value is a secret.
const NAMED_PLACES: &[&str] = &[
    "api_key: {}",
    "export API_TOKEN={}",
    "deploy --token {} now",
    "{\"client_secret\": \"{}\"}",
    "secret = {}",
    "Authorization: Bearer {}",
];

#[test]
fn of_short_random_values_in_named_places_few_stay_in_the_text() {
    let alphabet: Vec<char> = BASE64[..62].chars().collect();
    let mut random = Random::new(23);
    // Values that happen to look like words stay.
    for (length, most) in [(8, 6), (12, 2)] {
        let mut missed = Vec::new();
        for n in 0..600 {
            let value: String = (0..length).map(|_| *random.pick(&alphabet)).collect();
            let line = NAMED_PLACES[n % NAMED_PLACES.len()].replace("{}", &value);
            if redact(&line).text.contains(&value) {
                missed.push(line);
            }
        }
        eprintln!("{length} characters: {} of 600 stay", missed.len());
        assert!(missed.len() * 100 <= 600 * most, "{missed:?}");
    }
}

const HEX: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A template with random values in the place of its fields.
fn filled(template: &str, random: &mut Random) -> String {
    let mut line = template.to_owned();
    let alphabets = [
        ("{sha}", HEX, 40),
        ("{short}", HEX, 9),
        ("{hex64}", HEX, 64),
        ("{hex16}", HEX, 16),
        ("{md5}", HEX, 32),
        ("{b64}", BASE64, 64),
        ("{b43}", BASE64, 43),
        ("{num}", "123456789", 4),
        ("{day}", "12", 2),
    ];
    let mut some = |alphabet: &str, length: usize| -> String {
        let characters: Vec<char> = alphabet.chars().collect();
        (0..length).map(|_| *random.pick(&characters)).collect()
    };
    for (field, alphabet, length) in alphabets {
        while line.contains(field) {
            line = line.replacen(field, &some(alphabet, length), 1);
        }
    }
    while line.contains("{uuid}") {
        let parts = [8, 4, 4, 4, 12].map(|length| some(HEX, length));
        line = line.replacen("{uuid}", &parts.join("-"), 1);
    }
    line
}

/// A thousand lines from templates and a thousand from files of the repository, with their half.
fn ordinary() -> Vec<(&'static str, String)> {
    let halves = ["tuning", "holdout"];
    let mut random = Random::new(11);
    let templates: Vec<&str> = include_str!("ordinary.txt").lines().collect();
    let mut lines: Vec<(&str, String)> = (0..1000)
        .map(|n| {
            let n = n % templates.len();
            (halves[n % 2], filled(templates[n], &mut random))
        })
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = [
        ("Cargo.lock", 0),
        ("docs/sync.md", 0),
        ("services/engine/src/validate.rs", 0),
        ("clients/python/walk.py", 0),
        ("docs/command-line.md", 0),
        ("openapi/openapi.json", 1),
        ("docs/api.md", 1),
        ("scripts/lib/servers.sh", 1),
        ("docker-compose.yml", 1),
        ("gateway/src/http/auth.rs", 1),
    ];
    for half in [0, 1] {
        let text: Vec<String> = files
            .iter()
            .filter(|(_, of)| *of == half)
            .map(|(file, _)| std::fs::read_to_string(root.join(file)).unwrap())
            .collect();
        let all: Vec<&str> = text
            .iter()
            .flat_map(|text| text.lines())
            .filter(|line| !line.trim().is_empty())
            .collect();
        assert!(all.len() >= 500, "{} lines", all.len());
        let chosen = (0..500).map(|n| all[n * all.len() / 500]);
        lines.extend(chosen.map(|line| (halves[half], line.to_owned())));
    }
    lines
}

#[test]
fn of_two_thousand_other_ordinary_lines_at_most_two_in_a_hundred_are_altered() {
    let lines = ordinary();
    assert_eq!(lines.len(), 2000);
    for half in ["tuning", "holdout"] {
        let of_half: Vec<_> = lines.iter().filter(|(of, _)| *of == half).collect();
        let altered: Vec<String> = of_half
            .iter()
            .filter(|(_, line)| redact(line).removed > 0)
            .map(|(_, line)| format!("{line:?} -> {:?}", redact(line).text))
            .collect();
        eprintln!(
            "{half}: {} of {} ordinary lines are altered",
            altered.len(),
            of_half.len()
        );
        assert!(
            altered.len() * 50 <= of_half.len(),
            "{half}: {} of {}:\n{}",
            altered.len(),
            of_half.len(),
            altered.join("\n")
        );
    }
}
