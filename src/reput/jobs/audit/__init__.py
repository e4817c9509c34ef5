"""`reput audit`: compare queues and index with the log."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.audit.job import AuditResult, audit

__all__ = ["AuditResult", "audit"]
