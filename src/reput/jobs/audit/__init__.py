"""`reput audit`: whether log, queues and index agree."""

from reput.jobs.audit.job import AuditResult, audit

__all__ = ["AuditResult", "audit"]
