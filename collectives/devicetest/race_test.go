//go:build race

package devicetest

// raceEnabled: the race detector makes the Go code that fills and compares memory ten
// times slower, and finds nothing in what is larger or of another type. The whole of
// sizes, operations and layouts is for builds without it.
const raceEnabled = true
