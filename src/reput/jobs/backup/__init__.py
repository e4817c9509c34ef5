"""`reput backup` and `reput restore`: copy a store to a folder or object storage, and make a store of a copy."""

from reput.jobs.backup.backup_job import Backup, backup, list_backups
from reput.jobs.backup.restore_job import Restored, restore

__all__ = ["Backup", "Restored", "backup", "list_backups", "restore"]
