//! Tokens whose prefix or form is well known.

use super::found::Secret;

/// Characters that follow a prefix.
#[derive(Debug, Clone, Copy)]
enum Alphabet {
    /// Letters and digits.
    Alnum,
    /// Letters, digits, `_` and `-`.
    Url,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// Capital letters and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
    /// Base64, and the characters of a path.
    Path,
}

impl Alphabet {
    const fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Path => {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'_' | b'-' | b'/' | b'+' | b'=' | b'@' | b'.')
            }
        }
    }
}

/// Prefixes of tokens as their issuers document them. Each has the alphabet of the rest of the token, the rest's least
/// length, and the kind of secret, which is named in the text that replaces the token.
const PREFIXES: &[(&str, Alphabet, usize, &str)] = &[
    ("ghp_", Alphabet::Alnum, 20, "GitHub token"),
    ("gho_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghu_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghs_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghr_", Alphabet::Alnum, 20, "GitHub token"),
    ("github_pat_", Alphabet::Url, 20, "GitHub token"),
    ("glpat-", Alphabet::Dotted, 16, "GitLab token"),
    ("glptt-", Alphabet::Dotted, 16, "GitLab token"),
    ("gldt-", Alphabet::Dotted, 16, "GitLab token"),
    ("AKIA", Alphabet::Upper, 16, "AWS key"),
    ("ASIA", Alphabet::Upper, 16, "AWS key"),
    ("xoxb-", Alphabet::Url, 10, "Slack token"),
    ("xoxp-", Alphabet::Url, 10, "Slack token"),
    ("xoxa-", Alphabet::Url, 10, "Slack token"),
    ("xoxr-", Alphabet::Url, 10, "Slack token"),
    ("xoxs-", Alphabet::Url, 10, "Slack token"),
    ("xoxe-", Alphabet::Url, 10, "Slack token"),
    ("xapp-", Alphabet::Url, 10, "Slack token"),
    ("hooks.slack.com/services/", Alphabet::Path, 20, "webhook"),
    ("discord.com/api/webhooks/", Alphabet::Path, 20, "webhook"),
    ("sk_live_", Alphabet::Alnum, 16, "Stripe key"),
    ("sk_test_", Alphabet::Alnum, 16, "Stripe key"),
    ("rk_live_", Alphabet::Alnum, 16, "Stripe key"),
    ("rk_test_", Alphabet::Alnum, 16, "Stripe key"),
    ("whsec_", Alphabet::Path, 16, "webhook secret"),
    ("sk_prod_", Alphabet::Url, 16, "API key"),
    ("AIza", Alphabet::Url, 30, "Google key"),
    ("ya29.", Alphabet::Dotted, 20, "Google token"),
    ("GOCSPX-", Alphabet::Url, 20, "Google secret"),
    ("sk-ant-", Alphabet::Url, 20, "API key"),
    ("sk-proj-", Alphabet::Url, 20, "API key"),
    ("sk-", Alphabet::Alnum, 20, "API key"),
    ("gsk_", Alphabet::Alnum, 20, "API key"),
    ("xai-", Alphabet::Alnum, 20, "API key"),
    ("npm_", Alphabet::Alnum, 30, "npm token"),
    ("pypi-", Alphabet::Url, 30, "PyPI token"),
    ("hf_", Alphabet::Alnum, 20, "Hugging Face token"),
    ("SG.", Alphabet::Dotted, 30, "SendGrid key"),
    ("SK", Alphabet::Hex, 32, "Twilio key"),
    ("key-", Alphabet::Hex, 32, "Mailgun key"),
    ("dop_v1_", Alphabet::Hex, 32, "DigitalOcean token"),
    ("doo_v1_", Alphabet::Hex, 32, "DigitalOcean token"),
    ("shpat_", Alphabet::Hex, 24, "Shopify token"),
    ("shpss_", Alphabet::Hex, 24, "Shopify token"),
    ("dapi", Alphabet::Hex, 32, "Databricks token"),
    ("hvs.", Alphabet::Url, 20, "Vault token"),
    ("hvb.", Alphabet::Url, 20, "Vault token"),
    ("lin_api_", Alphabet::Alnum, 20, "Linear key"),
    ("ntn_", Alphabet::Alnum, 30, "Notion token"),
    ("secret_", Alphabet::Alnum, 40, "Notion token"),
    ("sntrys_", Alphabet::Path, 30, "Sentry token"),
    ("glsa_", Alphabet::Url, 30, "Grafana token"),
    ("pul-", Alphabet::Hex, 30, "Pulumi token"),
    ("dckr_pat_", Alphabet::Url, 20, "Docker token"),
    ("tskey-", Alphabet::Url, 20, "Tailscale key"),
    ("fly_", Alphabet::Path, 30, "Fly token"),
    ("AGE-SECRET-KEY-1", Alphabet::Upper, 40, "private key"),
    ("glrt-", Alphabet::Dotted, 16, "GitLab token"),
    ("glcbt-", Alphabet::Url, 16, "GitLab token"),
    ("glsoat-", Alphabet::Url, 16, "GitLab token"),
    ("glft-", Alphabet::Url, 16, "GitLab token"),
    ("glimt-", Alphabet::Url, 16, "GitLab token"),
    ("gloas-", Alphabet::Hex, 32, "GitLab token"),
    ("glagent-", Alphabet::Url, 16, "GitLab token"),
    ("GR1348941", Alphabet::Url, 16, "GitLab token"),
    ("ABIA", Alphabet::Upper, 16, "AWS key"),
    ("ACCA", Alphabet::Upper, 16, "AWS key"),
    ("ABSK", Alphabet::Path, 60, "AWS key"),
    ("LTAI", Alphabet::Alnum, 16, "Alibaba key"),
    ("AKID", Alphabet::Alnum, 28, "Tencent key"),
    ("1//0", Alphabet::Url, 30, "Google token"),
    ("AQ.", Alphabet::Url, 30, "Google key"),
    ("sk-or-", Alphabet::Url, 20, "API key"),
    ("sk-svcacct-", Alphabet::Url, 20, "API key"),
    ("sk-admin-", Alphabet::Url, 20, "API key"),
    ("sk-lf-", Alphabet::Url, 20, "API key"),
    ("sk_", Alphabet::Hex, 40, "API key"),
    ("lsv2_", Alphabet::Url, 30, "API key"),
    ("tvly-", Alphabet::Url, 20, "API key"),
    ("pplx-", Alphabet::Alnum, 20, "API key"),
    ("nvapi-", Alphabet::Url, 30, "API key"),
    ("csk-", Alphabet::Alnum, 30, "API key"),
    ("fw_", Alphabet::Alnum, 20, "API key"),
    ("jina_", Alphabet::Url, 30, "API key"),
    ("r8_", Alphabet::Alnum, 30, "API key"),
    ("tgp_v1_", Alphabet::Url, 30, "API key"),
    ("hf_oauth_", Alphabet::Url, 20, "Hugging Face token"),
    ("api_org_", Alphabet::Alnum, 30, "Hugging Face token"),
    ("xoxd-", Alphabet::Path, 10, "Slack token"),
    ("xoxc-", Alphabet::Url, 10, "Slack token"),
    ("rk_prod_", Alphabet::Alnum, 16, "Stripe key"),
    ("rzp_live_", Alphabet::Alnum, 12, "Razorpay key"),
    ("rzp_test_", Alphabet::Alnum, 12, "Razorpay key"),
    ("sq0atp-", Alphabet::Url, 20, "Square token"),
    ("sq0csp-", Alphabet::Url, 20, "Square token"),
    ("EAAA", Alphabet::Url, 56, "Square token"),
    ("EAAC", Alphabet::Alnum, 80, "Facebook token"),
    ("EAAM", Alphabet::Alnum, 80, "Facebook token"),
    ("IGQV", Alphabet::Url, 80, "Instagram token"),
    (
        "access_token$production$",
        Alphabet::Path,
        20,
        "PayPal token",
    ),
    ("FLWSECK", Alphabet::Url, 20, "Flutterwave key"),
    ("live_", Alphabet::Alnum, 30, "API key"),
    ("test_", Alphabet::Alnum, 30, "API key"),
    ("EZAK", Alphabet::Alnum, 50, "EasyPost key"),
    ("shippo_live_", Alphabet::Hex, 32, "Shippo token"),
    ("shpca_", Alphabet::Hex, 24, "Shopify token"),
    ("shppa_", Alphabet::Hex, 24, "Shopify token"),
    ("shptka_", Alphabet::Hex, 24, "Shopify token"),
    ("dor_v1_", Alphabet::Hex, 32, "DigitalOcean token"),
    ("dp.pt.", Alphabet::Alnum, 30, "Doppler token"),
    ("dp.st.", Alphabet::Dotted, 30, "Doppler token"),
    ("dp.ct.", Alphabet::Alnum, 30, "Doppler token"),
    ("dt0c01.", Alphabet::Dotted, 40, "Dynatrace token"),
    ("dt0s01.", Alphabet::Dotted, 40, "Dynatrace token"),
    ("NRAK-", Alphabet::Alnum, 20, "New Relic key"),
    ("NRII-", Alphabet::Url, 20, "New Relic key"),
    ("NRAL-", Alphabet::Url, 20, "New Relic key"),
    ("glc_", Alphabet::Path, 30, "Grafana token"),
    ("sntryu_", Alphabet::Hex, 40, "Sentry token"),
    ("phx_", Alphabet::Url, 30, "PostHog key"),
    ("phc_", Alphabet::Url, 30, "PostHog key"),
    ("sgp_", Alphabet::Url, 30, "Sourcegraph token"),
    ("hvr.", Alphabet::Url, 20, "Vault token"),
    ("ops_", Alphabet::Path, 60, "1Password token"),
    ("PMAK-", Alphabet::Url, 30, "Postman key"),
    ("figd_", Alphabet::Url, 20, "Figma token"),
    ("SWMTKN-1-", Alphabet::Url, 30, "Docker token"),
    ("dckr_oat_", Alphabet::Url, 20, "Docker token"),
    ("CCIPAT_", Alphabet::Url, 20, "CircleCI token"),
    ("CCIPRJ_", Alphabet::Url, 20, "CircleCI token"),
    ("bkua_", Alphabet::Alnum, 30, "Buildkite token"),
    ("rnd_", Alphabet::Alnum, 20, "Render key"),
    ("nfp_", Alphabet::Alnum, 20, "Netlify token"),
    ("vcp_", Alphabet::Alnum, 20, "Vercel token"),
    ("sbp_", Alphabet::Hex, 30, "Supabase token"),
    ("sb_secret_", Alphabet::Url, 20, "Supabase key"),
    ("pscale_tkn_", Alphabet::Dotted, 30, "PlanetScale token"),
    ("pscale_pw_", Alphabet::Dotted, 30, "PlanetScale password"),
    ("pscale_oauth_", Alphabet::Dotted, 30, "PlanetScale token"),
    ("napi_", Alphabet::Alnum, 40, "Neon key"),
    ("npg_", Alphabet::Alnum, 10, "Neon password"),
    ("AKCp", Alphabet::Alnum, 60, "Artifactory key"),
    ("cmVmdGtu", Alphabet::Alnum, 50, "Artifactory token"),
    ("rubygems_", Alphabet::Hex, 40, "RubyGems key"),
    ("oy2", Alphabet::Alnum, 43, "NuGet key"),
    ("cio", Alphabet::Alnum, 32, "crates.io token"),
    ("CFPAT-", Alphabet::Url, 30, "Contentful token"),
    ("cfut_", Alphabet::Url, 30, "Cloudflare token"),
    ("cfat_", Alphabet::Url, 30, "Cloudflare token"),
    ("HRKU-", Alphabet::Url, 30, "Heroku key"),
    ("ATATT3", Alphabet::Path, 60, "Atlassian token"),
    ("ATCTT3", Alphabet::Path, 60, "Atlassian token"),
    ("ATBB", Alphabet::Alnum, 28, "Bitbucket password"),
    ("BBDC-", Alphabet::Path, 30, "Bitbucket token"),
    ("xkeysib-", Alphabet::Url, 40, "Brevo key"),
    ("rdme_", Alphabet::Alnum, 50, "ReadMe key"),
    ("tfp_", Alphabet::Dotted, 40, "Typeform token"),
    ("sdk-", Alphabet::Url, 36, "LaunchDarkly key"),
    ("pat-na1-", Alphabet::Url, 30, "HubSpot token"),
    ("pat-eu1-", Alphabet::Url, 30, "HubSpot token"),
    ("nsec1", Alphabet::Alnum, 50, "private key"),
    ("xprv", Alphabet::Alnum, 100, "private key"),
    ("edsk", Alphabet::Alnum, 50, "private key"),
    ("access-sandbox-", Alphabet::Url, 30, "Plaid token"),
    ("access-production-", Alphabet::Url, 30, "Plaid token"),
    (
        "discordapp.com/api/webhooks/",
        Alphabet::Path,
        20,
        "webhook",
    ),
    ("hooks.zapier.com/hooks/", Alphabet::Path, 12, "webhook"),
    (
        "webhook.office.com/webhookb2/",
        Alphabet::Dotted,
        36,
        "webhook",
    ),
    (
        "outlook.office.com/webhook/",
        Alphabet::Dotted,
        36,
        "webhook",
    ),
    ("maker.ifttt.com/trigger/", Alphabet::Path, 20, "webhook"),
    ("hc-ping.com/", Alphabet::Url, 30, "webhook"),
];

