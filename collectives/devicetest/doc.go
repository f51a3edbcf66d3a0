// Package devicetest holds the tests of package collectives on GPUs: those of the
// machine, or emulated ones. Its test binary runs on a machine without Go. Tests named
// TestCost measure as well, where GPU_TEST_COSTS names a file for the results.
package devicetest
