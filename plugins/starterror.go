package plugins

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A StartError says why a plugin could not be started.
type StartError struct {
	Name   string
	Path   string
	Reason Reason
	Output []string // the last lines that the plugin printed
	Err    error    // the event, and the expected one
}

// Reason says why a start failed.
type Reason string

// Reasons why a plugin could not be started, and the class of error of each.
const (
	Missing       Reason = "missing"        // ErrUnavailable: no such file
	NotExecutable Reason = "not executable" // ErrUnavailable: no regular file that may be executed
	Checksum      Reason = "wrong checksum" // ErrInvalid: not the file that the configuration pins
	Junk          Reason = "junk on stdout" // ErrPlugin: printed something else than the handshake
	Protocol      Reason = "wrong protocol" // ErrPlugin: no common version, or no gRPC
	Hung          Reason = "hung"           // ErrPlugin: did not answer in time
	Died          Reason = "died"           // ErrPlugin: ended before it answered
)

// Error implements error.
func (e *StartError) Error() string {
	var b strings.Builder
	which := e.Path
	if e.Name != "" { // one that was named by its file alone has said no name yet
		which = e.Name + " (" + e.Path + ")"
	}
	fmt.Fprintf(&b, "plugin %s %v: %v", which, e.Err, e.class())
	if len(e.Output) > 0 {
		b.WriteString("; its last output:")
		for _, line := range e.Output {
			b.WriteString("\n\t" + line)
		}
	}
	return b.String()
}

// Unwrap returns the class and the cause.
func (e *StartError) Unwrap() []error { return []error{e.class(), e.Err} }

func (e *StartError) class() error {
	switch e.Reason {
	case Missing, NotExecutable:
		return framework.ErrUnavailable
	case Checksum:
		return framework.ErrInvalid
	}
	return framework.ErrPlugin
}
