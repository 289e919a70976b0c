"""The paddle side of each pair."""
