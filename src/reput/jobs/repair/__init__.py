"""`reput repair`: repair a store that does not start, or salvage its whole records."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.repair.repair_job import RepairResult, repair
    from reput.jobs.repair.salvage_job import SalvageResult, salvage

__all__ = ["RepairResult", "SalvageResult", "repair", "salvage"]
