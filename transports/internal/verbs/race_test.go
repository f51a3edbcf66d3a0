//go:build race

package verbs

// raceEnabled: the race detector makes an atomic access many times slower.
const raceEnabled = true
