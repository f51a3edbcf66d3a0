package version

import (
	"runtime"
	"strings"
	"testing"
)

func TestStampedVersionWins(t *testing.T) {
	if String() == "" {
		t.Error("no version at all")
	}
	defer func(old string) { Version = old }(Version)
	Version = "v9.8.7"
	if got := Full(); !strings.HasPrefix(got, "v9.8.7 (") || !strings.Contains(got, runtime.GOARCH) {
		t.Errorf("Full() = %q", got)
	}
}
