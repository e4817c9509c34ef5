"""`reput audit`: compare queues and index with the log."""

from reput.jobs.audit.job import AuditResult, audit

__all__ = ["AuditResult", "audit"]
