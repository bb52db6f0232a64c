//! gRPC on the same port and on the socket.

use std::time::Duration;

use context_proto::error_from_status;
use context_proto::v1::api_key_service_client::ApiKeyServiceClient;
use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::v1::{
    GetCallerRequest, GetContextByIdsRequest, GetStatisticsRequest, ListThreadsRequest,
    SearchContextRequest, StoreContextRequest,
};
use context_test_support::grpc;
use context_test_support::http::Request;
use http::Version;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::service::Service;

fn client(service: &Service) -> ContextServiceClient<Channel> {
    ContextServiceClient::new(grpc::at(service.address))
}

fn entry(text: &str) -> StoreContextRequest {
    StoreContextRequest {
        thread_id: "t".into(),
        source: "user".into(),
        text: text.into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_port_serves_rest_and_grpc_with_the_same_entries() {
    let service = Service::start().await;
    let mut client = client(&service);
    let stored = client
        .store_context(entry("over gRPC"))
        .await
        .unwrap()
        .into_inner();
    let rest = service
        .get(&format!("/v1/contexts/{}", stored.context_id))
        .send()
        .await;
    assert_eq!(rest.version, Version::HTTP_11);
    assert_eq!(rest.json()["text_content"], "over gRPC");
    let rest = service.get("/v1/threads").http2().send().await;
    assert_eq!(
        (rest.version, rest.json()["total_threads"].as_i64()),
        (Version::HTTP_2, Some(1))
    );
    let threads = client
        .list_threads(ListThreadsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(threads.total_threads, 1);
    assert_eq!(
        client
            .get_statistics(GetStatisticsRequest::default())
            .await
            .unwrap()
            .into_inner()
            .total_entries,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_carry_reason_and_fields() {
    let service = Service::start().await;
    let request = SearchContextRequest {
        limit: Some(500),
        ..Default::default()
    };
    let status = client(&service).search_context(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let error = error_from_status(&status);
    assert_eq!(
        (error.reason.as_str(), error.violations[0].field.as_str()),
        ("INVALID_ARGUMENT", "limit")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_is_unimplemented() {
    let service = Service::start().await;
    let reply = service
        .request("POST", "/context.v1.ContextService/Nothing")
        .header("content-type", "application/grpc")
        .http2()
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("grpc-status")),
        (200, Some("12"))
    );
    let reply = service
        .request("POST", "/no.such.Service/Nothing")
        .header("content-type", "application/grpc")
        .http2()
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("grpc-status")),
        (200, Some("12"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_honoured() {
    let service = Service::start().await;
    let search: context_model::SearchContextRequest =
        serde_json::from_value(service.endless_search_body().await).unwrap();
    let message = context_proto::v1::SearchContextRequest::from(search).encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    // Sent without tonic's client, which would itself end the call at the deadline.
    let request = service
        .request("POST", "/context.v1.ContextService/SearchContext")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "100m")
        .body(body)
        .http2();
    let reply = tokio::time::timeout(Duration::from_secs(30), request.send())
        .await
        .expect("long before the service's own limit");
    assert_eq!(reply.header("grpc-status"), Some("4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_with_its_idempotency_key_gives_the_first_reply() {
    let service = Service::start().await;
    let mut client = client(&service);
    let request = || {
        let mut request = tonic::Request::new(entry("once"));
        request
            .metadata_mut()
            .insert("idempotency-key", "k1".parse().unwrap());
        request
    };
    let first = client.store_context(request()).await.unwrap().into_inner();
    client.store_context(entry("between")).await.unwrap();
    assert_eq!(
        client
            .store_context(request())
            .await
            .unwrap()
            .into_inner()
            .context_id,
        first.context_id
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_compressed_both_ways_when_the_client_wants_that() {
    let service = Service::start().await;
    let mut client = client(&service)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let text = "word ".repeat(10_000);
    let id = client
        .store_context(entry(&text))
        .await
        .unwrap()
        .into_inner()
        .context_id;
    let reply = client
        .get_context_by_ids(GetContextByIdsRequest {
            context_ids: vec![id],
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(reply.metadata().get("grpc-encoding").unwrap(), "gzip");
    assert_eq!(reply.into_inner().contexts[0].text_content, text);
    // The service of keys takes compressed requests too: clients set compression for a whole channel.
    let mut keys = ApiKeyServiceClient::new(grpc::at(service.address))
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let reply = keys.get_caller(GetCallerRequest {}).await.unwrap();
    assert!(reply.metadata().get("grpc-encoding").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_the_limit_is_refused() {
    let service = Service::start_with(&["--max-total-size-mb=1", "--max-image-size-mb=1"]).await;
    let mut client = client(&service);
    let status = client
        .store_context(entry(&"x".repeat(70 << 20)))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), error_from_status(&status).reason.as_str()),
        (Code::ResourceExhausted, "REQUEST_TOO_LARGE")
    );
    // The same message compressed to 70 kB. Decompression stops at the limit.
    let mut packed = client.clone().send_compressed(CompressionEncoding::Gzip);
    let status = packed
        .store_context(entry(&"x".repeat(70 << 20)))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    client.store_context(entry("small")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_unavailable_with_retry_info() {
    let service = Service::start_with(&["--max-concurrent-requests=1", "--request-queue=0"]).await;
    let slow = tokio::spawn(service.endless_search().await.send());
    service.until_busy().await;
    let status = client(&service)
        .list_threads(ListThreadsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        error_from_status(&status).retry_after,
        Some(Duration::from_secs(1))
    );
    slow.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_for_the_service_and_overall() {
    let service = Service::start().await;
    let mut health = HealthClient::new(grpc::at(service.address));
    for name in ["", "context.v1.ContextService"] {
        let reply = health
            .check(HealthCheckRequest {
                service: name.into(),
            })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(reply.status, 1, "{name}");
    }
    let unknown = health
        .check(HealthCheckRequest {
            service: "other".into(),
        })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_watch_health_leave_room_for_other_requests_without_credentials() {
    let service = Service::start().await;
    let mut health = HealthClient::new(grpc::at(service.address));
    let mut watches = Vec::new();
    // As many as there may be other requests without credentials.
    for _ in 0..64 {
        let overall = HealthCheckRequest::default();
        let mut watch = health.watch(overall).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
        watches.push(watch);
    }
    assert_eq!(service.get("/healthz").send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_serves_the_same_whatever_host_is_named() {
    let service = Service::start().await;
    ContextServiceClient::new(grpc::at_socket(&service.socket))
        .store_context(entry("over the socket"))
        .await
        .unwrap();
    let over_tcp = service
        .get("/v1/statistics")
        .header("host", "evil.example")
        .send()
        .await;
    assert_eq!(over_tcp.status, 400, "{}", over_tcp.body);
    let mut socket = UnixStream::connect(&service.socket).await.unwrap();
    let request = b"GET /v1/statistics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.unwrap();
    assert!(
        reply.starts_with("HTTP/1.1 200") && reply.contains("\"total_entries\":1,"),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_address_serves_grpc_alone() {
    let service = Service::start_with(&["--grpc-listen=127.0.0.1:0"]).await;
    let address = service.grpc_address.expect("a second address");
    ContextServiceClient::new(grpc::at(address))
        .store_context(entry("over the second address"))
        .await
        .unwrap();
    assert_eq!(
        service.get("/v1/statistics").send().await.json()["total_entries"],
        1
    );
    let rest = Request::get(address, "/v1/statistics").send().await;
    assert_eq!(
        (rest.status.as_u16(), rest.reason().as_str()),
        (404, "NOT_FOUND")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_works_over_http_1() {
    let service = Service::start().await;
    // An empty message: no compression, length 0.
    let reply = service
        .request("POST", "/context.v1.ContextService/ListThreads")
        .header("content-type", "application/grpc-web+proto")
        .header("x-grpc-web", "1")
        .body(vec![0, 0, 0, 0, 0])
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.version),
        (200, Version::HTTP_11)
    );
    assert_eq!(
        reply.header("content-type"),
        Some("application/grpc-web+proto")
    );
    assert!(reply.body.contains("grpc-status:0"), "{:?}", reply.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_refused_without_harm() {
    let service = Service::start().await;
    for body in [
        &b"\x00\x00\x00\x00\x05garba"[..],
        b"\xff\xff\xff\xff\xff",
        b"\x00",
        b"\x01\x00\x00\x00\x03abc",
    ] {
        let reply = service
            .request("POST", "/context.v1.ContextService/StoreContext")
            .header("content-type", "application/grpc")
            .body(body.to_vec())
            .http2()
            .send()
            .await;
        assert_eq!(reply.status, 200);
        let code = reply.header("grpc-status");
        assert!(code.is_some_and(|code| code != "0"), "{body:?}: {code:?}");
    }
    let statistics = service.get("/v1/statistics").send().await.json();
    assert_eq!(statistics["total_entries"], 0);
    assert_eq!(service.get("/healthz").send().await.status, 200);
}
