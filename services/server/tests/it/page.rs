//! The page at `/` and its files.

use crate::service::Service;

const FILES: [(&str, &str); 3] = [
    ("/", "text/html; charset=utf-8"),
    ("/ui/app.js", "text/javascript; charset=utf-8"),
    ("/ui/app.css", "text/css; charset=utf-8"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_page_allows_no_other_host_and_no_inline_script() {
    let service = Service::start().await;
    for (path, kind) in FILES {
        let reply = service.get(path).send().await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (200, Some(kind)),
            "{path}"
        );
        let policy = reply.header("content-security-policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        for forbidden in ["unsafe", "http", "*"] {
            assert!(!policy.contains(forbidden), "{path}: {policy}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_names_its_files_relative_to_itself() {
    let service = Service::start().await;
    let page = service.get("/").send().await.body;
    let mut files = Vec::new();
    for attribute in page.split(['"']).skip(1).step_by(2) {
        assert!(!attribute.starts_with('/'), "{attribute}");
        assert!(!attribute.starts_with("http"), "{attribute}");
        if attribute.starts_with("ui/") {
            files.push(format!("/{attribute}"));
        }
    }
    files.sort();
    assert_eq!(files, ["/ui/app.css", "/ui/app.js"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let service = Service::start().await;
    for (path, _) in FILES {
        let first = service.get(path).send().await;
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        let tag = first.header("etag").unwrap();
        let same = service.get(path).header("if-none-match", tag).send().await;
        assert_eq!(
            (same.status.as_u16(), same.body.as_str()),
            (304, ""),
            "{path}"
        );
        let other = format!("\"0\", {tag}");
        let listed = service
            .get(path)
            .header("if-none-match", &other)
            .send()
            .await;
        assert_eq!(listed.status, 304, "{path}");
        let old = service
            .get(path)
            .header("if-none-match", "W/\"0\"")
            .send()
            .await;
        assert_eq!(old.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_file_of_the_page_is_not_found() {
    let service = Service::start().await;
    for path in ["/ui/", "/ui/other.js", "/ui/../Cargo.toml"] {
        assert_eq!(
            service.get(path).send().await.reason(),
            "NOT_FOUND",
            "{path}"
        );
    }
    assert_eq!(
        service.request("POST", "/").send().await.reason(),
        "METHOD_NOT_ALLOWED"
    );
}
