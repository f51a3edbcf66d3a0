//go:build race

package tcp_test

// raceEnabled: the race detector makes an atomic access many times slower.
const raceEnabled = true
