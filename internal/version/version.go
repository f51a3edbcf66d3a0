// Package version says which build this is.
package version

import (
	"runtime"
	"runtime/debug"
)

// Version is stamped by the Makefile: -ldflags "-X …/internal/version.Version=v1.2.3".
var Version = ""

// String returns the stamped version, else what the Go tool recorded, else "devel".
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Full adds the compiler and the platform.
func Full() string {
	return String() + " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
}
