"""`reput export` and `reput import`: write messages to files and Delta tables, and read them back."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.lake.export_job import Export, ExportOptions, export, follow
    from reput.jobs.lake.import_job import Import, import_messages
    from reput.jobs.lake.import_source import open_source
    from reput.jobs.protobuf_bodies import ProtobufSchema

__all__ = ["Export", "ExportOptions", "Import", "ProtobufSchema", "export", "follow", "import_messages", "open_source"]
