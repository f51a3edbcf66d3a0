// Package leaktest finds goroutines that the tests of a package leave behind.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// most is how long goroutines may need to end, on a machine that does other things as well.
const most = 20 * time.Second

// Main runs the tests, and fails if goroutines are left.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(patient{m}, options...)
}

// patient gives goroutines the time to end. By itself goleak waits half a second.
type patient struct{ m *testing.M }

func (p patient) Run() int {
	code := p.m.Run()
	for limit := time.Now().Add(most); code == 0 && goleak.Find() != nil && time.Now().Before(limit); {
	}
	return code
}
