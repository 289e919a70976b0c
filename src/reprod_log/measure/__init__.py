"""measure: one fused pass per pair of arrays gives every statistic; no opinion is formed here."""
