"""The torch side of each pair."""
