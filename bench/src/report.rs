//! The results, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::measure::Series;

/// All results.
#[derive(Debug, Default)]
pub struct Report {
    facts: Vec<(String, String)>,
    sections: Vec<Section>,
    goals: Vec<Goal>,
}

/// A contender's result relative to its floor.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// The contender's figure divided by the floor's.
    pub value: f64,
    /// Whether a higher ratio is better.
    pub higher_is_better: bool,
}

impl Ratio {
    /// A ratio of throughputs.
    pub const fn higher(value: f64) -> Self {
        Self {
            value,
            higher_is_better: true,
        }
    }

    /// A ratio of times.
    pub const fn lower(value: f64) -> Self {
        Self {
            value,
            higher_is_better: false,
        }
    }
}

/// The contenders of one comparison.
#[derive(Debug)]
pub struct Section {
    name: String,
    about: String,
    lines: Vec<(Series, Option<Ratio>)>,
    notes: Vec<String>,
}

impl Section {
    /// An empty section.
    pub fn new(name: &str, about: &str) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a contender. A floor has no ratio, and neither has a contender that is not compared with a floor.
    pub fn add(&mut self, series: &Series, ratio: Option<Ratio>) {
        self.lines.push((series.clone(), ratio));
    }

    /// Adds a note.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

/// A performance goal.
#[derive(Debug)]
pub struct Goal {
    name: String,
    value: f64,
    bound: f64,
    unit: &'static str,
    at_least: bool,
}

impl Goal {
    /// The figure must not be lower than the bound.
    pub const fn at_least(name: String, value: f64, bound: f64, unit: &'static str) -> Self {
        Self {
            name,
            value,
            bound,
            unit,
            at_least: true,
        }
    }

    /// The figure must not be higher than the bound.
    pub const fn at_most(name: String, value: f64, bound: f64, unit: &'static str) -> Self {
        Self {
            name,
            value,
            bound,
            unit,
            at_least: false,
        }
    }

    fn is_met(&self) -> bool {
        if self.at_least {
            self.value >= self.bound
        } else {
            self.value <= self.bound
        }
    }
}

impl Report {
    /// Adds a fact.
    pub fn fact(&mut self, name: &str, value: String) {
        self.facts.push((name.to_owned(), value));
    }

    /// Adds a section.
    pub fn section(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Adds a goal.
    pub fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    /// Removes all goals.
    pub fn forget_goals(&mut self) {
        self.goals.clear();
    }

    /// The name and value of every ratio.
    pub fn ratios(&self) -> Vec<(String, Ratio)> {
        let of_section = |section: &Section| {
            let ratios = section.lines.iter().filter_map(|(series, ratio)| {
                Some((format!("{}: {}", section.name, series.name), (*ratio)?))
            });
            ratios.collect::<Vec<_>>()
        };
        self.sections.iter().flat_map(of_section).collect()
    }

    /// The report as a table. All figures are medians over the rounds. CPU times are per operation.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (name, value) in &self.facts {
            let _ = writeln!(out, "{name}: {value}");
        }
        for section in &self.sections {
            let _ = writeln!(out, "\n{} ({})", section.name, section.about);
            let _ = writeln!(
                out,
                "  {:<24}{:>11}{:>11}{:>11}{:>9}  {:>10}{:>10}{:>9}",
                "", "per second", "p50 µs", "p95 µs", "ratio", "service µs", "gateway", "client"
            );
            let has_floor = section.lines.iter().any(|(_, ratio)| ratio.is_some());
            let without_ratio = if has_floor { "floor" } else { "-" };
            for (series, ratio) in &section.lines {
                let ratio = ratio.map_or(without_ratio.to_owned(), |ratio| {
                    format!("{:.2}", ratio.value)
                });
                let _ = writeln!(
                    out,
                    "  {:<24}{:>11.0}{:>11.0}{:>11.0}{ratio:>9}  {:>10.0}{:>10.0}{:>9.0}",
                    series.name,
                    series.per_second(),
                    series.p50_us(),
                    series.p95_us(),
                    series.service_us(),
                    series.gateway_us(),
                    series.client_us(),
                );
            }
            for note in &section.notes {
                let _ = writeln!(out, "  {note}");
            }
        }
        if !self.goals.is_empty() {
            let _ = writeln!(out, "\nGoals (for an idle machine)");
        }
        for goal in &self.goals {
            let Goal {
                name,
                value,
                bound,
                unit,
                at_least,
            } = goal;
            let (word, sign) = (
                if goal.is_met() { "met" } else { "MISSED" },
                if *at_least { '≥' } else { '≤' },
            );
            let _ = writeln!(
                out,
                "  {word:<7} {name}: {value:.2} {unit} (goal {sign} {bound} {unit})"
            );
        }
        out
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let sections: Vec<Value> = self.sections.iter().map(section_json).collect();
        let goals: Vec<Value> = self
            .goals
            .iter()
            .map(|goal| {
                let Goal { name, value, bound, unit, at_least } = goal;
                json!({"name": name, "value": value, "bound": bound, "unit": unit, "at_least": at_least, "met": goal.is_met()})
            })
            .collect();
        let facts: Map<String, Value> = self
            .facts
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        json!({"facts": facts, "sections": sections, "goals": goals})
    }
}

fn section_json(section: &Section) -> Value {
    let lines: Vec<Value> = section
        .lines
        .iter()
        .map(|(series, ratio)| {
            let threads: Map<String, Value> = series.threads.iter().map(|(name, us)| (name.clone(), (*us).into())).collect();
            json!({
                "name": series.name, "per_second": series.per_second(), "p50_us": series.p50_us(), "p95_us": series.p95_us(),
                "ratio": ratio.map(|ratio| ratio.value), "service_cpu_us": series.service_us(), "gateway_cpu_us": series.gateway_us(),
                "client_cpu_us": series.client_us(), "service_cpu_us_by_thread": threads,
            })
        })
        .collect();
    json!({"name": section.name, "about": section.about, "lines": lines, "notes": section.notes})
}
