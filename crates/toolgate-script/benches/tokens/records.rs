//! Data returned by the servers of the tasks.

use serde_json::{Value, json};

pub(crate) const REGIONS: [&str; 4] = ["north", "south", "east", "west"];
pub(crate) const EMPLOYEES: usize = 18;
pub(crate) const STEPS: usize = 8;

const STATUSES: [&str; 3] = ["open", "won", "lost"];
const OWNERS: [&str; 5] = [
    "Ada Byron",
    "Bela Kun",
    "Chen Wei",
    "Dora Maar",
    "Emil Noether",
];
const TEAMS: [&str; 4] = ["sales", "support", "platform", "finance"];
const PLACES: [&str; 3] = ["Berlin", "Lisbon", "Osaka"];

pub(crate) fn amount(number: usize) -> usize {
    1000 + 37 * number
}

pub(crate) fn record(number: usize) -> Value {
    json!({
        "id": format!("R-{number:04}"),
        "name": format!("Opportunity {number}"),
        "owner": OWNERS[number % OWNERS.len()],
        "status": STATUSES[number % STATUSES.len()],
        "amount": amount(number),
        "updated": format!("2026-{:02}-{:02}", number % 12 + 1, number % 28 + 1),
    })
}

/// Returns the numbers of a region's 300 records.
pub(crate) fn numbers(region: usize) -> std::ops::Range<usize> {
    region * 300 + 1..region * 300 + 301
}

pub(crate) fn dataset(region: usize) -> Value {
    json!({"records": numbers(region).map(record).collect::<Vec<_>>()})
}

pub(crate) fn won(region: usize) -> usize {
    numbers(region)
        .filter(|number| STATUSES[number % STATUSES.len()] == "won")
        .map(amount)
        .sum()
}

/// Returns the step after cursor `c{number}`.
pub(crate) fn step(number: usize) -> Value {
    let next = number + 1;
    json!({"cursor": format!("c{next}"), "value": 3.5 * next as f64, "done": next == STEPS})
}

pub(crate) fn employee_id(number: usize) -> String {
    format!("E-{number:02}")
}

pub(crate) fn employees() -> Value {
    let list = (1..=EMPLOYEES)
        .map(|number| json!({"id": employee_id(number), "name": format!("Employee {number}")}));
    json!({"employees": list.collect::<Vec<_>>()})
}

pub(crate) fn employee(number: usize) -> Value {
    json!({
        "id": employee_id(number),
        "name": format!("Employee {number}"),
        "team": TEAMS[number % TEAMS.len()],
        "manager": OWNERS[number % OWNERS.len()],
        "salary": salary(number),
        "start": format!("20{:02}-03-01", 10 + number % 15),
        "location": PLACES[number % PLACES.len()],
        "notes": "Prefers mail over calls. Works from home on Fridays and mentors new colleagues in the first month.",
    })
}

fn salary(number: usize) -> usize {
    48_000 + 1_500 * number
}

/// Returns the average salary of each team.
pub(crate) fn averages() -> Value {
    let average = |team: usize| {
        let members: Vec<usize> = (1..=EMPLOYEES)
            .filter(|number| number % TEAMS.len() == team)
            .collect();
        let sum: usize = members.iter().copied().map(salary).sum();
        json!(sum as f64 / members.len() as f64)
    };
    let teams = (1..=TEAMS.len()).map(|team| team % TEAMS.len());
    teams
        .map(|team| (TEAMS[team].to_owned(), average(team)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
