"""Where jobs are kept: one seam, one set of verbs, an engine per database."""
