//! A range of IP addresses in CIDR notation.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange(IpNet);

impl IpRange {
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for IpRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse().map(|address: IpAddr| address.to_canonical());
        let range = address.map(IpNet::from).or_else(|_| text.parse());
        range
            .map(Self)
            .map_err(|_| format!("`{text}` is no IP address or range such as `10.0.0.0/8`"))
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for IpRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for IpRange {
    fn schema_name() -> Cow<'static, str> {
        "IpRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_contains_addresses_with_its_prefix() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::/8", "fdff::1", "fe80::1"),
            ("::/0", "fdff::1", "10.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
        ] {
            let range: IpRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{range} {inside}");
            let outside: IpAddr = outside.parse().unwrap();
            assert!(!range.contains(outside), "{range} {outside}");
        }
        for invalid in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "::1/129",
            "proxy",
        ] {
            assert!(invalid.parse::<IpRange>().is_err(), "{invalid}");
        }
    }
}
