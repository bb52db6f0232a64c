//! Reads the lists of the API, to compare them with what followers received.

use std::sync::Arc;

use context_test_support::Random;
use context_test_support::http::Request;
use serde_json::{Value, json};

use super::convert::{artifact_of_json, entry_of_json};
use super::endpoint::{Endpoints, send_until_available, with_key};
use super::follower::NUMBERED;
use super::{Filter, Stored};

/// A reader of the lists of the API.
pub(super) struct Lists {
    pub endpoints: Arc<Endpoints>,
    pub random: Random,
    pub key: Option<String>,
}

impl Lists {
    async fn get(&mut self, path: &str) -> Value {
        let endpoint = self.endpoints.any(&mut self.random).await;
        let request = || with_key(Request::get(endpoint.address, path), self.key.as_deref());
        let reply = send_until_available(request).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    async fn search(&mut self, search: &Value) -> Value {
        let endpoint = self.endpoints.any(&mut self.random).await;
        let request = || {
            let request = Request::post(endpoint.address, "/v1/contexts/search", search);
            with_key(request, self.key.as_deref())
        };
        let reply = send_until_available(request).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// What the lists of the API return with this filter.
    pub async fn stored(&mut self, filter: Filter) -> Stored {
        let mut stored = Stored::new();
        if filter != Filter::Artifacts {
            self.stored_entries(filter, &mut stored).await;
        }
        let artifacts = match filter {
            Filter::None | Filter::Artifacts => Some(String::new()),
            Filter::Numbered => Some(format!("&metadata_filters={NUMBERED}")),
            Filter::Thread(_) | Filter::OfUser | Filter::Tagged | Filter::OfKey => None,
        };
        if let Some(query) = artifacts {
            self.stored_artifacts(&query, &mut stored).await;
        }
        stored
    }

    async fn stored_entries(&mut self, filter: Filter, stored: &mut Stored) {
        let mut search = json!({"limit": 100, "offset": 0});
        match filter {
            Filter::Thread(thread) => search["thread_id"] = json!(thread),
            Filter::OfKey => search["thread_id"] = json!("t0"),
            Filter::OfUser => search["source"] = json!("user"),
            Filter::Tagged => search["tags"] = json!(["keep"]),
            Filter::Numbered => {
                search["metadata_filters"] = json!([{"key": "n", "operator": "gte", "value": 5}]);
            }
            Filter::None | Filter::Artifacts => {}
        }
        let mut ids = Vec::new();
        loop {
            search["offset"] = json!(ids.len());
            let page = self.search(&search).await;
            let found = page["results"].as_array().expect("a list");
            ids.extend(found.iter().map(|entry| entry["id"].to_string()));
            if page["has_more"] != true {
                break;
            }
            assert!(!found.is_empty(), "an empty page is not the last one");
        }
        for some in ids.chunks(100) {
            let page = self
                .get(&format!(
                    "/v1/contexts?include_images=false&ids={}",
                    some.join(",")
                ))
                .await;
            for entry in page["result"].as_array().expect("a list") {
                stored.insert(
                    ("context".to_owned(), entry["id"].to_string()),
                    entry_of_json(entry),
                );
            }
        }
    }

    async fn stored_artifacts(&mut self, query: &str, stored: &mut Stored) {
        let mut ids = Vec::new();
        loop {
            let page = self
                .get(&format!(
                    "/v1/artifacts?limit=50&offset={}{query}",
                    ids.len()
                ))
                .await;
            let found = page["result"].as_array().expect("a list");
            ids.extend(
                found
                    .iter()
                    .map(|artifact| artifact["id"].as_str().expect("an id").to_owned()),
            );
            if page["has_more"] != true {
                break;
            }
            assert!(!found.is_empty(), "an empty page is not the last one");
        }
        for id in ids {
            let artifact = self.get(&format!("/v1/artifacts/{id}")).await;
            stored.insert(("artifact".to_owned(), id), artifact_of_json(&artifact));
        }
    }
}
