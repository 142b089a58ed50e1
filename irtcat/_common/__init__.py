"""What all packages use: checks, arrays, precision, compilation, registries, progress."""
