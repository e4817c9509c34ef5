"""`TableLeftOutError`: why one table is left out, while an export goes on with the others."""

from __future__ import annotations

from reput.errors import StoreError


class TableLeftOutError(StoreError):
    """Files of one table are gone, as somebody has removed them. Its rows are exported; the table does not get them."""
