// Package devicetest holds the tests of package collectives on GPUs: those of the
// machine, or emulated ones. Its test binary runs on a machine without Go.
package devicetest
