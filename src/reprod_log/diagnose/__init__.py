"""diagnose: rules look for known causes and for passes that prove nothing; they never change the verdict."""

from reprod_log.diagnose.finding import Finding

__all__ = ["Finding"]
