"""The command line: options, their help pages, and the older flags that are understood as well."""
