package plugins

import (
	"log/slog"
	"time"
)

// DefaultStartTimeout bounds the start of a plugin, until it has answered.
const DefaultStartTimeout = 10 * time.Second

// Spec says which plugin to start, and how.
type Spec struct {
	Name         string         // of the transport, for messages and to check the answer; may be ""
	Path         string         // of the program
	SHA256       string         // of the program, hexadecimal; "" for any
	Options      map[string]any // checked by the plugin
	Env          []string       // "NAME=value", in addition to what is passed on; see Environment
	Layouts      []string       // of arguments that this program may pass to kernels, for the plugin; see collectives.Layouts
	StartTimeout time.Duration  // 0: DefaultStartTimeout
	Log          *slog.Logger   // nil: slog.Default()
}
