//! Ratios of an earlier run. Absolute figures of another machine or minute say nothing; ratios to a floor that ran in
//! the same minute do, within a generous tolerance.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::report::Report;

/// How much worse a ratio may be before it is pointed out.
const TOLERANCE: f64 = 1.5;

/// The checked-in ratios.
#[derive(Debug, Serialize, Deserialize)]
pub struct Baseline {
    ratios: BTreeMap<String, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    ratio: f64,
    higher_is_better: bool,
}

impl Baseline {
    /// Reads one.
    ///
    /// # Errors
    /// When the file is missing or something else.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(
            serde_json::from_slice(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?,
        )
    }

    /// The ratios of a report.
    pub fn of(report: &Report) -> Self {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let entry = |ratio: crate::report::Ratio| Entry {
            ratio: round(ratio.value),
            higher_is_better: ratio.higher_is_better,
        };
        Self {
            ratios: report
                .ratios()
                .into_iter()
                .map(|(name, ratio)| (name, entry(ratio)))
                .collect(),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(
            path,
            serde_json::to_string_pretty(self)? + "\n",
        )?)
    }

    /// What is worse now than it was, beyond the tolerance, and how many ratios are in both.
    pub fn compare(&self, report: &Report) -> String {
        let mut out = String::new();
        let mut compared = 0;
        for (name, now) in report.ratios() {
            let Some(Entry {
                ratio: then,
                higher_is_better,
            }) = self.ratios.get(&name)
            else {
                continue;
            };
            compared += 1;
            let worse = if *higher_is_better {
                then / now.value
            } else {
                now.value / then
            };
            if worse > TOLERANCE {
                let _ = writeln!(
                    out,
                    "  WORSE  {name}: ratio {:.2}, was {then:.2}",
                    now.value
                );
            }
        }
        let _ = writeln!(
            out,
            "  {compared} ratios compared, pointed out when worse by more than a factor of {TOLERANCE}"
        );
        out
    }
}
