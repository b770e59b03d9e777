"""The changes of the tables, one file each; `identity.REVISIONS` lists them in order."""
