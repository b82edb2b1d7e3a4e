//! Benchmark tasks, as direct calls and as scripts.

use serde_json::{Value, json};
use toolgate_script::surface::CallCount;

use crate::records;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    One,
    Six,
    Regions,
    Cursor,
    Salaries,
}

/// A direct tool call and its result.
pub(crate) struct DirectCall {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    pub(crate) answer: Value,
}

/// A script, the server whose file the model reads, and the script's result and calls.
pub(crate) struct TaskScript {
    pub(crate) server: &'static str,
    pub(crate) code: &'static str,
    pub(crate) result: Value,
    pub(crate) calls: Vec<CallCount>,
}

impl Task {
    pub(crate) const ALL: [Self; 5] = [
        Self::One,
        Self::Six,
        Self::Regions,
        Self::Cursor,
        Self::Salaries,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "T1",
            Self::Six => "T2",
            Self::Regions => "T3",
            Self::Cursor => "T4",
            Self::Salaries => "T5",
        }
    }

    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::One => "What is the amount of record R-0007?",
            Self::Six => "Give the amounts of records R-0001 to R-0006.",
            Self::Regions => "Total amount of won records per region.",
            Self::Cursor => "Follow the cursor from c0 to the end and add the values.",
            Self::Salaries => "Average salary per team.",
        }
    }

    /// Returns the direct calls by turn. The calls of one turn are independent of each other.
    pub(crate) fn turns(self) -> Vec<Vec<DirectCall>> {
        match self {
            Self::One => vec![vec![get_record(7)]],
            Self::Six => vec![(1..=6).map(get_record).collect()],
            Self::Regions => vec![(0..4).map(get_dataset).collect()],
            Self::Cursor => (0..records::STEPS)
                .map(|number| vec![next(number)])
                .collect(),
            Self::Salaries => vec![
                vec![DirectCall {
                    tool: "hr_list_employees",
                    arguments: json!({}),
                    answer: records::employees(),
                }],
                (1..=records::EMPLOYEES).map(get_employee).collect(),
            ],
        }
    }

    pub(crate) fn script(self) -> TaskScript {
        match self {
            Self::One => TaskScript {
                server: "crm",
                code: include_str!("scripts/one.star"),
                result: json!(records::amount(7)),
                calls: vec![call_count("crm.get_record", 1)],
            },
            Self::Six => TaskScript {
                server: "crm",
                code: include_str!("scripts/six.star"),
                result: (1..=6)
                    .map(|n| (format!("R-{n:04}"), json!(records::amount(n))))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
                calls: vec![call_count("crm.get_record", 6)],
            },
            Self::Regions => TaskScript {
                server: "crm",
                code: include_str!("scripts/regions.star"),
                result: (0..4)
                    .map(|at| (records::REGIONS[at].to_owned(), json!(records::won(at))))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
                calls: vec![call_count("crm.get_dataset", 4)],
            },
            Self::Cursor => TaskScript {
                server: "crm",
                code: include_str!("scripts/cursor.star"),
                result: json!((1..=records::STEPS).map(|k| 3.5 * k as f64).sum::<f64>()),
                calls: vec![call_count("crm.next", records::STEPS)],
            },
            Self::Salaries => TaskScript {
                server: "hr",
                code: include_str!("scripts/salaries.star"),
                result: records::averages(),
                calls: vec![
                    call_count("hr.list_employees", 1),
                    call_count("hr.get_employee", records::EMPLOYEES),
                ],
            },
        }
    }
}

fn call_count(tool: &str, times: usize) -> CallCount {
    CallCount {
        tool: tool.to_owned(),
        succeeded: times,
        failed: 0,
    }
}

fn get_record(number: usize) -> DirectCall {
    DirectCall {
        tool: "crm_get_record",
        arguments: json!({"id": format!("R-{number:04}")}),
        answer: records::record(number),
    }
}

fn get_dataset(region: usize) -> DirectCall {
    DirectCall {
        tool: "crm_get_dataset",
        arguments: json!({"name": records::REGIONS[region]}),
        answer: records::dataset(region),
    }
}

fn next(number: usize) -> DirectCall {
    DirectCall {
        tool: "crm_next",
        arguments: json!({"cursor": format!("c{number}")}),
        answer: records::step(number),
    }
}

fn get_employee(number: usize) -> DirectCall {
    DirectCall {
        tool: "hr_get_employee",
        arguments: json!({"id": records::employee_id(number)}),
        answer: records::employee(number),
    }
}
