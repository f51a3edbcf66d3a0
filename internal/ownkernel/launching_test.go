package ownkernel

import "testing"

// A launch that runs is seen by Close, and none begins behind it.
func TestLaunchingAndClose(t *testing.T) {
	var l Launching
	if !l.Begin() || !l.Close() {
		t.Error("Close does not see a launch that is running")
	}
	l.End()
	if l.Begin() || l.Close() {
		t.Error("a launch has begun behind Close")
	}
}
