"""Small architectures in torch and paddle with the same names or others; each `trial(seed)` is a healthy pair."""
