"""Side-by-side measurements. Each program prints one table with the versions and the machine."""
