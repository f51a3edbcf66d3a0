// Package protocoltest has the conformance tests of docs/plugin-protocol.md that need
// the place of the host: how a plugin starts and ends, what it makes of signals, of
// packets on its control socket and of messages that no host of this module sends.
// They start the plugin by themselves, know the page and nothing of package plugins, and
// run as part of the suite:
//
//	o.More = protocoltest.Tests(protocoltest.Program{Path: path})
package protocoltest

import (
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// Program is a plugin that can be started, any number of times.
type Program struct {
	Path    string
	Options []byte   // the JSON object that Configure gets; nil for {}
	Env     []string // "NAME=value", in addition to what a host passes on

	// CallLimit is the deadline of each call, 5 s by default.
	CallLimit time.Duration
}

// Bounds of the page, and what a busy machine may take beyond them.
const (
	startBound = 10 * time.Second
	exitBound  = 100 * time.Millisecond
	killBound  = 500 * time.Millisecond
	settle     = 20 * time.Millisecond // how long a test looks for what must not happen
	together   = 4                     // plugins of one test that run at once
)

// Tests lists the tests of the protocol for a plugin.
func Tests(p Program) []transporttest.Test {
	s := &suite{&launcher{program: p}}
	if p.CallLimit == 0 {
		s.program.CallLimit = 5 * time.Second
	}
	return slices.Concat(s.startTests(), s.lifeTests(), s.callTests(), s.descriptorTests())
}

// suite has the tests, and launcher what they start.
type (
	suite    struct{ *launcher }
	launcher struct{ program Program }
)

// each runs f for the numbers below n, a few at once: each starts a plugin.
func each(t transporttest.TB, n int, f func(t transporttest.TB, i int)) {
	var group sync.WaitGroup
	tokens := make(chan struct{}, together)
	for i := range n {
		group.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			f(t, i)
		})
	}
	group.Wait()
}
