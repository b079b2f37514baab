"""An archive: topics as Parquet files, for whoever looks at more of them than a broker keeps.

Written by `quoth pipeline archive` (archiver.py), its small files merged by compaction.py. What belongs to it
the manifest says (manifest.py); read it by that, with `read_archive` or `archived_files`.
"""

from quoth.spark.archive.reading import archived_files, read_archive

__all__ = ["archived_files", "read_archive"]
