//! A writer of entries and artifacts. It only causes changes, so it ignores refusals. [`crate::ledger`] checks what is
//! acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_test_support::http::{Reply, Request};
use context_test_support::{Deadline, Random};
use serde_json::{Value, json};

use super::endpoint::{Endpoints, with_key};

pub struct Writer {
    pub endpoints: Arc<Endpoints>,
    pub random: Random,
    pub key: Option<String>,
    /// Number of requests so far, over all writers.
    pub requests: Arc<AtomicUsize>,
    pub ids: Vec<Value>,
    pub artifacts: Vec<String>,
}

impl Writer {
    pub async fn run(mut self, requests: usize) {
        for _ in 0..requests {
            if self.write().await.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.requests.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: Option<Value>) -> Option<Value> {
        let deadline = Deadline::new();
        let Reply { status, body, .. } = loop {
            let endpoint = self.endpoints.any(&mut self.random).await;
            let request = Request::new(method, format!("http://{}{path}", endpoint.address));
            let mut request = with_key(request, self.key.as_deref());
            if let Some(body) = &body {
                request = request.json(body);
            }
            match request.try_send().await {
                Ok(reply) if reply.status != 503 => break reply,
                // While a service stops or cannot reach its database, the request is repeated, so that it causes a
                // change.
                other => deadline.pause(|| format!("{other:?}")).await,
            }
        };
        assert_ne!(status, 500, "{method} {path}: {body}");
        status
            .is_success()
            .then(|| serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn entry(&mut self) -> Value {
        let random = &mut self.random;
        let thread = *random.pick(&["t0", "t0", "t1", "t2", "t3"]);
        json!({
            "thread_id": thread, "source": random.pick(&["user", "agent"]), "text": text(random),
            "tags": tags(random), "metadata": {"n": random.below(10)},
        })
    }

    fn some_ids(&mut self) -> Vec<Value> {
        let count = 1 + self.random.below(4);
        if self.ids.is_empty() {
            return Vec::new();
        }
        let mut some: Vec<Value> = (0..count)
            .map(|_| self.random.pick(&self.ids).clone())
            .collect();
        some.sort_by_key(Value::as_i64);
        some.dedup();
        some
    }

    async fn write(&mut self) -> Option<Value> {
        match self.random.below(100) {
            0..30 => self.store().await,
            30..42 => self.store_batch().await,
            42..60 => self.update().await,
            60..68 => self.update_batch().await,
            68..84 => self.delete().await,
            _ => self.artifact().await,
        }
    }

    async fn store(&mut self) -> Option<Value> {
        let entry = self.entry();
        let reply = self.send("POST", "/v1/contexts", Some(entry)).await?;
        self.ids.push(reply["context_id"].clone());
        Some(reply)
    }

    async fn store_batch(&mut self) -> Option<Value> {
        let atomic = self.random.chance(60);
        let mut entries: Vec<Value> = (0..2 + self.random.below(6))
            .map(|_| self.entry())
            .collect();
        if !atomic {
            // An item that is rejected, beside items that are not.
            entries[1]["text"] = json!(" ");
        }
        let body = json!({"entries": entries, "atomic": atomic});
        let reply = self.send("POST", "/v1/contexts/batch", Some(body)).await?;
        let results = reply["results"].as_array()?;
        let stored = results.iter().map(|result| result["context_id"].clone());
        self.ids.extend(stored.filter(Value::is_i64));
        Some(reply)
    }

    fn patch(&mut self) -> Value {
        let random = &mut self.random;
        match random.below(4) {
            0 => json!({"text": text(random)}),
            1 => json!({"tags": tags(random)}),
            2 => json!({"metadata": {"n": random.below(10)}}),
            _ => json!({"metadata_patch": {"n": random.below(10), "m": null}}),
        }
    }

    async fn update(&mut self) -> Option<Value> {
        let id = self.some_ids().pop()?;
        let patch = self.patch();
        self.send("PATCH", &format!("/v1/contexts/{id}"), Some(patch))
            .await
    }

    async fn update_batch(&mut self) -> Option<Value> {
        let mut updates = Vec::new();
        for id in self.some_ids() {
            let mut update = self.patch();
            update["context_id"] = id;
            updates.push(update);
        }
        let body = json!({"updates": updates, "atomic": self.random.chance(60)});
        self.send("PATCH", "/v1/contexts/batch", Some(body)).await
    }

    async fn delete(&mut self) -> Option<Value> {
        let ids = self.some_ids();
        let (path, body) = match self.random.below(10) {
            0 => ("/v1/contexts/delete", json!({"thread_id": "t3"})),
            1 => (
                "/v1/contexts/batch-delete",
                json!({"thread_ids": ["t2", "t3"], "source": "agent"}),
            ),
            2 => (
                "/v1/contexts/batch-delete",
                json!({"context_ids": ids, "source": "user"}),
            ),
            _ => ("/v1/contexts/delete", json!({"context_ids": ids})),
        };
        self.ids.retain(|id| !ids.contains(id));
        self.send("POST", path, Some(body)).await
    }

    async fn artifact(&mut self) -> Option<Value> {
        let (content, n) = (text(&mut self.random), self.random.below(10));
        let path = format!("/notes/{}.md", self.random.next());
        let count = self.artifacts.len();
        if count == 0 || self.random.chance(35) {
            let mut body = json!({"content": content, "metadata": {"n": n}});
            if self.random.chance(50) {
                body["path"] = json!(path);
            }
            let reply = self.send("POST", "/v1/artifacts", Some(body)).await?;
            self.artifacts.push(reply["id"].as_str()?.to_owned());
            return Some(reply);
        }
        let number = self.random.below(count);
        let at = format!("/v1/artifacts/{}", self.artifacts[number]);
        match self.random.below(5) {
            0 => {
                self.artifacts.remove(number);
                self.send("DELETE", &at, None).await
            }
            1 => self.send("PATCH", &at, Some(json!({"path": path}))).await,
            2 => {
                self.send("POST", &format!("{at}/versions/1/restore"), None)
                    .await
            }
            3 => {
                self.send("PATCH", &at, Some(json!({"metadata": {"n": n}})))
                    .await
            }
            _ => {
                self.send("PATCH", &at, Some(json!({"content": content})))
                    .await
            }
        }
    }
}

fn text(random: &mut Random) -> String {
    let length = *random.pick(&[1, 10, 10, 100, 3000]);
    format!("{} {}", random.next(), "ж".repeat(length))
}

fn tags(random: &mut Random) -> Vec<&'static str> {
    random
        .pick(&[vec![], vec!["keep"], vec!["other"], vec!["keep", "other"]])
        .clone()
}
