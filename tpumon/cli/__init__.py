"""What is typed: options, their help pages, and the older flags that are understood as well."""
