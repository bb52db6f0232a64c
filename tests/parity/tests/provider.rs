//! On each transport, an error names the embedding provider that does not respond.

use context_parity::Answer;
use context_parity::keys::{Gateway, KeyedService};
use context_test_support::Reserved;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_names_the_embedding_provider_that_does_not_respond() {
    let provider = Reserved::new();
    let host = format!("http://{}", provider.address());
    let settings = [
        ("AUTH", "keys"),
        ("EMBEDDING_PROVIDER", "ollama"),
        ("OLLAMA_HOST", &host),
    ];
    let service = KeyedService::start_with(&settings).await;
    let gateway = Gateway::http(&service).await;
    let key = service.key("reader", &["read"]).await;
    let named = format!("the embedding provider at {host}");
    for (transport, mut client) in service.clients(&gateway, &key).await {
        for (tool, arguments) in [
            ("semantic_search_context", json!({"query": "x"})),
            (
                "hybrid_search_context",
                json!({"query": "x", "search_modes": ["semantic"]}),
            ),
        ] {
            let Answer::Err(error) = client.call(tool, &arguments).await else {
                panic!("{tool} over {transport} needs the provider");
            };
            assert_eq!(
                error["reason"], "PROVIDER_UNAVAILABLE",
                "{tool} over {transport}: {error}"
            );
            let sentence = error["error"].as_str().expect("a sentence");
            assert!(
                sentence.contains(&named),
                "{tool} over {transport}: {sentence}"
            );
        }
        // Hybrid search then uses full text alone, and a warning says so.
        let hybrid = client
            .call("hybrid_search_context", &json!({"query": "x"}))
            .await;
        let Answer::Ok(reply) = hybrid else {
            panic!("{transport}: {hybrid:?}");
        };
        let warning = reply["warnings"][0].as_str().expect("a warning");
        assert!(warning.starts_with(&named), "{transport}: {warning}");
    }
}
