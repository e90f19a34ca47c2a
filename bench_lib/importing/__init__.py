"""Results of other tools into this suite's tables: one file a format, a registry, one writer."""
