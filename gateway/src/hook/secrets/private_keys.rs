//! Private keys in the formats of their programs, and the seeds of wallets.

use super::found::{Secret, up_to};

pub(super) fn find(text: &str) -> Vec<Secret> {
    let mut found = pem(text);
    found.extend(putty(text));
    found.extend(json_web_keys(text));
    found.extend(seed_phrases(text));
    found
}

/// PEM and PGP private keys. A key without its end line was cut, so the rest of the text is removed.
fn pem(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("-----BEGIN ") {
        let start = from + at;
        let label_start = start + "-----BEGIN ".len();
        let Some(label_length) = text[label_start..].find("-----") else {
            break;
        };
        let label_end = label_start + label_length;
        from = label_end;
        let label = &text[label_start..label_end];
        if label.len() > 60 || !label.contains("PRIVATE KEY") {
            continue;
        }
        let end = text[label_end..]
            .find("-----END ")
            .map(|at| label_end + at + "-----END ".len())
            .and_then(|at| Some(at + text[at..].find("-----")? + "-----".len()));
        let end = end.unwrap_or(text.len());
        found.push(Secret {
            range: start..end,
            kind: "private key",
        });
        from = end;
    }
    found
}

/// The private lines of a PuTTY key, up to its end.
fn putty(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let mut until = 0;
    for (start, _) in text.match_indices("Private-Lines:") {
        // It is a part of the key before.
        if start < until {
            continue;
        }
        until = text[start..]
            .find("Private-MAC:")
            .map_or(text.len(), |at| start + at);
        let end = text[until..]
            .find('\n')
            .map_or(text.len(), |length| until + length);
        found.push(Secret {
            range: start..end,
            kind: "private key",
        });
    }
    found
}

/// The private values of a JSON Web Key (RFC 7517).
fn json_web_keys(text: &str) -> Vec<Secret> {
    if !text.contains("\"kty\"") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in ["d", "k", "p", "q", "dp", "dq", "qi"] {
        let quoted = format!("\"{name}\"");
        for (at, _) in text.match_indices(&quoted) {
            let after = &text[at + quoted.len()..];
            let value = after.trim_start().trim_start_matches(':').trim_start();
            let Some(value) = value.strip_prefix('"') else {
                continue;
            };
            let start = text.len() - value.len();
            let length = value.find('"').unwrap_or(value.len());
            if length >= 16 {
                found.push(Secret {
                    range: start..start + length,
                    kind: "private key",
                });
            }
        }
    }
    found
}

/// Longest text in which a seed phrase is looked for after its name, in bytes.
const MAX_PHRASE: usize = 1024;

/// Twelve or more lower-case words after "seed phrase" and the like (BIP 39).
fn seed_phrases(text: &str) -> Vec<Secret> {
    let folded = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for name in [
        "seed phrase",
        "recovery phrase",
        "secret phrase",
        "mnemonic",
    ] {
        for (at, _) in folded.match_indices(name) {
            let after = at + name.len();
            let mut run: Vec<(usize, &str)> = Vec::new();
            // The phrase may stand in the next line, be numbered or quoted, and have commas or hyphens for spaces.
            let rest = up_to(&text[after..], MAX_PHRASE);
            let words = rest
                .split(|c: char| c.is_whitespace() || ",;:=|-_\"'[]".contains(c))
                .filter(|raw| !raw.is_empty());
            for raw in words.take(60) {
                let place = raw.as_ptr() as usize - rest.as_ptr() as usize;
                let word = raw.trim_matches(|c: char| !c.is_ascii_alphabetic());
                let is_of_list =
                    (3..=8).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
                if is_of_list {
                    run.push((after + place, raw));
                } else if run.len() >= 12 {
                    break;
                } else if !word.is_empty() {
                    run.clear();
                }
            }
            if let (12.., Some((start, _)), Some((last, word))) =
                (run.len(), run.first(), run.last())
            {
                found.push(Secret {
                    range: *start..last + word.len(),
                    kind: "seed phrase",
                });
            }
        }
    }
    found
}
