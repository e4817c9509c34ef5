"""`InferredSchemas`: inferred schemas of topics, which later runs go on with.

`_reput/schemas` has all of them as of some commit, and each file of `_reput/schema-changes` those that one commit has
inferred or let grow since: a commit writes its own topics, however many there are. Once the changes are as many topics
as the first file has, or very many files, the first file is written anew, and the changes go, the oldest first: what
a kill leaves of them are the last ones, which say of each topic what the first file says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.own_json import decode_json

_FILE, _CHANGES = "schemas", "schema-changes"
_NUMBER_DIGITS = 20
_MOST_CHANGES = 1000


class InferredSchemas:
    """Schemas in the folder of an export's state.

    Attributes:
        texts: of the schemas, by topic.
    """

    def __init__(self, folder: str, files: FileLayer) -> None:
        self._path, self._folder, self._files = os.path.join(folder, _FILE), os.path.join(folder, _CHANGES), files
        self.texts: dict[str, str] = self._read(self._path) if files.exists(self._path) else {}
        self._count = len(self.texts)
        self._changed = 0
        self._numbers = list[int]()
        if files.is_directory(self._folder):
            self._numbers = [int(name) for name in files.list_names(self._folder) if name.isdigit()]
        for number in self._numbers:
            texts = self._read(self._change(number))
            self.texts.update(texts)
            self._changed += len(texts)

    def keep(self, texts: Mapping[str, str]) -> None:
        """Keep schemas of some topics, durably."""
        if not texts:
            return
        self.texts.update(texts)
        self._changed += len(texts)
        is_due = self._changed >= self._count or len(self._numbers) >= _MOST_CHANGES
        if self._numbers or not is_due:
            self._files.make_directories(self._folder)
            number = self._numbers[-1] + 1 if self._numbers else 0
            self._write(self._change(number), texts)
            self._numbers.append(number)
        if is_due:
            self._write(self._path, self.texts)
            self._count, self._changed = len(self.texts), 0
            while self._numbers:
                self._files.unlink(self._change(self._numbers.pop(0)))

    def _read(self, path: str) -> dict[str, str]:
        try:
            content = decode_json(self._files.read_bytes(path))
            return {topic: text for topic, text in content.items() if text}
        except (ValueError, AttributeError) as error:
            raise CorruptMetadataError(
                path,
                getattr(error, "pos", 0),
                f"not what an export writes ({error!r}); it has the schemas of topics: restore it from a copy, or "
                "export to another folder",
            ) from error

    def _write(self, path: str, texts: Mapping[str, str]) -> None:
        self._files.write_atomically(path, json.dumps(texts, ensure_ascii=False, indent=1).encode())

    def _change(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:0{_NUMBER_DIGITS}d}")
