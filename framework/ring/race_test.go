//go:build race

package ring

// raceEnabled: the race detector makes an atomic access many times slower.
const raceEnabled = true
