"""`reput export` and `reput import`: messages to Parquet and Delta tables, and back."""

from reput.jobs.lake.export_job import Export, ExportOptions, export, follow
from reput.jobs.lake.import_job import Import, import_messages
from reput.jobs.lake.source import open_source

__all__ = ["Export", "ExportOptions", "Import", "export", "follow", "import_messages", "open_source"]