/// Tokens with a well-known prefix or form.
pub(super) fn find(text: &str) -> Vec<Secret> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !begins_word(bytes, at) {
            at += 1;
            continue;
        }
        match token_at(bytes, at) {
            Some((end, kind)) => {
                found.push(Secret {
                    range: at..end,
                    kind,
                });
                at = end;
            }
            None => at += 1,
        }
    }
    found.extend(password_hashes(text));
    found
}

/// Whether a word, and perhaps a token, begins here. It may follow an escape such as `\n` or `%3D`.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    let is_after_escape = matches!(before, [.., b'\\', b'n' | b'r' | b't'])
        || matches!(before, [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let is_after_word = before.last().is_some_and(u8::is_ascii_alphanumeric);
    bytes[at].is_ascii_alphanumeric() && (is_after_escape || !is_after_word)
}

fn token_at(bytes: &[u8], at: usize) -> Option<(usize, &'static str)> {
    let rest = &bytes[at..];
    let by_form = || FORMS.iter().find_map(|form| form(rest));
    let (length, kind) = with_prefix(rest).or_else(by_form)?;
    Some((at + length, kind))
}

fn with_prefix(rest: &[u8]) -> Option<(usize, &'static str)> {
    PREFIXES.iter().find_map(|(prefix, alphabet, least, kind)| {
        let body = rest.strip_prefix(prefix.as_bytes())?;
        let body = &body[..run(body, *alphabet)];
        let end = prefix.len() + body.len();
        // `sk-learn-…` and other names have no digits.
        let is_mixed =
            body.iter().any(u8::is_ascii_uppercase) && body.iter().any(u8::is_ascii_lowercase);
        let is_random =
            body.iter().any(u8::is_ascii_digit) || body.len() >= if is_mixed { 30 } else { 40 };
        // A letter or digit outside the alphabet shows that this is another word.
        let is_whole = !matches!(alphabet, Alphabet::Upper | Alphabet::Hex)
            || !rest.get(end).is_some_and(u8::is_ascii_alphanumeric);
        (body.len() >= *least && is_random && is_whole).then_some((end, *kind))
    })
}

/// How many bytes at the beginning are of the alphabet.
fn run(bytes: &[u8], alphabet: Alphabet) -> usize {
    bytes.iter().take_while(|byte| alphabet.has(**byte)).count()
}

/// Recognises a token at the beginning of the bytes, and returns its length and its kind.
type Form = fn(&[u8]) -> Option<(usize, &'static str)>;

/// Tokens that are recognised by more than a prefix.
const FORMS: &[Form] = &[json_web_token, discord, azure, telegram, of_marked_parts];

/// Three base64url parts, or five when encrypted (RFC 7515, RFC 7516). An unsigned one may come without its third. A
/// long single part is a JSON object, such as the key file of a service account.
fn json_web_token(rest: &[u8]) -> Option<(usize, &'static str)> {
    if !rest.starts_with(b"eyJ") {
        return None;
    }
    let end = run(rest, Alphabet::Dotted);
    let parts = rest[..end].split(|byte| *byte == b'.').count();
    ((2..=5).contains(&parts) && end >= 40 || end >= 200).then_some((end, "JSON Web Token"))
}

/// The base64 of a number, a time and a signature.
fn discord(rest: &[u8]) -> Option<(usize, &'static str)> {
    if !matches!(rest.first(), Some(b'M' | b'N' | b'O')) {
        return None;
    }
    let id = run(&rest[..rest.len().min(29)], Alphabet::Url);
    let after_id = rest[id..].strip_prefix(b".")?;
    let time = run(&after_id[..after_id.len().min(8)], Alphabet::Url);
    let signature = after_id[time..].strip_prefix(b".")?;
    if !matches!((id, time), (23..=28, 6..=7)) {
        return None;
    }
    let last = run(signature, Alphabet::Url);
    let is_end = signature.get(last) != Some(&b'.');
    (last >= 27 && is_end).then_some((id + 1 + time + 1 + last, "Discord token"))
}

/// A client secret of Entra ID: three characters, a digit, `Q~`, and the rest.
fn azure(rest: &[u8]) -> Option<(usize, &'static str)> {
    let is_marked = rest.get(3).is_some_and(u8::is_ascii_digit) && rest.get(4..6) == Some(b"Q~");
    let end = rest
        .iter()
        .take(45)
        .take_while(|byte| Alphabet::Dotted.has(**byte) || **byte == b'~')
        .count();
    (is_marked && (36..=44).contains(&end)).then_some((end, "Azure secret"))
}

/// The bot's number, a colon, and at least 32 characters that begin with `AA`. In URLs `bot` stands before it.
fn telegram(rest: &[u8]) -> Option<(usize, &'static str)> {
    let skipped = if rest.starts_with(b"bot") { 3 } else { 0 };
    let digits = rest[skipped..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let colon = skipped + digits;
    if !(8..=10).contains(&digits) || !rest[colon..].starts_with(b":AA") {
        return None;
    }
    let length = run(&rest[colon + 1..], Alphabet::Url);
    (length >= 32).then_some((colon + 1 + length, "Telegram token"))
}

/// Checks the marks at fixed positions before it searches for the token's end: it runs at each word, and a long text
/// may follow.
///
/// Mailchimp: 32 hexadecimal digits and a data centre. Airtable, Terraform and Resend: parts of fixed lengths.
fn of_marked_parts(rest: &[u8]) -> Option<(usize, &'static str)> {
    let is_mailchimp =
        rest.get(32..35) == Some(b"-us") && rest[..32].iter().all(u8::is_ascii_hexdigit);
    let is_airtable = rest.starts_with(b"pat") && rest.get(17) == Some(&b'.');
    let is_terraform = rest.get(14..23) == Some(b".atlasv1.");
    let is_resend = rest.starts_with(b"re_") && rest.get(11) == Some(&b'_');
    let (least, kind) = if is_mailchimp {
        (35, "Mailchimp key")
    } else if is_airtable {
        (78, "Airtable token")
    } else if is_terraform {
        (60, "Terraform token")
    } else if is_resend {
        (30, "Resend key")
    } else {
        return None;
    };
    let end = run(rest, Alphabet::Dotted);
    (end >= least).then_some((end, kind))
}

/// Hashes of passwords, as crypt and Argon2 write them.
fn password_hashes(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for scheme in [
        "$2a$",
        "$2b$",
        "$2y$",
        "$5$",
        "$6$",
        "$y$",
        "$apr1$",
        "$argon2i$",
        "$argon2id$",
        "$scrypt$",
    ] {
        let mut until = 0;
        for (start, _) in text.match_indices(scheme) {
            // It is a part of the hash before.
            if start < until {
                continue;
            }
            let length = text[start..]
                .find(|c: char| !c.is_ascii_alphanumeric() && !"$./,=+-".contains(c))
                .unwrap_or(text.len() - start);
            until = start + length;
            if length >= 28 {
                found.push(Secret {
                    range: start..start + length,
                    kind: "password hash",
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_token_begins_a_word_and_may_follow_an_escape() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        for before in ["", "x ", "key_", "%a-", r#"{"env": "A=1\n"#, "u%3D"] {
            let found = find(&format!("{before}{token}"));
            assert_eq!(found.len(), 1, "{before}");
            assert_eq!(found[0].range.start, before.len(), "{before}");
        }
        for before in ["x", "n", "%3Dx"] {
            assert!(find(&format!("{before}{token}")).is_empty(), "{before}");
        }
    }
}
