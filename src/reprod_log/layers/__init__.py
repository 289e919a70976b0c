"""layers: what is known of layer kinds and optimizers, as data."""
