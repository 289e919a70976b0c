"""Which unit of the source goes to which unit of the target: by name, by structure, by execution order, by values."""
