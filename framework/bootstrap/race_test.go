//go:build race

package bootstrap

// raceEnabled: the race detector allows 8,128 goroutines and slows all of them.
const raceEnabled = true
