"""The noise floor and the ways to get one."""
