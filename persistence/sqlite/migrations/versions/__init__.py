"""The changes of the tables, one file each; `REVISIONS` in `file` lists them in order."""
