"""The changes of the tables, one file each; `REVISIONS` in `schema` lists them in order."""
