"""Administration: requests of `mqadmin` and of dashboards."""
