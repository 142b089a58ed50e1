"""Studies of adaptive tests: simulation, exposure calibration, exact and conditional errors."""
