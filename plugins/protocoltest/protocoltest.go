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

// Tests lists the tests of the protocol for a plugin.
func Tests(p Program) []transporttest.Test {
	s := &suite{&launcher{program: p}}
	if p.CallLimit == 0 {
		s.program.CallLimit = 5 * time.Second
	}
	return slices.Concat(s.startTests(), s.lifeTests(), s.callTests(), s.descriptorTests())
}
