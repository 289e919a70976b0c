"""classic: the face of reprod_log 1.0.1, thin and permanent."""
