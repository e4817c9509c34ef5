"""`reput backup`, `reput restore` and `reput prune`: copy a store, make a store of a copy, remove old copies."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.backup.backup_job import Backup, backup, list_backups
    from reput.jobs.backup.prune_job import Pruned, prune
    from reput.jobs.backup.restore_job import Restored, restore

__all__ = ["Backup", "Pruned", "Restored", "backup", "list_backups", "prune", "restore"]
