//! A range of IP addresses in CIDR notation.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    address: IpAddr,
    prefix: u8,
}

impl IpRange {
    pub fn contains(self, address: IpAddr) -> bool {
        let (range_bits, width) = to_bits(self.address);
        let (bits, other_width) = to_bits(address.to_canonical());
        let host_bits = width - u32::from(self.prefix);
        // Shifting by the full width would overflow.
        let network = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
        width == other_width && network(range_bits) == network(bits)
    }
}

/// Returns the bits of an address and their number.
fn to_bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl FromStr for IpRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("`{text}` is no IP address or range such as `10.0.0.0/8`");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let address = address.to_canonical();
        let (_, width) = to_bits(address);
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| invalid())?,
            None => width,
        };
        let prefix = u8::try_from(prefix).map_err(|_| invalid())?;
        if u32::from(prefix) > width {
            return Err(invalid());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
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
