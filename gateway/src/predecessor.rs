//! The settings of mcp-context-server 2.2.2 that concern the gateway: `MCP_TRANSPORT`, `FASTMCP_HOST`, `FASTMCP_PORT`
//! and `MCP_AUTH_…`. `docs/migrating.md` lists all settings of mcp-context-server.

use std::ffi::OsString;

use context_model::expand_variables;

/// Translates the settings of mcp-context-server into arguments. Returns the new command line, and warnings about the
/// variables that changed it or have no effect. `MCP_TRANSPORT` is read without a subcommand, by `stdio` and by `http`.
/// The other variables are read by `http`. Other subcommands ignore them without a warning.
///
/// # Errors
/// A sentence that names the variable whose value cannot be used.
pub fn translated(
    mut arguments: Vec<OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Vec<OsString>, Vec<String>), String> {
    let get = |name: &str| {
        let value = expand_variables(&env(name)?, env).trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let mut warnings = Vec::new();
    let given = arguments.get(1).map(|given| given.to_string_lossy());
    let serves = given
        .as_deref()
        .is_none_or(|given| matches!(given, "stdio" | "http"));
    let transport = if serves { get("MCP_TRANSPORT") } else { None };
    let command = match transport.as_deref() {
        None => None,
        Some("stdio") => Some("stdio"),
        Some("http" | "streamable-http") => Some("http"),
        Some("sse") => {
            return Err(
                "MCP_TRANSPORT is `sse`, which this gateway does not serve; use `http`".to_owned(),
            );
        }
        Some(other) => {
            return Err(format!(
                "MCP_TRANSPORT is `{other}`; it must be stdio or http"
            ));
        }
    };
    match (command, given.as_deref()) {
        (Some(command), None) => {
            warnings.push(format!(
                "MCP_TRANSPORT is a setting of mcp-context-server and is read as the subcommand `{command}`; use the subcommand"
            ));
            arguments.push(command.into());
        }
        (Some(command), Some(given)) if command != given => {
            warnings.push(format!(
                "MCP_TRANSPORT differs from the subcommand `{given}`, which takes precedence"
            ));
        }
        (_, _) => {}
    }
    // mcp-context-server ignores the other settings on stdio.
    if arguments.get(1).is_none_or(|given| given != "http") {
        return Ok((arguments, warnings));
    }
    let has_flag = |flag: &str| {
        let texts = arguments.iter().filter_map(|argument| argument.to_str());
        texts
            .filter_map(|argument| argument.strip_prefix(flag))
            .any(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let is_set = |name: &&str| get(name).is_some_and(|value| value != "none");
    if let Some(name) = ["MCP_AUTH_TOKEN", "MCP_AUTH_PROVIDER"]
        .into_iter()
        .find(is_set)
    {
        let auth = match flag_value(&arguments, "--auth") {
            Some(value) => {
                let value = expand_variables(&value, env).trim().to_owned();
                (!value.is_empty()).then_some(value)
            }
            None => get("AUTH"),
        };
        if auth.is_none_or(|auth| auth.eq_ignore_ascii_case("off")) {
            return Err(format!(
                "{name} is set, so callers of mcp-context-server may need a token, but AUTH is off, so this gateway would accept callers without one; set \
                 AUTH=keys and create a key with `context-service keys create`, or remove {name}"
            ));
        }
        warnings.push(format!(
            "{name} has no effect: only AUTH decides whether clients need a key or token of the context service"
        ));
    }
    let (host, port) = (get("FASTMCP_HOST"), get("FASTMCP_PORT"));
    if host.is_none() && port.is_none() {
        return Ok((arguments, warnings));
    }
    if has_flag("--listen") || get("GATEWAY_LISTEN").is_some() {
        warnings.push(
            "FASTMCP_HOST and FASTMCP_PORT have no effect, because --listen or GATEWAY_LISTEN is set"
                .to_owned(),
        );
        return Ok((arguments, warnings));
    }
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let host = if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host
    };
    let port = port.unwrap_or_else(|| "7421".to_owned());
    if !port.parse().is_ok_and(|port: u16| port > 0) {
        return Err(format!(
            "FASTMCP_PORT is `{port}`; it must be a number from 1 to 65535"
        ));
    }
    warnings.push(format!(
        "FASTMCP_HOST and FASTMCP_PORT are settings of mcp-context-server and are read as GATEWAY_LISTEN={host}:{port}; rename them"
    ));
    arguments.insert(2, format!("--listen={host}:{port}").into());
    Ok((arguments, warnings))
}

/// The last value of a flag, written as `--flag=value` or `--flag value`.
fn flag_value(arguments: &[OsString], flag: &str) -> Option<String> {
    let texts: Vec<&str> = arguments.iter().filter_map(|text| text.to_str()).collect();
    texts.iter().enumerate().rev().find_map(|(at, text)| {
        let rest = text.strip_prefix(flag)?;
        let value = match rest.strip_prefix('=') {
            Some(value) => value,
            None if rest.is_empty() => texts.get(at + 1)?,
            None => return None,
        };
        Some(value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments after the program's name, and the warnings.
    fn translate(arguments: &[&str], env: &[(&str, &str)]) -> Result<(String, String), String> {
        let line = ["context-gateway"].iter().chain(arguments).map(Into::into);
        let (line, warnings) = translated(line.collect(), &|name| {
            let found = env.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| (*value).to_owned())
        })?;
        let words: Vec<_> = line[1..].iter().filter_map(|word| word.to_str()).collect();
        Ok((words.join(" "), warnings.join(" ")))
    }

    #[test]
    fn the_transport_is_the_subcommand_unless_one_is_given() {
        for (arguments, transport, expected, warning) in [
            (&[] as &[&str], "stdio", "stdio", "MCP_TRANSPORT"),
            (&[], "http", "http", "MCP_TRANSPORT"),
            (&[], "streamable-http", "http", "MCP_TRANSPORT"),
            (&[], "", "", ""),
            (&["stdio"], "stdio", "stdio", ""),
            (
                &["stdio"],
                "http",
                "stdio",
                "`stdio`, which takes precedence",
            ),
            (&["tools"], "http", "tools", ""),
            (&["--help"], "http", "--help", ""),
            (&["search"], "smoke", "search", ""),
        ] {
            let (line, warnings) = translate(arguments, &[("MCP_TRANSPORT", transport)]).unwrap();
            assert_eq!(line, expected, "{arguments:?} {transport}");
            assert!(
                warnings.contains(warning) && warnings.is_empty() == warning.is_empty(),
                "{warnings}"
            );
        }
        for transport in ["sse", "smoke"] {
            let refused = translate(&[], &[("MCP_TRANSPORT", transport)]).unwrap_err();
            assert!(
                refused.contains(transport) && refused.contains("http"),
                "{refused}"
            );
        }
    }

    #[test]
    fn host_and_port_are_the_address_of_http_only() {
        let (host, port) = (("FASTMCP_HOST", "::1"), ("FASTMCP_PORT", "8000"));
        for (arguments, env, expected) in [
            (&["http"][..], &[host, port][..], "http --listen=[::1]:8000"),
            (&["http"], &[host], "http --listen=[::1]:7421"),
            (
                &["http", "--insecure"],
                &[port],
                "http --listen=127.0.0.1:8000 --insecure",
            ),
            (
                &["http", "--listen=[::]:1"],
                &[host, port],
                "http --listen=[::]:1",
            ),
            (
                &["http"],
                &[port, ("GATEWAY_LISTEN", "127.0.0.1:1")],
                "http",
            ),
            (&["stdio"], &[host, port], "stdio"),
        ] {
            let (line, warnings) = translate(arguments, env).unwrap();
            assert_eq!(line, expected);
            assert_eq!(warnings.is_empty(), arguments[0] == "stdio", "{warnings}");
        }
        let refused = translate(&["http"], &[("FASTMCP_PORT", "0")]).unwrap_err();
        assert!(refused.contains("FASTMCP_PORT"), "{refused}");
    }

    #[test]
    fn a_token_that_protected_http_stops_an_open_gateway() {
        for (name, value) in [
            ("MCP_AUTH_TOKEN", "secret-of-the-test"),
            ("MCP_AUTH_PROVIDER", "simple_token"),
        ] {
            let refused = translate(&["http"], &[(name, value)]).unwrap_err();
            assert!(
                refused.contains(name) && !refused.contains("secret-of-the-test"),
                "{refused}"
            );
            let (_, warnings) = translate(&["http"], &[(name, value), ("AUTH", "keys")]).unwrap();
            assert!(warnings.contains(name), "{warnings}");
            assert!(translate(&["http", "--auth=keys"], &[(name, value)]).is_ok());
            assert!(translate(&["http", "--auth", "keys"], &[(name, value)]).is_ok());
            let keys = [(name, value), ("AUTH", "keys")];
            assert!(translate(&["http", "--auth=off"], &keys).is_err());
            assert!(translate(&["http", "--auth="], &keys).is_err());
            assert!(translate(&["http", "--auth", "off"], &keys).is_err());
            assert!(translate(&["stdio"], &[(name, value)]).is_ok());
        }
        assert!(translate(&["http"], &[("MCP_AUTH_PROVIDER", "none")]).is_ok());
    }
}
