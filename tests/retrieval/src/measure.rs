/// Sums over all questions. They are shown as means.
#[derive(Debug, Default)]
pub struct Scores {
    questions: f64,
    recall_5: f64,
    recall_10: f64,
    ndcg_10: f64,
    reciprocal: f64,
}

impl Scores {
    /// Adds one question: the results, best first, and the relevant entries (not empty).
    pub fn add(&mut self, found: &[&str], relevant: &[String]) {
        let hit = |key: &str| relevant.iter().any(|wanted| wanted == key);
        let recall = |k: usize| {
            found.iter().take(k).filter(|key| hit(key)).count() as f64 / relevant.len() as f64
        };
        let gain = |rank: usize| 1.0 / (rank as f64 + 1.0).log2();
        let gained: f64 = (1..=10)
            .zip(found)
            .filter(|(_, key)| hit(key))
            .map(|(rank, _)| gain(rank))
            .sum();
        let best: f64 = (1..=relevant.len().min(10)).map(gain).sum();
        self.questions += 1.0;
        self.recall_5 += recall(5);
        self.recall_10 += recall(10);
        self.ndcg_10 += gained / best;
        self.reciprocal += found
            .iter()
            .position(|key| hit(key))
            .map_or(0.0, |index| 1.0 / (index as f64 + 1.0));
    }
}

impl Scores {
    /// R@10 and nDCG@10, for a cell of the summary.
    pub fn recall_and_ndcg(&self) -> String {
        let mean = |sum: f64| sum / self.questions.max(1.0);
        format!("{:.3} {:.3}", mean(self.recall_10), mean(self.ndcg_10))
    }
}

impl std::fmt::Display for Scores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            questions,
            recall_5,
            recall_10,
            ndcg_10,
            reciprocal,
        } = self;
        let mean = |sum: &f64| sum / questions.max(1.0);
        write!(
            f,
            "{:>7.3} {:>7.3} {:>8.3} {:>7.3}",
            mean(recall_5),
            mean(recall_10),
            mean(ndcg_10),
            mean(reciprocal)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_order_scores_one_and_a_late_hit_less() {
        let relevant = ["a".to_owned(), "b".to_owned()];
        let mut perfect = Scores::default();
        perfect.add(&["b", "a", "c"], &relevant);
        assert_eq!(perfect.to_string(), "  1.000   1.000    1.000   1.000");
        let mut late = Scores::default();
        late.add(&["c", "d", "e", "f", "g", "a"], &relevant);
        // Recall@10 is 1 of 2, nDCG@10 is 1/log2(7) over 1 + 1/log2(3), and the reciprocal rank is 1/6.
        assert_eq!(late.to_string(), "  0.000   0.500    0.218   0.167");
    }
}
