"""An archive: topics as Parquet files, for records that a broker does not keep.

archiver.py writes it (`quoth pipeline archive`), compaction.py merges its small files. The manifest
(manifest.py) names its files: `read_archive` and `archived_files` read it by that.
"""

from quoth.spark.archive.reading import archived_files, read_archive

__all__ = ["archived_files", "read_archive"]
