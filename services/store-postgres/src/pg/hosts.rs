//! The hosts of a connection, one by one.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

/// The configuration of each host, in the order in which they are tried. A configuration that the driver rejects is
/// returned as it is.
pub(crate) fn each(config: &Config) -> Vec<Config> {
    let (names, addresses, ports) = (
        config.get_hosts(),
        config.get_hostaddrs(),
        config.get_ports(),
    );
    let count = names.len().max(addresses.len());
    let is_sound = (names.is_empty() || names.len() == count)
        && (addresses.is_empty() || addresses.len() == count)
        && (ports.len() <= 1 || ports.len() == count);
    if count < 2 || !is_sound {
        return vec![config.clone()];
    }
    let mut order: Vec<usize> = (0..count).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        // Each `RandomState` hashes with other keys.
        order.sort_by_cached_key(|index| RandomState::new().hash_one(index));
    }
    order
        .into_iter()
        .map(|index| {
            let mut host = without_hosts(config);
            match names.get(index) {
                Some(Host::Tcp(name)) => {
                    host.host(name);
                }
                #[cfg(unix)]
                Some(Host::Unix(path)) => {
                    host.host_path(path);
                }
                None => {}
            }
            if let Some(address) = addresses.get(index) {
                host.hostaddr(*address);
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                host.port(*port);
            }
            host
        })
        .collect()
}

/// The configuration of each address of one host's name, in the order in which they are tried. A name that cannot be
/// resolved is left to the driver, for its error.
pub(crate) async fn each_address(host: &Config) -> Vec<Config> {
    let Some(name) = name_to_look_up(host) else {
        return vec![host.clone()];
    };
    // The driver's default.
    let port = host.get_ports().first().copied().unwrap_or(5432);
    let found = tokio::net::lookup_host((name, port)).await;
    let addresses = found.map(|found| found.map(|address| address.ip()).collect());
    at_addresses(host, addresses.unwrap_or_default())
}

/// `None` for a socket, and where the address is given.
fn name_to_look_up(host: &Config) -> Option<&str> {
    match (host.get_hosts(), host.get_hostaddrs()) {
        ([Host::Tcp(name)], []) => Some(name),
        _ => None,
    }
}

fn at_addresses(host: &Config, mut addresses: Vec<IpAddr>) -> Vec<Config> {
    if addresses.len() < 2 {
        return vec![host.clone()];
    }
    if host.get_load_balance_hosts() == LoadBalanceHosts::Random {
        addresses.sort_by_cached_key(|address| RandomState::new().hash_one(address));
    }
    let at = |address| {
        let mut host = host.clone();
        host.hostaddr(address);
        host
    };
    addresses.into_iter().map(at).collect()
}

/// Everything but the hosts and ports. The driver can add hosts to a configuration, and cannot remove them.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    copy.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(database) = config.get_dbname() {
        copy.dbname(database);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        copy.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        text.parse().expect("a connection string")
    }

    #[test]
    fn each_host_keeps_its_port_and_all_other_options() {
        let others = "user=u password=p dbname=d options='-c a=b' application_name=n sslmode=require sslnegotiation=direct \
                      connect_timeout=3 tcp_user_timeout=4 keepalives=0 keepalives_idle=5 keepalives_interval=6 \
                      keepalives_retries=7 target_session_attrs=read-write channel_binding=disable";
        let several = parse(&format!(
            "host=a,/b hostaddr=127.0.0.1,127.0.0.2 port=1,2 {others}"
        ));
        let expected = [
            parse(&format!("host=a hostaddr=127.0.0.1 port=1 {others}")),
            parse(&format!("host=/b hostaddr=127.0.0.2 port=2 {others}")),
        ];
        assert_eq!(each(&several), expected);
        assert_eq!(
            each(&parse("host=a,b port=7 user=u")),
            [parse("host=a port=7 user=u"), parse("host=b port=7 user=u")]
        );
        let mut random: Vec<String> = each(&parse("host=a,b,c load_balance_hosts=random user=u"))
            .iter()
            .map(|host| format!("{:?}", host.get_hosts()))
            .collect();
        random.sort();
        assert_eq!(random, ["[Tcp(\"a\")]", "[Tcp(\"b\")]", "[Tcp(\"c\")]"]);
    }

    #[test]
    fn each_address_of_a_name_keeps_the_name_for_tls() {
        let host = parse("host=a port=7 user=u");
        let addresses = ["::1", "127.0.0.1"].map(|address| address.parse().expect("an address"));
        assert_eq!(
            at_addresses(&host, addresses.to_vec()),
            [
                parse("host=a hostaddr=::1 port=7 user=u"),
                parse("host=a hostaddr=127.0.0.1 port=7 user=u")
            ]
        );
        assert_eq!(
            at_addresses(&host, addresses[..1].to_vec()),
            std::slice::from_ref(&host)
        );
        assert_eq!(at_addresses(&host, Vec::new()), [host]);
    }

    #[test]
    fn a_socket_and_a_given_address_are_not_looked_up() {
        for text in ["host=/run user=u", "host=a hostaddr=127.0.0.1 user=u"] {
            assert_eq!(name_to_look_up(&parse(text)), None, "{text}");
        }
        assert_eq!(name_to_look_up(&parse("host=a user=u")), Some("a"));
    }

    #[test]
    fn what_the_driver_rejects_reaches_the_driver() {
        for text in [
            "host=a user=u",
            "host=a,b hostaddr=127.0.0.1 user=u",
            "host=a,b,c port=1,2 user=u",
        ] {
            assert_eq!(each(&parse(text)), [parse(text)], "{text}");
        }
    }
}
