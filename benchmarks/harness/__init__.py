"""What the benchmarks and the tests share: loads, processes, power cuts, CPU time."""
